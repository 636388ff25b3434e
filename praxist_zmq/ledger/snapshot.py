"""Snapshots: the state after a record, so that a restart need not read everything before it.

A snapshot is one line of JSON (format version, last sequence, size, sha256) and the state's bytes.
It appears by rename, durable and read back. Two generations are kept, and a segment is deleted
only when the older of the two covers it: were the newer one lost, nothing else would be.
`write`, `sealed_segments` and `read_until` may be used from another process while the owner
appends, for they touch only segments that no longer change. `delete_covered` is the owner's.

Sources: etcd's faults around compaction, which ask for a kill point at each of these steps.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ..errors import PraxistError
from ..protocol.envelope import LEDGER_VERSION
from . import files, segment

SNAPSHOT_BYTES_MAX = 1 << 30
NAME = re.compile(r"^([0-9]{20})\.snapshot$")
_LINE_BYTES_MAX = 1024
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """A verified snapshot."""

    sequence: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment that will not change any more."""

    number: int
    path: Path
    first_sequence: int
    last_sequence: int
    """One less than the first when it has no record."""


def sealed_segments(directory: Path) -> list[SealedSegment]:
    """All segments but the last, ascending.

    Raises PraxistError `ledger_damaged` or `ledger_newer` when a header does not read.
    """
    firsts = []
    for number in segment.numbers(directory):
        path = segment.path_of(directory, number)
        with segment.SegmentReader(path) as reader:
            firsts.append((number, path, reader.header.first_sequence))
    return [
        SealedSegment(number, path, first, following - 1)
        for (number, path, first), (_, _, following) in pairwise(firsts)
    ]


def read_until(directory: Path, sequence: int, after: int = 0) -> Iterator[tuple[int, bytes]]:
    """The records `after` < number <= `sequence`, from sealed segments, verified.

    Raises PraxistError `ledger_damaged` when they are not all there and good.
    """
    expected = after + 1
    previous_crc: int | None = None
    for sealed in sealed_segments(directory):
        if sealed.last_sequence < expected:
            continue
        if sealed.first_sequence > sequence:
            break
        with segment.SegmentReader(sealed.path) as reader:
            if previous_crc is not None and reader.header.previous_crc != previous_crc:
                raise segment.damaged(sealed.path, 0, "it does not continue the one before")
            for number, payload in reader.records():
                if number > sequence:
                    break
                if number == expected:
                    expected += 1
                    yield number, payload
            else:
                if reader.fault is not None:
                    raise segment.damaged(sealed.path, reader.fault.offset, reader.fault.reason)
            previous_crc = reader.crc
    if expected <= sequence:
        raise PraxistError(
            "ledger_damaged", f"{directory}: record {expected} is in no sealed segment"
        )


