"""Records go into room that is there already, and a reader knows room, tear and damage apart."""

from __future__ import annotations

import json
import resource
import shutil
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from praxist_zmq.errors import PraxistError
from praxist_zmq.ledger import frame, segment, verify
from praxist_zmq.ledger.live import ROOM_BYTES
from praxist_zmq.ledger.snapshot import Snapshots
from praxist_zmq.protocol.limits import LEDGER_RECORD_BYTES_MAX
from tests.support.ledgers import bytes_of, contents, filled, opened, started

SECTOR = 512


def with_room(
    directory: Path, *commits: list[bytes], segment_bytes: int = 1 << 17
) -> tuple[Path, int]:
    """A ledger whose owner was killed: the last segment, and where its records end."""
    ledger = started(directory, segment_bytes)
    for payloads in commits:
        ledger.commit(payloads)
    used = ledger.bytes_on_disk
    shutil.copytree(directory, directory.with_name("killed"))
    ledger.close()
    shutil.rmtree(directory)
    directory.with_name("killed").rename(directory)
    return segment.path_of(directory, 1), used


def starts(whole: bytes) -> list[int]:
    """Where each record begins, and where the last one ends."""
    found = [0]
    for line in whole.splitlines(keepends=True):
        found.append(found[-1] + len(line))
    return found[1:]


def outcome(directory: Path) -> list[bytes] | str:
    try:
        return contents(directory)
    except PraxistError as error:
        return error.code


def test_commits_write_into_room(tmp_path: Path) -> None:
    ledger = started(tmp_path / "ledger", segment_bytes=1 << 24)
    path = segment.path_of(tmp_path / "ledger", 1)
    size, blocks = path.stat().st_size, path.stat().st_blocks
    assert size >= ROOM_BYTES
    assert blocks * 512 >= size  # written, not a hole
    for number in range(1, 50):
        assert ledger.commit([b"x" * 600]) == number
        ledger.maintain()
    assert (path.stat().st_size, path.stat().st_blocks) == (size, blocks)
    ledger.commit([b"x" * 600_000])
    assert path.stat().st_size == size
    ledger.maintain()
    grown = path.stat().st_size
    assert grown >= ledger.bytes_on_disk + ROOM_BYTES - 4096
    # more than there is room for: the commit takes a little along
    ledger.commit([b"x" * 900_000, b"x" * 900_000])
    assert path.stat().st_size > max(grown, ledger.bytes_on_disk)
    used = ledger.bytes_on_disk
    ledger.close()
    assert path.stat().st_size == used


def test_a_sealed_segment_has_no_room(tmp_path: Path) -> None:
    ledger = started(tmp_path / "ledger", segment_bytes=5000)
    for _ in range(40):
        ledger.commit([b"x" * 600])
    numbers = segment.numbers(tmp_path / "ledger")
    assert len(numbers) > 3
    for number in numbers[:-1]:
        assert b"\0" not in segment.path_of(tmp_path / "ledger", number).read_bytes()
    assert segment.path_of(tmp_path / "ledger", numbers[-1]).stat().st_size == 8192
    ledger.close()


