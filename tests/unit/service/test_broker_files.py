"""Close files: written by descriptor, never through a link, told when they cannot be, and read."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from praxist_zmq.core.broker import Broker
from praxist_zmq.core.commands import SignalSeen
from praxist_zmq.core.decision import Stamp
from praxist_zmq.core.state import Generation
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.protocol.orders import WriteClosingSignal
from praxist_zmq.service.broker_files import NO_QUIET_MS, QUIET_MS, SIGNALS, BrokerFiles
from praxist_zmq.service.child_config import ChildConfig
from tests.support.broker_world import identity

WRITE = WriteClosingSignal(generation=3, present=True)


@pytest.fixture
def files(tmp_path: Path) -> BrokerFiles:
    """Of a run with generation 3 open."""
    places = {name: str(tmp_path / name) for name in ("front", "events", "core", "samples")}
    config = ChildConfig(
        run_dir=str(tmp_path), run_id="run", host_dir=str(tmp_path / "host"), secret="0" * 32,
        ready_fd=3, supervisor=identity(1), **places,
    )  # fmt: skip
    (tmp_path / "resource_scheduler").mkdir()
    broker = Broker()
    broker.state.generations[3] = Generation(3, 0)
    return BrokerFiles(config, broker)


def test_every_close_file_is_seen_while_work_is_taken(files: BrokerFiles, tmp_path: Path) -> None:
    assert list(files.closing_signals()) == []
    (tmp_path / "gen_3").mkdir()
    for name in SIGNALS:
        (tmp_path / "gen_3" / name).touch()
    assert list(files.closing_signals()) == [SignalSeen(3, name) for name in SIGNALS]
    files.write_closing_signal(WriteClosingSignal(generation=3, present=False))
    assert list((tmp_path / "gen_3").iterdir()) == []
    assert list(files.closing_signals()) == []


def test_our_own_file_of_an_earlier_close_is_no_close(files: BrokerFiles, tmp_path: Path) -> None:
    """A broker that was killed between an opening and the removal left it."""
    files.write_closing_signal(WRITE)
    assert (tmp_path / "gen_3" / "CLOSING_SIGNAL").is_file()
    assert list(files.closing_signals()) == []
    assert not (tmp_path / "gen_3" / "CLOSING_SIGNAL").exists()


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_a_link_is_refused_told_and_tried_again(
    files: BrokerFiles, tmp_path: Path, target: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "gen_3").symlink_to(tmp_path / target)
    files.write_closing_signal(WRITE)
    warnings = files._broker.soft.warnings
    assert warnings["gen_3"].startswith("gen_3/CLOSING_SIGNAL cannot be written: ")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (tmp_path / "gen_3").unlink()
    clock = SystemClock()
    files.write_status(Stamp(at_ms=clock.wall_ms(), mono_ms=clock.mono_ms()), last=True)
    assert (tmp_path / "gen_3" / "CLOSING_SIGNAL").is_file()
    assert "gen_3" not in warnings


def test_a_directory_in_the_place_of_the_file_is_told(files: BrokerFiles, tmp_path: Path) -> None:
    (tmp_path / "gen_3" / "CLOSING_SIGNAL").mkdir(parents=True)
    files.write_closing_signal(WRITE)
    assert "not a regular file" in files._broker.soft.warnings["gen_3"]
    assert list(files.closing_signals()) == [SignalSeen(3, "CLOSING_SIGNAL")]
    files.write_closing_signal(WriteClosingSignal(generation=3, present=False))
    assert "cannot be removed" in files._broker.soft.warnings["gen_3"]


def test_the_view_is_not_written_in_the_wake_of_an_answer(files: BrokerFiles) -> None:
    """However long nothing had happened before."""
    files.write_status(Stamp(at_ms=0, mono_ms=10_000))
    due = files.status_due_ms()
    files.answered(due + 7_000)
    assert files.status_due_ms() == due + 7_000 + QUIET_MS


@pytest.mark.parametrize("apart_ms", [1, QUIET_MS, QUIET_MS + 2, 100])
def test_it_is_written_under_any_load(files: BrokerFiles, apart_ms: int) -> None:
    """Turns that take `apart_ms` each, with an answer in every one."""
    now = 10_000
    files.write_status(Stamp(at_ms=0, mono_ms=now))
    period = files.status_due_ms() - now
    written = [now]
    while now < 10_000 + 5 * period:
        stamp = Stamp(at_ms=0, mono_ms=now)
        now += apart_ms
        files.answered(now)
        if stamp.mono_ms >= files.status_due_ms():
            files.write_status(stamp)
            written.append(stamp.mono_ms)
    gaps = [after - before for before, after in itertools.pairwise(written)]
    assert len(gaps) >= 3
    assert max(gaps) <= period + NO_QUIET_MS + 2 * apart_ms