class Snapshots:
    """The snapshots of one ledger directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path_of(self, sequence: int) -> Path:
        """Where the snapshot after record `sequence` is."""
        return self.directory / f"{sequence:020d}.snapshot"

    def sequences(self) -> list[int]:
        """Of the snapshots there are, newest first, verified or not."""
        found = (NAME.match(name) for name in os.listdir(self.directory))
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def write(self, sequence: int, data: bytes) -> Path:
        """Make the state after record `sequence` durable, read it back, and return its path.

        Raises PraxistError `no_space`, `path_unusable`, `too_large`, `unsafe_path`, or
        `ledger_damaged` when what was read back differs. The older snapshots stay.
        """
        if len(data) > SNAPSHOT_BYTES_MAX:
            raise PraxistError("too_large", f"a snapshot of {len(data)} bytes")
        files.remove_temporaries(self.directory, NAME)
        head = {
            "format_version": LEDGER_VERSION,
            "last_sequence": sequence,
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": len(data),
        }
        path = self.path_of(sequence)
        files.refuse_irregular(path)
        with files.usable(path):
            descriptor, temporary = files.create_temporary(path)
            try:
                try:
                    files.write_all(descriptor, json.dumps(head, sort_keys=True).encode() + b"\n")
                    files.write_all(descriptor, data)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                _verify(temporary, sequence)
                os.rename(temporary, path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            files.fsync_directory(self.directory)
        return path

    def load(self, sequence: int) -> bytes:
        """The verified state of one snapshot.

        Raises PraxistError `ledger_damaged`, `ledger_newer`, `unsafe_path` or `path_unusable`.
        """
        return b"".join(_pieces(self.path_of(sequence), sequence))

    def verify(self, sequence: int) -> None:
        """Like `load`, without keeping the state in memory."""
        _verify(self.path_of(sequence), sequence)

    def newest(self) -> Loaded | None:
        """The snapshot that `find` finds. Raises as it does."""
        return self.find()[0]

    def find(self) -> tuple[Loaded | None, tuple[Path, ...]]:
        """The newest good snapshot from which the records go on without a gap; the damaged ones.

        Falls back to an older one, or to None (all records from the first are there), only if
        nothing is missing then. Raises PraxistError `ledger_damaged` otherwise, `ledger_newer`,
        and changes nothing.
        """
        first = _first_sequence(self.directory)
        bad: list[Path] = []
        reasons: list[str] = []
        for sequence in self.sequences():
            try:
                data = self.load(sequence)
            except PraxistError as error:
                if error.code != "ledger_damaged":
                    raise
                bad.append(self.path_of(sequence))
                reasons.append(error.detail)
                continue
            if first is None or first > sequence + 1:
                break
            return Loaded(sequence, data), tuple(bad)
        if first == 1 or (first is None and not self.sequences()):
            return None, tuple(bad)
        missing = "there is no segment" if first is None else f"records before {first} are gone"
        reasons.append(f"{self.directory}: {missing} and no good snapshot stands for them")
        raise PraxistError("ledger_damaged", "; ".join(reasons))

    def delete_covered(self) -> list[Path]:
        """Delete segments that the previous good snapshot covers, and older snapshots.

        For the owner of the ledger only. Returns what was deleted. Raises PraxistError as
        `verify` does when one of the two newest does not verify; nothing is deleted then.
        """
        sequences = self.sequences()
        for sequence in sequences[:2]:
            self.verify(sequence)
        if len(sequences) < 2:
            return []
        previous = sequences[1]
        doomed = [self.path_of(sequence) for sequence in sequences[2:]]
        doomed += [
            sealed.path
            for sealed in sealed_segments(self.directory)
            if sealed.last_sequence <= previous
        ]
        with files.usable(self.directory):
            for path in doomed:
                path.unlink()
            if doomed:
                files.fsync_directory(self.directory)
        return doomed


def _first_sequence(directory: Path) -> int | None:
    numbers = segment.numbers(directory)
    if not numbers:
        return None
    with segment.SegmentReader(segment.path_of(directory, numbers[0])) as reader:
        return reader.header.first_sequence


def _verify(path: Path, sequence: int) -> None:
    for _ in _pieces(path, sequence):
        pass


def _pieces(path: Path, sequence: int) -> Iterator[bytes]:
    """The state's bytes piece by piece; the last one comes before the verdict on all."""
    try:
        descriptor = files.open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        raise PraxistError("ledger_damaged", f"{path} is missing") from None
    with files.usable(path), os.fdopen(descriptor, "rb") as file:
        line = file.readline(_LINE_BYTES_MAX)
        size, digest = _head(path, line, sequence)
        if os.fstat(file.fileno()).st_size != len(line) + size:
            raise segment.damaged(path, len(line), f"it should have {size} bytes of state")
        hashing = hashlib.sha256()
        while piece := file.read(_PIECE):
            hashing.update(piece)
            yield piece
        if hashing.hexdigest() != digest:
            raise segment.damaged(path, len(line), "the state's sha256 is wrong")


def _head(path: Path, line: bytes, sequence: int) -> tuple[int, str]:
    try:
        head = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or type(head.get("format_version")) is not int:
        raise segment.damaged(path, 0, "no header of a snapshot")
    if head["format_version"] > LEDGER_VERSION:
        raise PraxistError("ledger_newer", f"{path} has format {head['format_version']}")
    size, digest = head.get("size"), head.get("sha256")
    if type(size) is not int or not 0 <= size <= SNAPSHOT_BYTES_MAX or type(digest) is not str:
        raise segment.damaged(path, 0, "the header lacks a field")
    if head.get("last_sequence") != sequence:
        raise segment.damaged(path, 0, f"the header says record {head.get('last_sequence')}")
    return size, digest
