"""A snapshot is made beside the broker, of what can be trusted; the lack of one ends nobody."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.ledger.log import Ledger
from praxist_zmq.ledger.snapshot import Snapshots
from praxist_zmq.protocol.requests import SubmitJob
from praxist_zmq.service.compact import compact
from praxist_zmq.service.compaction import SEALED_SEGMENTS_MIN, Compaction
from praxist_zmq.transport.poller import Poller
from tests.support.broker_world import World
from tests.support.ledgers import filled, started


def records(kind_lost: str | None = None) -> list[bytes]:
    """The ledger of one finished job, one kind of record unreadable."""
    world = World()
    world.ask(SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={}))
    world.settle()
    assert world.finish_one()
    world.settle()
    if kind_lost is None:
        return list(world.disk)
    lost = f'"{kind_lost}"'.encode()
    assert lost in b"".join(world.disk)
    return [body.replace(lost, b'"of_another_version"') for body in world.disk]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """One with much to compact."""
    filled(tmp_path / "ledger", records(), segment_bytes=1)
    made = started(tmp_path / "ledger", segment_bytes=1)
    assert made.sealed_since_snapshot >= SEALED_SEGMENTS_MIN
    yield made
    made.close()


def until_ended(compaction: Compaction, poller: Poller) -> None:
    ready = poller.wait(30_000)
    assert ready, "the compactor ends"
    compaction.ended(set(ready))


def test_what_is_sealed_is_replaced_by_a_snapshot(ledger: Ledger, tmp_path: Path) -> None:
    poller = Poller()
    compaction = Compaction(ledger, tmp_path / "log" / "compact.log", poller)
    compaction.consider()
    until_ended(compaction, poller)
    assert ledger.sealed_since_snapshot == 0
    assert Snapshots(ledger.directory).newest() is not None


def test_a_log_folder_that_was_cleaned_up_is_made_again(ledger: Ledger, tmp_path: Path) -> None:
    log, poller = tmp_path / "log" / "compact.log", Poller()
    log.parent.mkdir()
    compaction = Compaction(ledger, log, poller)
    shutil.rmtree(log.parent)
    compaction.consider()
    until_ended(compaction, poller)
    assert log.exists()


def test_a_log_that_cannot_be_opened_ends_nobody(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("not a directory")
    poller = Poller()
    Compaction(ledger, tmp_path / "log" / "compact.log", poller).consider()
    assert not poller.wait(0)
    assert ledger.sealed_since_snapshot >= SEALED_SEGMENTS_MIN


@pytest.mark.parametrize("kind", ["job_queued", "job_finished"])
def test_no_snapshot_forgets_a_record_that_is_unreadable(tmp_path: Path, kind: str) -> None:
    filled(tmp_path / "ledger", [*records(kind), b"{}"], segment_bytes=1)
    with pytest.raises(PraxistError) as caught:
        compact(tmp_path / "ledger")
    assert caught.value.code == "unreadable_record"
    assert "first j-1" in caught.value.detail
    assert Snapshots(tmp_path / "ledger").newest() is None