def test_a_killed_owner_leaves_a_clean_ledger(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    path, used = with_room(directory, [b"1"], [b"2", b"3"])
    assert path.stat().st_size > used
    before = bytes_of(directory)
    assert contents(directory) == [b"1", b"2", b"3"]
    report = verify.verify(directory)
    assert (report.outcome, report.segments[0].records) == ("clean", 3)
    assert [payload for _, payload in verify.stories(directory)] == [b"1", b"2", b"3"]
    assert verify.repair_copy(directory, tmp_path / "copy").left_out_records == 0
    assert bytes_of(directory) == before
    assert contents(tmp_path / "copy") == [b"1", b"2", b"3"]
    ledger = started(directory)
    assert (ledger.notes, ledger.bytes_on_disk) == ([], used)
    assert ledger.commit([b"4"]) == 4
    ledger.close()


def test_room_that_a_rotation_left_behind_is_no_damage(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    filled(directory, [b"%d" % n + b"x" * 50 for n in range(30)], segment_bytes=600)
    path = segment.path_of(directory, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(4000))
    assert len(contents(directory)) == 30
    path.write_bytes(whole[: starts(whole)[-2]] + bytes(4000))
    assert outcome(directory) == "ledger_damaged"


@pytest.mark.parametrize("single", [True, False])
def test_a_cut_at_every_byte_with_zeros_behind(tmp_path: Path, single: bool) -> None:
    directory = tmp_path / "ledger"
    payloads = [b'{"n":%d}' % n for n in range(12)]
    commits = [[payload] for payload in payloads] if single else [payloads[:5], payloads[5:]]
    path, used = with_room(directory, *commits)
    whole = path.read_bytes()[: used + 5000]
    start = starts(whole[:used])[-2]
    for cut in range(start, used):
        path.write_bytes(whole[:cut] + bytes(len(whole) - cut))
        ledger = opened(directory)
        assert [payload for _, payload in ledger.replay()] == payloads[:-1]
        assert verify.verify(directory).outcome == ("clean" if cut == start else "torn")
    ledger = started(directory)
    assert len(ledger.notes) == 1
    assert ledger.commit([b"after"]) == len(payloads)
    ledger.close()
    assert contents(directory) == [*payloads[:-1], b"after"]


@pytest.mark.parametrize("padding", [300, 411, 700])
@pytest.mark.parametrize("together", [True, False])
def test_every_subset_of_the_sectors_of_the_last_two(
    tmp_path: Path, padding: int, together: bool
) -> None:
    directory = tmp_path / "ledger"
    one, two = b"1" * 1300, b"2" * 1100
    before = b"b" * padding
    path, used = with_room(directory, [before], *([[one, two]] if together else [[one], [two]]))
    whole = path.read_bytes()[: used + 2000]
    _, first, second, _ = starts(whole[:used])
    edges = sorted({first, used, *range(first // SECTOR * SECTOR + SECTOR, used, SECTOR)})
    pieces = list(pairwise(edges))
    refusals = 0
    for kept in range(1 << len(pieces)):
        torn = bytearray(whole)
        for bit, (begin, end) in enumerate(pieces):
            if not kept >> bit & 1:
                torn[begin:end] = bytes(end - begin)
        path.write_bytes(torn)
        found = outcome(directory)
        first_is_whole = torn[first:second] == whole[first:second]
        if together or first_is_whole:  # what a crash may leave
            wanted = [before] + [one] * first_is_whole + [two] * (first_is_whole and torn == whole)
            assert found == wanted
        elif found == "ledger_damaged":  # the first had been synced before the second was written
            refusals += 1
        else:
            assert found == [before]
            assert (
                torn[second : second + 8] != whole[second : second + 8]
                or b"\0" in torn[second:used]
            )
    assert together or refusals >= 1 << len(range(second // SECTOR + 1, used // SECTOR - 1))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_bytes_of_the_last_commit_may_be_missing(data: st.DataObject) -> None:
    payload = st.dictionaries(st.text(max_size=8), st.text(max_size=300), max_size=3)
    payloads = st.lists(payload.map(lambda v: json.dumps(v).encode()), min_size=1, max_size=5)
    acked, last = data.draw(payloads), data.draw(payloads)
    with tempfile.TemporaryDirectory() as base:
        directory = Path(base) / "ledger"
        path, used = with_room(directory, acked, last, segment_bytes=1 << 15)
        torn = bytearray(path.read_bytes()[: used + 700])
        start = starts(bytes(torn[:used]))[len(acked)]
        for begin, size in data.draw(
            st.lists(st.tuples(st.integers(start, used - 1), st.integers(1, 600)), max_size=4)
        ):
            torn[begin : min(begin + size, used)] = bytes(min(size, used - begin))
        path.write_bytes(torn[: data.draw(st.integers(start, len(torn)))])
        found = contents(directory)
        assert found == [*acked, *last][: len(found)]
        assert len(found) >= len(acked)
        ledger = started(directory, 1 << 15)
        assert ledger.commit([b"after"]) == len(found) + 1
        ledger.close()
        assert contents(directory) == [*found, b"after"]


def test_every_bit_of_the_last_record_is_guarded_too(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    path, used = with_room(directory, [b'{"n":1}'], [b'{"n":22}', b'{"n":333}'])
    whole = path.read_bytes()[: used + 100]
    start = starts(whole[:used])[-2]
    for bit in range(start * 8, used * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        if flipped[bit // 8]:
            assert outcome(directory) == "ledger_damaged"
        else:  # a zero looks like a byte that was never written
            assert outcome(directory) == [b'{"n":1}', b'{"n":22}']


@pytest.mark.parametrize("planted", [b"x", b"garbage\n", b"\0\0x" + b"y" * 100, b"12345678 7"])
def test_what_no_crash_leaves_after_the_records(tmp_path: Path, planted: bytes) -> None:
    directory = tmp_path / "ledger"
    path, used = with_room(directory, [b"1"], [b"2"])
    with path.open("r+b") as file:
        file.seek(used)
        file.write(planted)
    # The last two could be the rest of a torn record.
    torn = planted[0] in b"\x001"
    assert outcome(directory) == ([b"1", b"2"] if torn else "ledger_damaged")


@pytest.mark.parametrize("size", [4096, 20_000])
def test_zeros_over_acknowledged_records(tmp_path: Path, size: int) -> None:
    directory = tmp_path / "ledger"
    payloads = [b"%03d" % n + b"x" * 400 for n in range(90)]
    path, used = with_room(directory, *([p] for p in payloads))
    whole = path.read_bytes()
    for start in range(starts(whole[:used])[0], used - size - 450, 1013):
        path.write_bytes(whole[:start] + bytes(size) + whole[start + size :])
        before = bytes_of(directory)
        with pytest.raises(PraxistError, match="offset") as caught:
            contents(directory)
        assert caught.value.code == "ledger_damaged"
        assert bytes_of(directory) == before
    # Nothing in the segment tells these from records that were never written ...
    path.write_bytes(whole[: used - size] + bytes(size) + whole[used:])
    found = contents(directory)
    assert found == payloads[: len(found)]
    # ... but a snapshot does.
    Snapshots(directory).write(85, b"state")
    assert outcome(directory) == "ledger_damaged"


def test_a_gap_between_commits_is_damage_although_the_later_one_has_many(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    path, used = with_room(directory, [b"a" * 900], [b"%d" % n + b"x" * 400 for n in range(30)])
    whole = path.read_bytes()
    first = starts(whole[:used])[0]
    for start, wanted in ((first + 700, "ledger_damaged"), (first + 3000, 5)):
        path.write_bytes(whole[:start] + bytes(1500) + whole[start + 1500 :])
        found = outcome(directory)
        assert (found if isinstance(found, str) else len(found)) == wanted


def test_a_commit_beyond_the_limit_is_synced_in_parts(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    payloads = [b"%02d" % n + b"x" * (LEDGER_RECORD_BYTES_MAX - 2) for n in range(4)]
    blocks = frame.encode_batch(payloads * 3, 1, 0)
    assert len(blocks) > 1
    assert sum(block.records for block in blocks) == 12
    assert all(len(block.data) <= frame.COMMIT_BYTES_MAX for block in blocks)
    ledger = started(directory, segment_bytes=1 << 24)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(blocks[0].data) + 2_000_000, hard))
    try:
        with pytest.raises(PraxistError) as caught:
            ledger.commit(payloads * 3)
        assert caught.value.code == "no_space"
        assert ledger.last_sequence == 0
        assert contents(directory) == []
        assert ledger.commit([b"small"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ledger.commit(payloads * 3) == 13
    ledger.close()
    assert contents(directory) == [b"small", *payloads * 3]


def old_ledger(directory: Path, payloads: list[bytes], torn: bytes = b"") -> Path:
    """A ledger of format 1, as the versions before wrote it."""
    directory.mkdir(mode=0o700)
    header = replace(frame.Header("broker", "run", 1, 1, 0, "boot"), format_version=1)
    block, crc = frame.encode_header(header)
    for sequence, payload in enumerate(payloads, 1):
        line, crc = frame.encode(sequence, payload, crc)
        block += line
    path = segment.path_of(directory, 1)
    path.write_bytes(block + torn)
    return path


@pytest.mark.parametrize("torn", [b"", b"torn", b"\0" * 500, b"1234abcd 9 4 {"])
@pytest.mark.parametrize("payloads", [[], [b"1", b"0 {}", b"3"]])
def test_a_ledger_of_format_1_goes_on_in_a_new_segment(
    tmp_path: Path, payloads: list[bytes], torn: bytes
) -> None:
    directory = tmp_path / "ledger"
    path = old_ledger(directory, payloads, torn)
    whole = path.read_bytes()
    assert contents(directory) == payloads
    ledger = started(directory)
    assert len(ledger.notes) == bool(torn)
    assert ledger.commit([b"4", b"5"]) == len(payloads) + 2
    ledger.close()
    assert path.read_bytes() == whole.removesuffix(torn)
    assert segment.numbers(directory) == [1, 2]
    assert contents(directory) == [*payloads, b"4", b"5"]
    assert verify.verify(directory).outcome == "clean"
    started(directory).close()
    assert segment.numbers(directory) == [1, 2]
    verify.repair_copy(directory, tmp_path / "copy")
    assert contents(tmp_path / "copy") == [*payloads, b"4", b"5"]


def test_damage_in_format_1_is_still_damage(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    path = old_ledger(directory, [b"1" * 50, b"2" * 50, b"3" * 50])
    whole = path.read_bytes()
    start = starts(whole)[1]
    path.write_bytes(whole[: start + 30] + b"?" + whole[start + 31 :])
    assert outcome(directory) == "ledger_damaged"
    report = verify.repair_copy(directory, tmp_path / "copy")
    assert (report.written_records, report.left_out_records) == (1, 2)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.lists(st.binary(min_size=1, max_size=900), max_size=6)),
        st.tuples(st.sampled_from(["maintain", "close", "kill"]), st.just([])),
        st.tuples(st.just("tear"), st.lists(st.binary(min_size=1, max_size=900), min_size=1)),
    ),
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(operations=OPERATIONS, segment_bytes=st.sampled_from([500, 5000, 1 << 16]))
def test_writer_and_reader_agree_with_a_list(
    operations: list[tuple[str, list[bytes]]], segment_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as base:
        directory = Path(base) / "0"
        ledger = started(directory, segment_bytes)
        model: list[bytes] = []
        for number, (name, raw) in enumerate(operations, 1):
            payloads = [item.hex().encode() for item in raw]
            if name == "commit":
                model += payloads
                assert ledger.commit(payloads) == len(model)
            elif name == "maintain":
                ledger.maintain()
            else:
                if name == "tear":  # killed before the sync: some bytes are there
                    used = ledger.bytes_on_disk
                    ledger.commit(payloads)
                if name != "close":
                    shutil.copytree(directory, Path(base) / str(number))
                ledger.close()
                if name != "close":
                    directory = Path(base) / str(number)
                if name == "tear" and ledger.bytes_on_disk > used:
                    _tear(directory, len(payloads))
                ledger = started(directory, segment_bytes)
                kept = ledger.last_sequence - len(model)
                assert 0 <= kept <= len(payloads)
                model += payloads[:kept]
            assert contents(directory) == model
        ledger.close()
        assert contents(directory) == model


def _tear(directory: Path, lost: int) -> None:
    """Zero every other sector of the last commit."""
    path = segment.path_of(directory, segment.numbers(directory)[-1])
    whole = bytearray(path.read_bytes())
    used = len(bytes(whole).rstrip(b"\0"))
    start = starts(bytes(whole[:used]))[-1 - lost]
    for begin in range(start // SECTOR * SECTOR, used, 2 * SECTOR):
        begin, end = max(begin, start), min(begin // SECTOR * SECTOR + SECTOR, used)
        whole[begin:end] = bytes(end - begin)
    path.write_bytes(whole)
