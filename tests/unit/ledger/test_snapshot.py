"""Snapshots shorten a replay and never lose a record."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.ledger import segment
from praxist_zmq.ledger.snapshot import Snapshots, read_until, sealed_segments
from praxist_zmq.protocol.envelope import LEDGER_VERSION
from tests.support.ledgers import bytes_of, opened, started

PAYLOADS = [b"%02d" % n + b"x" * 60 for n in range(1, 41)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Forty records in segments of about seven."""
    ledger = started(tmp_path / "ledger", segment_bytes=600)
    for payload in PAYLOADS:
        ledger.commit([payload])
    ledger.close()
    return tmp_path / "ledger"


def cut(directory: Path, sealed: int) -> int:
    return sealed_segments(directory)[sealed].last_sequence


def everything(directory: Path) -> list[bytes]:
    ledger = opened(directory)
    before = ledger.snapshot[1].splitlines() if ledger.snapshot else []
    return before + [payload for _, payload in ledger.replay()]


def state(sequence: int) -> bytes:
    return b"\n".join(PAYLOADS[:sequence]) + b"\n"


def test_sealed_segments_cover_all_but_the_last(directory: Path) -> None:
    sealed = sealed_segments(directory)
    assert len(sealed) == len(segment.numbers(directory)) - 1
    assert sealed[0].first_sequence == 1
    for before, after in pairwise(sealed):
        assert after.first_sequence == before.last_sequence + 1
    last = sealed[-1].last_sequence
    read = list(read_until(directory, last))
    assert read == list(enumerate(PAYLOADS[:last], 1))
    assert list(read_until(directory, 12, after=5)) == list(enumerate(PAYLOADS, 1))[5:12]
    with pytest.raises(PraxistError, match="in no sealed segment"):
        list(read_until(directory, last + 1))


def test_replay_starts_after_the_snapshot(directory: Path) -> None:
    sequence = cut(directory, 2)
    Snapshots(directory).write(sequence, state(sequence))
    ledger = opened(directory)
    assert ledger.snapshot == (sequence, state(sequence))
    assert next(ledger.replay()) == (sequence + 1, PAYLOADS[sequence])
    assert everything(directory) == PAYLOADS


def test_a_snapshot_in_the_middle_of_a_segment_is_fine(directory: Path) -> None:
    Snapshots(directory).write(10, state(10))
    assert everything(directory) == PAYLOADS


def test_only_what_the_previous_one_covers_is_deleted(directory: Path) -> None:
    snapshots = Snapshots(directory)
    ledger = started(directory, 600)
    sealed = ledger.sealed_since_snapshot
    assert sealed == len(sealed_segments(directory))
    first, second, third = cut(directory, 1), cut(directory, 2), cut(directory, 4)
    size = ledger.bytes_on_disk
    snapshots.write(first, state(first))
    assert ledger.drop_covered() == []
    assert ledger.sealed_since_snapshot == sealed - 2
    snapshots.write(second, state(second))
    assert [path.name for path in ledger.drop_covered()] == [
        "00000001.segment",
        "00000002.segment",
    ]
    assert ledger.bytes_on_disk < size
    assert ledger.sealed_since_snapshot == sealed - 3
    snapshots.write(third, state(third))
    ledger.drop_covered()
    assert snapshots.sequences() == [third, second]
    ledger.commit([b"more"])
    ledger.close()
    assert everything(directory) == [*PAYLOADS, b"more"]


@pytest.mark.parametrize("content", [b"", b"garbage", b"{}\n", b"\0" * 900])
def test_a_damaged_newest_falls_back_and_is_set_aside(directory: Path, content: bytes) -> None:
    snapshots = Snapshots(directory)
    first, second = cut(directory, 1), cut(directory, 3)
    snapshots.write(first, state(first))
    newest = snapshots.write(second, state(second))
    snapshots.delete_covered()
    newest.write_bytes(content)
    assert everything(directory) == PAYLOADS
    ledger = started(directory, 600)
    assert any(newest.name in note for note in ledger.notes)
    ledger.close()
    assert newest.with_name(newest.name + ".broken-1").read_bytes() == content
    assert everything(directory) == PAYLOADS


def test_every_bit_of_a_snapshot_is_guarded(directory: Path) -> None:
    path = Snapshots(directory).write(1, state(1))
    whole = path.read_bytes()
    refusals = set()
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            loaded = Snapshots(directory).load(1)
        except PraxistError as error:
            refusals.add(error.code)
        else:
            assert loaded == state(1)
    assert refusals <= {"ledger_damaged", "ledger_newer"}


def test_all_damaged_with_records_gone_is_refused(directory: Path) -> None:
    snapshots = Snapshots(directory)
    for sealed in (1, 3):
        snapshots.write(cut(directory, sealed), state(cut(directory, sealed)))
    snapshots.delete_covered()
    for sequence in snapshots.sequences():
        snapshots.path_of(sequence).write_bytes(b"")
    before = bytes_of(directory)
    with pytest.raises(PraxistError) as caught:
        opened(directory)
    assert caught.value.code == "ledger_damaged"
    assert bytes_of(directory) == before


def test_all_damaged_with_every_record_there_reads_from_the_first(directory: Path) -> None:
    path = Snapshots(directory).write(10, state(10))
    path.write_bytes(b"")
    assert everything(directory) == PAYLOADS
    ledger = started(directory, 600)
    assert len(ledger.notes) == 1
    ledger.close()
    assert not path.exists()


def test_segments_gone_or_shorter_than_the_snapshot_are_damage(directory: Path) -> None:
    snapshots = Snapshots(directory)
    snapshots.write(40, state(40))
    last = segment.path_of(directory, segment.numbers(directory)[-1])
    whole = last.read_bytes()
    last.write_bytes(whole[: whole[:-1].rindex(b"\n") + 1])
    with pytest.raises(PraxistError, match="the snapshot with 40"):
        everything(directory)
    for number in segment.numbers(directory):
        segment.path_of(directory, number).unlink()
    with pytest.raises(PraxistError, match="there is no segment"):
        everything(directory)


def test_a_newer_snapshot_is_refused(directory: Path) -> None:
    path = Snapshots(directory).write(10, state(10))
    head, _, rest = path.read_bytes().partition(b"\n")
    fields = json.loads(head) | {"format_version": LEDGER_VERSION + 1}
    path.write_bytes(json.dumps(fields).encode() + b"\n" + rest)
    with pytest.raises(PraxistError) as caught:
        opened(directory)
    assert caught.value.code == "ledger_newer"
