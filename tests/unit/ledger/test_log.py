"""A ledger keeps what it acknowledged, and reads back in one of four ways."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from praxist_zmq.errors import PraxistError
from praxist_zmq.ledger import frame, segment
from praxist_zmq.protocol.envelope import LEDGER_VERSION
from praxist_zmq.protocol.limits import LEDGER_RECORD_BYTES_MAX
from tests.support.ledgers import bytes_of, contents, filled, opened, started

JSON_LINES = st.lists(
    st.dictionaries(st.text(max_size=8), st.text(max_size=30), max_size=3).map(
        lambda value: json.dumps(value).encode()
    ),
    min_size=1,
    max_size=8,
)


def refused(directory: Path) -> PraxistError:
    before = bytes_of(directory)
    with pytest.raises(PraxistError) as caught:
        contents(directory)
    assert bytes_of(directory) == before
    return caught.value


def test_empty_then_filled_then_read_back(tmp_path: Path) -> None:
    ledger = started(tmp_path / "ledger")
    assert ledger.snapshot is None
    assert ledger.last_sequence == 0
    assert ledger.commit([]) == 0
    assert ledger.commit([b"1", b"{}"]) == 2
    assert ledger.commit([b'"three"']) == 3
    ledger.close()
    again = opened(tmp_path / "ledger")
    assert list(again.replay()) == [(1, b"1"), (2, b"{}"), (3, b'"three"')]
    again.start()
    assert again.commit([b"4"]) == 4
    again.close()


def test_rotation_goes_on_across_segments(tmp_path: Path) -> None:
    payloads = [b"%d" % n + b"x" * 50 for n in range(40)]
    filled(tmp_path / "ledger", payloads, segment_bytes=600)
    assert len(segment.numbers(tmp_path / "ledger")) > 3
    assert contents(tmp_path / "ledger") == payloads
    ledger = started(tmp_path / "ledger", 600)
    assert ledger.last_sequence == 40
    used = ledger.bytes_on_disk
    ledger.close()
    assert used == sum(path.stat().st_size for path in (tmp_path / "ledger").glob("*.segment"))


def test_start_writes_the_last_segment_anew(tmp_path: Path) -> None:
    filled(tmp_path / "ledger", [b"1"])
    path = segment.path_of(tmp_path / "ledger", 1)
    before = path.stat().st_ino, path.read_bytes()
    held = path.open()
    started(tmp_path / "ledger").close()
    assert path.stat().st_ino != before[0]
    assert path.read_bytes() == before[1]
    held.close()


def test_start_needs_the_whole_replay(tmp_path: Path) -> None:
    filled(tmp_path / "ledger", [b"1", b"2"])
    ledger = opened(tmp_path / "ledger")
    next(ledger.replay())
    with pytest.raises(PraxistError, match="replaying"):
        ledger.start()


@pytest.mark.parametrize("payload", [b"", b"a\nb", b"a\0b"])
def test_payloads_that_are_no_line_are_refused_whole(tmp_path: Path, payload: bytes) -> None:
    ledger = started(tmp_path / "ledger")
    with pytest.raises(PraxistError) as caught:
        ledger.commit([b"good", payload])
    assert caught.value.code == "internal"
    assert ledger.commit([b"next"]) == 1
    ledger.close()
    assert contents(tmp_path / "ledger") == [b"next"]


def test_the_largest_record_fits_and_one_byte_more_does_not(tmp_path: Path) -> None:
    ledger = started(tmp_path / "ledger")
    with pytest.raises(PraxistError) as caught:
        ledger.commit([b"x" * (LEDGER_RECORD_BYTES_MAX + 1)])
    assert caught.value.code == "too_large"
    largest = b"x" * LEDGER_RECORD_BYTES_MAX
    assert ledger.commit([largest, b"2"]) == 2
    ledger.close()
    assert contents(tmp_path / "ledger") == [largest, b"2"]


@settings(max_examples=15, deadline=None)
@given(payloads=JSON_LINES)
def test_a_cut_at_every_byte_of_the_last_record_loses_only_it(payloads: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as base:
        directory = Path(base) / "ledger"
        filled(directory, payloads)
        path = segment.path_of(directory, 1)
        whole = path.read_bytes()
        start = whole[:-1].rindex(b"\n") + 1
        for cut in range(start, len(whole)):
            path.write_bytes(whole[:cut])
            assert contents(directory) == payloads[:-1]
        path.write_bytes(whole[: (start + len(whole)) // 2])
        ledger = started(directory)
        assert len(ledger.notes) == 1
        assert "offset" in ledger.notes[0]
        assert ledger.commit([b"after"]) == len(payloads)
        ledger.close()
        assert contents(directory) == [*payloads[:-1], b"after"]
        assert (directory / "00000001.segment.broken-1").exists()


@settings(max_examples=60, deadline=None)
@given(payloads=JSON_LINES, data=st.data())
def test_a_flipped_bit_before_the_last_record_is_refused(
    payloads: list[bytes], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as base:
        directory = Path(base) / "ledger"
        filled(directory, [*payloads, b"last"])
        path = segment.path_of(directory, 1)
        whole = bytearray(path.read_bytes())
        start = bytes(whole[:-1]).rindex(b"\n") + 1
        bit = data.draw(st.integers(0, start * 8 - 1))
        whole[bit // 8] ^= 1 << bit % 8
        path.write_bytes(whole)
        error = refused(directory)
        assert error.code in ("ledger_damaged", "ledger_newer")
        assert str(path) in error.detail
        assert "offset" in error.detail


def test_every_bit_of_a_middle_record_is_guarded(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    filled(directory, [b'{"n":1}', b'{"n":2}', b'{"n":3}'])
    path = segment.path_of(directory, 1)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    start = len(lines[0]) + len(lines[1])
    for bit in range(start * 8, (start + len(lines[2])) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(PraxistError) as caught:
            contents(directory)
        assert caught.value.code == "ledger_damaged"
        assert f"offset {start}" in caught.value.detail


def test_zeros_at_the_end_are_room(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    filled(directory, [b"1", b"2"])
    path = segment.path_of(directory, 1)
    with path.open("ab") as file:
        file.write(b"\0" * 100_000)
    ledger = started(directory)
    assert ledger.notes == []
    assert ledger.commit([b"3"]) == 3
    ledger.close()
    assert contents(directory) == [b"1", b"2", b"3"]


def test_zeros_over_the_last_records_are_a_tear(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    payloads = [b"%03d" % n + b"x" * 400 for n in range(60)]
    filled(directory, payloads)
    path = segment.path_of(directory, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-4096] + b"\0" * 4096)
    kept = contents(directory)
    assert 45 < len(kept) < 60
    assert kept == payloads[: len(kept)]


@pytest.mark.parametrize("start", [0, 5_000, 20_000, -4200])
def test_zeros_in_the_middle_are_damage(tmp_path: Path, start: int) -> None:
    directory = tmp_path / "ledger"
    filled(directory, [b"%03d" % n + b"x" * 400 for n in range(60)] + [b"last"])
    path = segment.path_of(directory, 1)
    whole = bytearray(path.read_bytes())
    start %= len(whole)
    whole[start : start + 4096] = b"\0" * 4096
    path.write_bytes(whole)
    assert refused(directory).code == "ledger_damaged"


def test_lines_missing_repeated_or_swapped_are_damage(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    filled(directory, [b"1", b"2", b"3", b"4"])
    path = segment.path_of(directory, 1)
    head, one, two, three, four = path.read_bytes().splitlines(keepends=True)
    for lines in (
        [head, one, three, four],
        [head, one, two, four],
        [head, two, three, four],
        [head, one, two, two, three, four],
        [head, one, three, two, four],
        [one, two, three, four],
    ):
        path.write_bytes(b"".join(lines))
        assert refused(directory).code == "ledger_damaged"


def test_a_tear_in_a_sealed_segment_is_damage(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    filled(directory, [b"%d" % n + b"x" * 50 for n in range(30)], segment_bytes=600)
    path = segment.path_of(directory, 2)
    path.write_bytes(path.read_bytes()[:-3])
    assert refused(directory).code == "ledger_damaged"
    path.write_bytes(path.read_bytes().rsplit(b"\n", 1)[0] + b"\n")
    assert refused(directory).code == "ledger_damaged"


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    filled(directory, [b"%d" % n + b"x" * 50 for n in range(30)], segment_bytes=600)
    for number in (1, 2):
        path = segment.path_of(directory, number)
        kept = path.read_bytes()
        path.unlink()
        assert refused(directory).code == "ledger_damaged"
        path.write_bytes(kept)


def rewrite_header(path: Path, **changes: object) -> None:
    line, _, rest = path.read_bytes().partition(b"\n")
    fields = json.loads(line.split(b" ", 3)[3]) | changes
    path.write_bytes(frame.encode(0, json.dumps(fields).encode(), 0)[0] + rest)


def test_another_version_program_or_run_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    filled(directory, [b"1", b"2"])
    path = segment.path_of(directory, 1)
    whole = path.read_bytes()
    for changes, code in (
        ({"format_version": LEDGER_VERSION + 1, "shape": "unknown"}, "ledger_newer"),
        ({"format_version": 0}, "ledger_damaged"),
        ({"program": "registry"}, "ledger_damaged"),
        ({"run_id": "other"}, "run_moved"),
        ({"segment": 7}, "ledger_damaged"),
        ({"first_sequence": "1"}, "ledger_damaged"),
        ({"previous_crc": 5}, "ledger_damaged"),
    ):
        path.write_bytes(whole)
        rewrite_header(path, **changes)
        assert refused(directory).code == code


@pytest.mark.parametrize("content", [b"", b"\n", b"garbage\n", b"\0" * 5000, b"{}", b"[" * 90_000])
def test_files_that_are_no_segment_are_refused(tmp_path: Path, content: bytes) -> None:
    directory = tmp_path / "ledger"
    filled(directory, [b"1"])
    segment.path_of(directory, 1).write_bytes(content)
    assert refused(directory).code == "ledger_damaged"


@pytest.mark.parametrize("planted", [b"", b"%08x %d 2 " % (1, 1 << 30), b"%08x 99999 2 " % 1])
def test_a_planted_gigabyte_is_refused_in_little_memory(tmp_path: Path, planted: bytes) -> None:
    directory = tmp_path / "ledger"
    filled(directory, [b"1"])
    with segment.path_of(directory, 1).open("ab") as file:
        file.write(planted or b"x")
        file.truncate(file.tell() + (1 << 30))  # a hole: zeros that take no blocks
        file.seek(0, os.SEEK_END)
        file.write(b"x")
    code = (
        "import resource,sys\n"
        "from pathlib import Path\n"
        "from praxist_zmq.errors import PraxistError\n"
        "from praxist_zmq.ledger.log import Ledger\n"
        "try: list(Ledger.open(Path(sys.argv[1]), 'broker', 'run', 'boot').replay())\n"
        "except PraxistError as e: print(e.code)\n"
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))

    done = subprocess.run(
        [sys.executable, "-c", code, str(directory)],
        capture_output=True,
        text=True,
        timeout=30,
        preexec_fn=limit,
    )
    assert done.stdout == "ledger_damaged\n", done.stderr


@pytest.mark.parametrize("name", ["00000001.segment", "ballast", "00000000000000000001.snapshot"])
@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "device"])
def test_other_things_in_the_place_of_a_file_are_refused(
    tmp_path: Path, name: str, kind: str
) -> None:
    directory = tmp_path / "ledger"
    filled(directory, [b"1"])
    path = directory / name
    target = tmp_path / "target"
    target.write_bytes(path.read_bytes() if path.exists() else b"")
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(target)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    before = target.read_bytes()
    with pytest.raises(PraxistError) as caught:
        started(directory)
    assert caught.value.code == "unsafe_path"
    assert str(path) in caught.value.detail
    assert target.read_bytes() == before


def test_the_directory_itself_must_be_ours(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_bytes(b"")
    for name in ("link", "file"):
        with pytest.raises(PraxistError) as caught:
            opened(tmp_path / name)
        assert caught.value.code == "unsafe_path"
    with pytest.raises(PraxistError) as caught:
        opened(tmp_path / "missing" / "ledger")
    assert caught.value.code == "path_unusable"


def test_leftovers_of_killed_writers_are_removed_at_start(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    filled(directory, [b"1"])
    leftover = directory / f".00000002.segment.{'0' * 16}.tmp"
    leftover.write_bytes(b"half")
    other = directory / ".mine.tmp"
    other.write_bytes(b"")
    started(directory).close()
    assert not leftover.exists()
    assert other.exists()


def test_an_old_ledger_copied_away_still_reads(tmp_path: Path) -> None:
    filled(tmp_path / "ledger", [b"1", b"2"])
    shutil.copytree(tmp_path / "ledger", tmp_path / "copy")
    assert contents(tmp_path / "copy") == [b"1", b"2"]


def test_a_closed_ledger_takes_nothing(tmp_path: Path) -> None:
    ledger = started(tmp_path / "ledger")
    ledger.close()
    ledger.close()
    with pytest.raises(PraxistError, match="closed"):
        ledger.commit([b"1"])
