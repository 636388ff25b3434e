"""Whatever kills the writer, and whatever the disk answers: acknowledged records are there."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.ledger import segment
from praxist_zmq.ledger.snapshot import Snapshots, sealed_segments
from tests.support.ledgers import contents, filled, opened, started

CALLS = {"fsync": "fsync", "rename": "rename,renameat,renameat2", "unlink": "unlink,unlinkat"}
ROOT = Path(__file__).parents[2]


def traced(inject: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a module of ours under strace with one fault injected."""
    strace = shutil.which("strace")
    assert strace is not None
    names = inject.partition(":")[0]
    return subprocess.run(
        [
            *(strace, "-qq", "-f", "-e", "signal=none", "-e", f"trace={names}"),
            *("-o", "/dev/null", "-e", f"inject={inject}", sys.executable, "-m", *command),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )


@pytest.fixture
def needs_strace() -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    if subprocess.run([strace, "-qq", "-o", "/dev/null", "true"], capture_output=True).returncode:
        pytest.skip("strace may not trace here")


def acknowledged(output: str) -> int:
    lines = [line.split() for line in output.splitlines()]
    return max((int(line[1]) for line in lines if line[0] == "acknowledged"), default=0)


def read_numbers(directory: Path) -> list[int]:
    """The numbers in the records, which must be 1, 2, 3 ... without a gap."""
    if not directory.exists():
        return []
    payloads = contents(directory)
    numbers = [int(payload[5 : payload.index(b",")]) for payload in payloads]
    assert numbers == list(range(1, len(numbers) + 1))
    return numbers


@pytest.mark.usefixtures("needs_strace")
@pytest.mark.parametrize(
    ("call", "steps"), [("fsync", 6), ("fdatasync", 4), ("rename,renameat,renameat2", 3)]
)
def test_killed_at_every_sync_and_rename(tmp_path: Path, call: str, steps: int) -> None:
    directory = tmp_path / "ledger"
    for when in range(1, 60):
        shutil.rmtree(directory, ignore_errors=True)
        promised = 0
        if when % 2:
            filled(directory, [b'{"n":1,"filling":"%b"}' % (b"x" * 300)])
            promised = 1
        done = traced(
            f"{call}:signal=SIGKILL:when={when}",
            "tests.crash.ledger_writer",
            *(str(directory), "6", "300"),
        )
        promised = max(promised, acknowledged(done.stdout))
        assert len(read_numbers(directory)) >= promised
        if done.returncode == 0:
            break
    else:
        pytest.fail("the writer never came through")
    assert when > steps
    ledger = started(directory)
    assert ledger.last_sequence >= promised
    ledger.close()


def test_killed_at_any_time(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    chance = random.Random(7)
    promised = 0
    for _ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.ledger_writer", directory, "100000", "5000"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        try:
            assert child.stdout is not None
            for _ in range(chance.randrange(1, 300)):
                line = child.stdout.readline()
                assert line.startswith("acknowledged")
        finally:
            child.send_signal(signal.SIGKILL)
            rest, _ = child.communicate()
        promised = max(promised, acknowledged(line + rest.rpartition("\n")[0]))
        assert len(read_numbers(directory)) >= promised
    started(directory).close()
    assert len(read_numbers(directory)) >= promised


@pytest.mark.usefixtures("needs_strace")
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_failed_sync_poisons(tmp_path: Path, error: str) -> None:
    directory = tmp_path / "ledger"
    done = traced(
        f"fdatasync:error={error}:when=3",
        *("tests.crash.ledger_writer", str(directory), "6", "100000"),
    )
    assert (
        done.stdout.splitlines()
        == ["acknowledged 1", "acknowledged 2"] + ["refused 3 ledger_write_failed"] * 4
    )
    assert len(read_numbers(directory)) in (2, 3)
    assert done.returncode == 3
    started(directory).close()


@pytest.mark.usefixtures("needs_strace")
def test_a_failed_write_poisons_and_a_full_disk_does_not(tmp_path: Path) -> None:
    # pwrite 1 makes room at the start, where a full disk only means less room
    outcomes: dict[str, set[str]] = {}
    for error in ("EIO", "ENOSPC"):
        for when in range(1 + (error == "EIO"), 5):
            directory = tmp_path / f"{error}-{when}"
            done = traced(
                f"pwrite64:error={error}:when={when}",
                *("tests.crash.ledger_writer", str(directory), "3", "100000"),
            )
            promised = acknowledged(done.stdout)
            assert len(read_numbers(directory)) >= promised
            started(directory).close()
            outcomes.setdefault(error, set()).update(
                line.split()[2] for line in done.stdout.splitlines() if line.startswith("refused")
            )
    assert outcomes["EIO"] == {"ledger_write_failed"}
    assert outcomes["ENOSPC"] == set()  # the ballast went, the second try succeeded


@pytest.mark.usefixtures("needs_strace")
@pytest.mark.parametrize("inject", ["fsync:error=EIO:when=3", "pwrite64:error=EIO:when=1"])
def test_a_failure_while_room_is_made_at_start_refuses(tmp_path: Path, inject: str) -> None:
    directory = tmp_path / "ledger"
    filled(directory, [b'{"n":1,"filling":"%b"}' % (b"x" * 300)])
    done = traced(inject, "tests.crash.ledger_writer", str(directory), "3", "100000")
    assert done.returncode == 1
    assert "making room" not in done.stderr
    assert "Input/output error" in done.stderr
    assert "acknowledged" not in done.stdout
    assert read_numbers(directory) == [1]
    started(directory).close()


@pytest.mark.usefixtures("needs_strace")
def test_a_failed_sync_of_a_new_segment_poisons(tmp_path: Path) -> None:
    for when in range(4, 9):
        directory = tmp_path / str(when)
        filled(directory, [b'{"n":1,"filling":"%b"}' % (b"x" * 300)])
        done = traced(
            f"fsync:error=EIO:when={when}",
            *("tests.crash.ledger_writer", str(directory), "8", "300"),
        )
        assert "ledger_write_failed" in done.stdout
        assert len(read_numbers(directory)) >= max(1, acknowledged(done.stdout))


@pytest.mark.usefixtures("needs_strace")
def test_snapshot_killed_at_every_step(tmp_path: Path) -> None:
    source = tmp_path / "source"
    payloads = [b"%02d" % n + b"x" * 60 for n in range(1, 31)]
    filled(source, payloads, segment_bytes=400)
    sealed = sealed_segments(source)
    killed = 0
    cuts = (sealed[1].last_sequence, sealed[2].last_sequence, sealed[3].last_sequence)
    for call, when in [
        (call, when) for call in ("fsync", "rename", "unlink") for when in (1, 2, 3)
    ]:
        directory = tmp_path / f"kill-{call}-{when}"
        shutil.copytree(source, directory)
        for cut in cuts[:2]:
            snapshots = Snapshots(directory)
            base = snapshots.newest()
            state = base.data if base else b""
            known = base.sequence if base else 0
            state += b"".join(payload + b"\n" for payload in payloads[known:cut])
            snapshots.write(cut, state)
        done = traced(
            f"{CALLS[call]}:signal=SIGKILL:when={when}",
            *("tests.crash.snapshot_writer", str(directory), str(cuts[2])),
        )
        ledger = opened(directory)
        assert ledger.snapshot is not None
        sequence, state = ledger.snapshot
        assert sequence in cuts[1:]
        seen = state.splitlines() + [payload for _, payload in ledger.replay()]
        assert seen == payloads
        ledger.start()
        ledger.drop_covered()
        assert ledger.commit([b"more"]) == len(payloads) + 1
        ledger.close()
        killed += done.returncode != 0
    assert killed >= 5


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small tmpfs")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_and_its_recovery(small_disk: Path) -> None:
    directory = small_disk / "ledger"
    ledger = started(directory, ballast_bytes=200_000)
    assert not ledger.low_space
    room = segment.path_of(directory, 1).stat().st_size
    record = b'{"filling":"%b"}' % (b"x" * 3000)
    ledger.commit([record])
    filling = small_disk / "filling"
    with filling.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096) == 4096:
                pass
        except OSError:
            assert not ledger.low_space
    accepted = ledger.last_sequence
    with pytest.raises(PraxistError) as caught:  # noqa: PT012
        while True:
            accepted = ledger.commit([record])
            assert ledger.low_space or accepted < 5 + room // len(record)
    assert caught.value.code == "no_space"
    assert ledger.low_space
    assert accepted > 30  # the ballast gave this room
    assert ledger.last_sequence == accepted
    for _ in range(3):
        with pytest.raises(PraxistError):
            ledger.commit([record])
    assert contents(directory) == [record] * accepted
    ledger.maintain()
    assert ledger.low_space
    filling.unlink()
    ledger.maintain()
    assert not ledger.low_space
    assert ledger.commit([b"after"]) == accepted + 1
    ledger.close()
    again = started(directory)
    assert again.notes == []
    assert again.last_sequence == accepted + 1
    again.close()


def test_a_full_disk_at_rotation_stays_in_the_segment(small_disk: Path) -> None:
    directory = small_disk / "ledger"
    ledger = started(directory, segment_bytes=2000, ballast_bytes=0)
    ledger.commit([b"x" * 2100])
    with (small_disk / "filling").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096) == 4096:
                pass
        except OSError:
            pass
    assert ledger.commit([b"y" * 100]) == 2  # the rest of the last page
    assert [path.name for path in directory.glob("*.segment")] == ["00000001.segment"]
    assert ledger.low_space
    (small_disk / "filling").unlink()
    ledger.maintain()
    assert ledger.commit([b"z"]) == 3
    ledger.close()
    assert len(list(directory.glob("*.segment"))) == 2
    assert contents(directory) == [b"x" * 2100, b"y" * 100, b"z"]


