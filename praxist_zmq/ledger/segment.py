"""Reads one segment, record by record, and says how it ends: clean, torn, damaged or newer.

Clean is the end of the file, or zeros up to it: room that no record was written to yet. What else
ends the records is for `tail` to judge.
Memory is bounded by one record's limit, whatever the file holds. Never changes a file.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from ..errors import PraxistError
from ..protocol.limits import LEDGER_RECORD_BYTES_MAX
from . import files, frame, tail

NAME = re.compile(r"^([0-9]{8})\.segment$")
_PIECE = 65_536


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
        self.fault: tail.Fault | None = None
        """Set when `records` ended before anything but room."""
        self._index = -1
        self._head = frame.head_of(self.header.format_version)

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Every good record from the first on, up to the end or `fault`.

        Raises PraxistError `path_unusable` when the disk fails to read.
        """
        crc, sequence, index = self.crc, self.last_sequence, self._index
        indexed = self.header.format_version > 1
        spaces = 4 if indexed else 3
        crc32, readline = zlib.crc32, self._file.readline
        with files.usable(self.path):
            while line := readline(_PIECE):
                if line[-1] != 10:
                    line = self._rest_of(line)
                # decoding spelled out: this loop is the time a restart takes
                parts = line.split(b" ", spaces)
                crc = crc32(line[9:-1], crc)
                sequence += 1
                if len(parts) == spaces + 1 and line[-1] == 10:
                    payload = parts[-1][:-1]
                    if not indexed:
                        start = b"%08x %d %d " % (crc, len(payload), sequence)
                    else:
                        index = 0 if parts[3] == b"0" else index + 1
                        start = b"%08x %d %d %d " % (crc, len(payload), sequence, index)
                    if line.startswith(start):
                        self.crc, self.last_sequence, self._index = crc, sequence, index
                        self.good_offset += len(line)
                        yield sequence, payload
                        continue
                self.fault = tail.judge(
                    self._file.fileno(),
                    self.header.format_version,
                    tail.End(self.good_offset, sequence, self._index),
                )
                return

    def _rest_of(self, piece: bytes) -> bytes:
        """The whole of a long line; only `piece` when its head does not allow that length."""
        head = self._head.match(piece)
        if head is None or int(head[2]) > LEDGER_RECORD_BYTES_MAX:
            return piece
        missing = head.end() + int(head[2]) + 1 - len(piece)
        remaining = os.fstat(self._file.fileno()).st_size - self.good_offset - len(piece)
        if not 0 < missing <= remaining:
            return piece
        return piece + self._file.read(missing)
