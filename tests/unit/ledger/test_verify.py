"""Offline checks agree with a start, and a repair saves what is good without touching the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.ledger import segment, verify
from praxist_zmq.ledger.snapshot import Snapshots
from tests.support.ledgers import bytes_of, contents, filled, started

PAYLOADS = [b"%02d" % n + b"x" * 60 for n in range(1, 31)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Thirty records in segments of about seven."""
    filled(tmp_path / "ledger", PAYLOADS, segment_bytes=600)
    return tmp_path / "ledger"


def spoil(directory: Path, number: int, line: int) -> int:
    """Flip a bit in the payload of one line; its offset."""
    path = segment.path_of(directory, number)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line][:-4] + b"?" + lines[line][-3:]
    path.write_bytes(b"".join(lines))
    return sum(map(len, lines[:line]))


def test_a_good_ledger(directory: Path) -> None:
    before = bytes_of(directory)
    report = verify.verify(directory)
    assert report.outcome == "clean"
    assert (report.program, report.run_id) == ("broker", "run")
    assert sum(found.records for found in report.segments) == 30
    assert report.segments[0].first_sequence == 1
    assert report.segments[-1].last_sequence == 30
    assert [payload for _, payload in verify.stories(directory)] == PAYLOADS
    assert bytes_of(directory) == before


def test_damage_is_placed(directory: Path) -> None:
    offset = spoil(directory, 2, 2)
    report = verify.verify(directory)
    assert report.outcome == "damaged"
    assert report.segments[1].outcome == "damaged"
    assert report.segments[1].offset == offset
    assert report.segments[2].outcome == "clean"
    assert f"00000002.segment, offset {offset}" in report.detail
    with pytest.raises(PraxistError, match="offset"):
        list(verify.stories(directory))


def test_a_tear_is_no_damage(directory: Path) -> None:
    path = segment.path_of(directory, segment.numbers(directory)[-1])
    path.write_bytes(path.read_bytes()[:-5])
    report = verify.verify(directory)
    assert report.outcome == "torn"
    assert [payload for _, payload in verify.stories(directory)] == PAYLOADS[:-1]


def test_a_repair_keeps_all_before_the_damage(directory: Path, tmp_path: Path) -> None:
    spoil(directory, 2, 2)
    before = bytes_of(directory)
    report = verify.repair_copy(directory, tmp_path / "copy")
    assert bytes_of(directory) == before
    kept = contents(tmp_path / "copy")
    assert kept == PAYLOADS[: len(kept)]
    assert report.written_records == report.written_until == len(kept)
    assert 5 < len(kept) < 15
    # the damaged record itself still has the form of one
    assert report.left_out_records == 30 - len(kept)
    ledger = started(tmp_path / "copy")
    assert ledger.commit([b"on"]) == len(kept) + 1
    ledger.close()
    assert verify.verify(tmp_path / "copy").outcome == "clean"


def test_a_repair_after_a_snapshot_skips_damage_before_it(directory: Path, tmp_path: Path) -> None:
    reader_end = verify.verify(directory).segments[1].last_sequence
    assert reader_end is not None
    state = b"\n".join(PAYLOADS[:reader_end])
    Snapshots(directory).write(reader_end, state)
    spoil(directory, 1, 1)
    assert verify.verify(directory).outcome == "clean"
    report = verify.repair_copy(directory, tmp_path / "copy")
    assert report.written_until == 30
    assert report.left_out_records == 0
    assert contents(tmp_path / "copy") == PAYLOADS[reader_end:]
    assert Snapshots(tmp_path / "copy").load(reader_end) == state


def test_a_repair_of_a_lost_segment(directory: Path, tmp_path: Path) -> None:
    segment.path_of(directory, 3).unlink()
    assert verify.verify(directory).outcome == "damaged"
    report = verify.repair_copy(directory, tmp_path / "copy")
    kept = contents(tmp_path / "copy")
    assert kept == PAYLOADS[: len(kept)]
    assert len(kept) == report.written_until
    assert report.left_out_records > 0


def test_a_repair_never_writes_where_something_is(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    with pytest.raises(PraxistError) as caught:
        verify.repair_copy(directory, tmp_path / "copy")
    assert caught.value.code == "path_unusable"


def test_no_ledger_at_all(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(PraxistError) as caught:
            verify.verify(place)
        assert caught.value.code == "path_unusable"