def test_a_full_disk_at_start_says_so_and_changes_nothing(small_disk: Path) -> None:
    directory = small_disk / "ledger"
    filled(directory, [b"x" * 300_000])
    (small_disk / "filling").write_bytes(b"x" * 600_000)
    before = (directory / "00000001.segment").read_bytes()
    ledger = opened(directory)
    assert len(list(ledger.replay())) == 1
    with pytest.raises(PraxistError) as caught:
        ledger.start()
    assert caught.value.code == "no_space"
    assert [path.name for path in directory.iterdir()] == ["00000001.segment"]
    assert (directory / "00000001.segment").read_bytes() == before


def test_a_read_only_disk_at_start_is_named(small_disk: Path) -> None:
    directory = small_disk / "ledger"
    filled(directory, [b"1"])
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    ledger = opened(directory)
    assert list(ledger.replay()) == [(1, b"1")]
    with pytest.raises(PraxistError) as caught:
        ledger.start()
    assert caught.value.code == "path_unusable"
    assert str(directory) in caught.value.detail


def test_starts_that_find_no_room_leave_nothing_and_keep_the_tear(small_disk: Path) -> None:
    directory = small_disk / "ledger"
    ledger = started(directory)
    ledger.commit([b'{"filling":"%b"}' % (b"x" * 300_000)])
    ledger.close()
    last = segment.path_of(directory, 1)
    with last.open("ab") as file:
        file.write(b"70a4")
    as_it_was = last.read_bytes()
    filling = small_disk / "filling"
    # Room for one copy, not for two: the one kept aside must not stay from try to try.
    filling.write_bytes(b"x" * 250_000)
    for _ in range(3):
        with pytest.raises(PraxistError) as caught:
            started(directory)
        assert caught.value.code == "no_space"
        assert [path.name for path in directory.iterdir()] == [last.name]
        assert last.read_bytes() == as_it_was
    filling.unlink()
    ledger = started(directory)
    ledger.close()
    assert len(ledger.notes) == 1
    assert last.with_name(f"{last.name}.broken-1").read_bytes() == as_it_was
