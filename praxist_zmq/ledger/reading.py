"""Reads a whole ledger the way a start does: newest good snapshot, then every record after it.

The one reader for starts, for offline checks and for repairs, so that they always agree on what is
good. Changes nothing on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import files, frame, segment, tail
from .snapshot import Snapshots


@dataclass(slots=True)
class Known:
    """A segment, from its name and header."""

    number: int
    path: Path
    header: frame.Header
    size: int
    """Bytes of header and records; of the whole file, room included, until they were read."""

    @property
    def first_sequence(self) -> int:
        """Of the first record in it, present or to come."""
        return self.header.first_sequence


class LedgerReader:
    """One pass over the ledger in `directory`.

    Making one reads headers and the snapshot; it raises PraxistError `ledger_damaged`,
    `ledger_newer`, `unsafe_path` or `path_unusable`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.segments: list[Known] = []
        with files.usable(directory):
            for number in segment.numbers(directory):
                path = segment.path_of(directory, number)
                with segment.SegmentReader(path) as reader:
                    self.segments.append(Known(number, path, reader.header, path.lstat().st_size))
            self.snapshot, self.damaged_snapshots = Snapshots(directory).find()
        self.covered = self.snapshot.sequence if self.snapshot else 0
        """Last sequence that the snapshot stands for."""
        self.sequence = self.covered
        """Of the last good record, as `records` goes on."""
        self.crc = 0
        """Checksum of the last good record of the last segment read."""
        self.size = 0
        """Bytes of that segment up to there."""
        self.tear: tail.Fault | None = None
        """An append that a crash cut short, at the very end."""

    def records(self) -> Iterator[tuple[int, bytes]]:
        """The records after the snapshot, once, in order.

        Raises PraxistError `ledger_damaged` with file and offset, or `path_unusable`, after all
        records before the fault.
        """
        before: segment.SegmentReader | None = None
        final = len(self.segments) - 1
        for index, known in enumerate(self.segments):
            if index < final and self.segments[index + 1].first_sequence <= self.covered + 1:
                continue  # the snapshot stands for all of it
            with segment.SegmentReader(known.path) as reader:
                if before is not None:
                    _check_continues(reader, before)
                for sequence, payload in reader.records():
                    if sequence > self.covered:
                        self.sequence = sequence
                        yield sequence, payload
                fault = reader.fault
                self.crc, self.size = reader.crc, reader.good_offset
                known.size = self.size
                if fault is not None and (index < final or fault.kind == "damaged"):
                    raise segment.damaged(known.path, fault.offset, fault.reason)
                self.tear = fault
            before = reader
        if before is not None and before.last_sequence < self.covered:
            raise segment.damaged(
                before.path,
                before.good_offset,
                f"it ends with record {before.last_sequence}, the snapshot with {self.covered}",
            )


def _check_continues(reader: segment.SegmentReader, before: segment.SegmentReader) -> None:
    if reader.header.first_sequence != before.last_sequence + 1:
        raise segment.damaged(
            before.path,
            before.good_offset,
            f"it ends with record {before.last_sequence}, "
            f"the next segment starts with {reader.header.first_sequence}",
        )
    if reader.header.previous_crc != before.crc:
        raise segment.damaged(reader.path, 0, "it does not continue the segment before")
