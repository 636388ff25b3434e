"""Reads one segment, record by record, and says how it ends: clean, torn, damaged or newer.

Torn is what a crash can leave of an append that was never acknowledged: an incomplete or
wrong record with nothing after it, or zeros. Everything else that is wrong is damage to records
that were acknowledged. When in doubt it is damage, because to refuse loses nothing.
Memory is bounded by one record's limit, whatever the file holds. Never changes a file.

Sources: the reading rules of etcd's write-ahead log (a tear only at the very end).
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from ..errors import PraxistError
from ..protocol.limits import LEDGER_RECORD_BYTES_MAX
from . import files, frame

NAME = re.compile(r"^([0-9]{8})\.segment$")
_PIECE = 65_536
_ZEROS = bytes(1 << 20)
_RESUME = re.compile(rb"[\n\0]" + frame.HEAD.pattern)


@dataclass(frozen=True, slots=True)
class Fault:
    """The first thing wrong in a segment."""

    kind: Literal["torn", "damaged"]
    offset: int
    """Of the first bad record, in bytes."""
    reason: str


def path_of(directory: Path, number: int) -> Path:
    """Where segment `number` is."""
    return directory / f"{number:08d}.segment"


def numbers(directory: Path) -> list[int]:
    """The segments in `directory`, ascending. Raises `ledger_damaged` when one is missing."""
    found = sorted(int(m[1]) for name in os.listdir(directory) if (m := NAME.match(name)))
    for before, after in pairwise(found):
        if after != before + 1:
            raise PraxistError("ledger_damaged", f"{path_of(directory, before + 1)} is missing")
    return found


def damaged(path: Path, offset: int, reason: str) -> PraxistError:
    """The refusal that names file and offset."""
    return PraxistError("ledger_damaged", f"{path}, offset {offset}: {reason}")


class SegmentReader:
    """One pass over a segment. `header` is there at once; the rest as `records` goes on.

    Opening raises PraxistError `ledger_newer`, `ledger_damaged` (no good header) or
    `unsafe_path`. A context manager.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            descriptor = files.open_regular(path, os.O_RDONLY)
        except FileNotFoundError:
            raise PraxistError("ledger_damaged", f"{path} is missing") from None
        self._file = os.fdopen(descriptor, "rb", buffering=1 << 18)
        try:
            with files.usable(path):
                line = self._file.readline(frame.HEADER_LINE_BYTES_MAX)
            self.header, self.crc = frame.decode_header(line, str(path))
            number = NAME.match(path.name)
            if number is not None and int(number[1]) != self.header.segment:
                raise damaged(path, 0, f"the header says segment {self.header.segment}")
        except BaseException:
            self._file.close()
            raise
        self.good_offset = len(line)
        """Where the records that are good end."""
        self.last_sequence = self.header.first_sequence - 1
        """Of the last good record so far; one less than the first when there is none."""
        self.fault: Fault | None = None
        """Set when `records` ended before the end of the file."""

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Every good record from the first on, up to the end or `fault`.

        Raises PraxistError `path_unusable` when the disk fails to read.
        """
        crc, sequence = self.crc, self.last_sequence
        crc32, readline = zlib.crc32, self._file.readline
        with files.usable(self.path):
            while line := readline(_PIECE):
                if line[-1] != 10:
                    line = self._rest_of(line)
                # frame.check, spelled out: this loop is the time a restart takes
                parts = line.split(b" ", 3)
                crc = crc32(line[9:-1], crc)
                sequence += 1
                if (
                    len(parts) != 4
                    or line[-1] != 10
                    or not line.startswith(b"%08x %d %d " % (crc, len(parts[3]) - 1, sequence))
                ):
                    self.fault = self._classify(sequence)
                    return
                self.crc = crc
                self.last_sequence = sequence
                self.good_offset += len(line)
                yield sequence, parts[3][:-1]

    def _rest_of(self, piece: bytes) -> bytes:
        """The whole of a long line; only `piece` when its head does not allow that length."""
        head = frame.HEAD.match(piece)
        if head is None or int(head[2]) > LEDGER_RECORD_BYTES_MAX:
            return piece
        missing = head.end() + int(head[2]) + 1 - len(piece)
        remaining = os.fstat(self._file.fileno()).st_size - self.good_offset - len(piece)
        if not 0 < missing <= remaining:
            return piece
        return piece + self._file.read(missing)

    def _classify(self, expected: int) -> Fault:
        offset = self.good_offset
        head = frame.HEAD.match(self._pread(frame.HEAD_BYTES_MAX, offset))
        if head is not None and int(head[2]) > LEDGER_RECORD_BYTES_MAX:
            return Fault("damaged", offset, f"a record that claims {int(head[2])} bytes")
        if head is not None and int(head[3]) > expected and self._complete(offset):
            return Fault("damaged", offset, f"record {int(head[3])} where {expected} belongs")
        if head is not None and self._complete(offset + head.end() + int(head[2]) + 1):
            return Fault("damaged", offset, f"record {expected} is wrong and others follow")
        content_end = self._content_end(offset)
        if content_end - offset > LEDGER_RECORD_BYTES_MAX + frame.HEAD_BYTES_MAX + 1:
            return Fault("damaged", offset, "more bytes follow than any record may have")
        after = self._whole_after(offset, content_end)
        if after is not None:
            return Fault(
                "damaged", offset, f"record {expected} is wrong and others follow at {after}"
            )
        return Fault("torn", offset, f"record {expected} is incomplete and nothing follows")

    def _pread(self, size: int, offset: int) -> bytes:
        return os.pread(self._file.fileno(), size, offset)

    def _complete(self, offset: int) -> bool:
        return complete_at(self._file.fileno(), offset)

    def _content_end(self, offset: int) -> int:
        """Where the zeros that end the file begin; at least `offset`."""
        end = os.fstat(self._file.fileno()).st_size
        while end > offset:
            start = max(offset, end - len(_ZEROS))
            window = self._pread(end - start, start)
            if window != _ZEROS:
                kept = window.rstrip(b"\0")
                if kept:
                    return start + len(kept)
            end = start
        return offset

    def _whole_after(self, offset: int, end: int) -> int | None:
        """The offset of the first whole record that starts after `offset` and before `end`."""
        position = offset
        while position < end:
            window = self._pread(_PIECE, position)
            for match in _RESUME.finditer(window):
                if self._complete(position + match.start() + 1):
                    return position + match.start() + 1
            # windows overlap, so that a head on their border is seen
            position += max(len(window) - frame.HEAD_BYTES_MAX, frame.HEAD_BYTES_MAX)
        return None


def count_whole(descriptor: int, first_sequence: int) -> int:
    """How many records from `first_sequence` on still have their form; for reports on damage."""
    count = position = 0
    while window := os.pread(descriptor, _PIECE, position):
        last = len(window) < _PIECE
        limit = len(window) if last else len(window) - frame.HEAD_BYTES_MAX
        for match in _RESUME.finditer(window):
            if match.start() < limit and int(match[3]) >= first_sequence:
                count += complete_at(descriptor, position + match.start() + 1)
        if last:
            break
        position += limit
    return count


def complete_at(descriptor: int, offset: int) -> bool:
    """Whether the bytes at `offset` have the form of a whole record."""
    head = frame.HEAD.match(os.pread(descriptor, frame.HEAD_BYTES_MAX, offset))
    if head is None or int(head[2]) > LEDGER_RECORD_BYTES_MAX:
        return False
    return os.pread(descriptor, 1, offset + head.end() + int(head[2])) == b"\n"
