"""Judges what stands where a segment's good records end: room, a torn commit, or damage.

A commit's bytes reach the disk in any order, over zeros that were there before. So after a crash
each byte of the last commit is as it was written or zero, and no byte of a record is zero by
itself. Hence:

* zeros up to the end of the file are room;
* a torn record lacks a byte: where one is zero, or the file ends. A wrong record that lacks none is
  damage, also when it is the last;
* whole records may follow a torn one, when their index says that they are of the same commit. A
  record of a later commit proves that all before it had been synced: then it is damage.

When in doubt it is damage, because to refuse loses nothing. What can't be told from a torn commit
is zeros over the end of the last commit, or over whole commits at the end (see docs/adr/0001).
Format 1 had no index and no room: there a wrong record with no whole one after it is torn.
Never reads more at once than a bounded piece. Never changes a file.

Sources: the write-ahead logs of etcd (a tear has a part that is zero) and PostgreSQL (room that was
written beforehand).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..protocol.limits import LEDGER_RECORD_BYTES_MAX
from . import frame

_PIECE = 65_536
_ZEROS = bytes(1 << 20)


@dataclass(frozen=True, slots=True)
class Fault:
    """The first thing wrong in a segment."""

    kind: Literal["torn", "damaged"]
    offset: int
    """Of the first bad record, in bytes."""
    reason: str


@dataclass(frozen=True, slots=True)
class End:
    """Where the good records end."""

    offset: int
    expected: int
    """The sequence that the next record would have."""
    index: int
    """Of the last good record in its commit; -1 when there is none, or in format 1."""


def judge(descriptor: int, version: int, end: End) -> Fault | None:
    """What is wrong after the good records of a segment of format `version`; None when it is room.

    Raises OSError.
    """
    content_end = _content_end(descriptor, end.offset)
    if version == 1:
        return _judge_1(descriptor, end, content_end)
    if content_end == end.offset:
        return None
    return _Tail(descriptor, end, content_end).judge()


class _Tail:
    """What follows the good records up to the zeros that end the file."""

    def __init__(self, descriptor: int, end: End, content_end: int) -> None:
        self._descriptor = descriptor
        self._end = end
        self._content_end = content_end

    def judge(self) -> Fault:
        offset, expected = self._end.offset, self._end.expected
        reason = self._wrong()
        if reason is None and self._content_end - offset > frame.COMMIT_BYTES_MAX:
            reason = "more bytes follow than any commit may have"
        if reason is None and (later := self._later()) is not None:
            reason = f"record {expected} is wrong and others follow at {later}"
        if reason is not None:
            return Fault("damaged", offset, reason)
        return Fault("torn", offset, f"record {expected} is incomplete and no later commit follows")

    def _wrong(self) -> str | None:
        """Why the first bad record is none that a crash left; None when it may be."""
        offset, expected = self._end.offset, self._end.expected
        window = os.pread(self._descriptor, frame.HEAD_BYTES_MAX, offset)
        head = frame.head_of(2).match(window)
        if head is None:
            if _starts_record(window.split(b"\0", 1)[0], expected):
                return None
            return f"record {expected} is wrong and lacks no byte"
        length, sequence, index = (int(head[group]) for group in (2, 3, 4))
        if length > LEDGER_RECORD_BYTES_MAX:
            return f"a record that claims {length} bytes"
        if sequence != expected or index not in (0, self._end.index + 1):
            return f"record {sequence} (index {index}) where {expected} belongs"
        if not self._lacks_a_byte(offset, head.end() + length + 1):
            return f"record {expected} is wrong and lacks no byte"
        return None

    def _lacks_a_byte(self, offset: int, size: int) -> bool:
        while size > 0:
            piece = os.pread(self._descriptor, min(size, _PIECE), offset)
            if not piece or b"\0" in piece:
                return True
            offset += len(piece)
            size -= len(piece)
        return False

    def _later(self) -> int | None:
        """The offset of the first record that is not of the torn commit."""
        expected = self._end.expected
        commit_firsts = {expected, expected - 1 - self._end.index}
        head = frame.head_of(2)
        for match, at in _heads(self._descriptor, head, self._end.offset, self._content_end):
            # After a line feed it is a head; after a zero it could be the middle of a payload.
            if match[0][0] == 0 and not complete_at(self._descriptor, head, at):
                continue
            sequence, index = int(match[3]), int(match[4])
            if sequence <= expected or sequence - index not in commit_firsts:
                return at
        return None


def _starts_record(start: bytes, expected: int) -> bool:
    """Whether `start` is the beginning, cut within its head, of the record `expected`."""
    parts = start.split(b" ")
    if len(parts) > 4:
        return False
    crc, length, sequence, index = parts + [b""] * (4 - len(parts))
    if not re.fullmatch(rb"[0-9a-f]{8}" if len(parts) > 1 else rb"[0-9a-f]{0,8}", crc):
        return False
    if not re.fullmatch(
        rb"[1-9][0-9]{0,18}" if len(parts) > 2 else rb"([1-9][0-9]{0,18})?", length
    ):
        return False
    wanted = b"%d" % expected
    if sequence != wanted if len(parts) > 3 else not wanted.startswith(sequence):
        return False
    return re.fullmatch(rb"(0|[1-9][0-9]{0,6})?", index) is not None


def _judge_1(descriptor: int, end: End, content_end: int) -> Fault:
    offset, expected = end.offset, end.expected
    pattern = frame.head_of(1)
    head = pattern.match(os.pread(descriptor, frame.HEAD_BYTES_MAX, offset))
    reason = None
    if head is not None and int(head[2]) > LEDGER_RECORD_BYTES_MAX:
        reason = f"a record that claims {int(head[2])} bytes"
    elif head is not None and int(head[3]) > expected and complete_at(descriptor, pattern, offset):
        reason = f"record {int(head[3])} where {expected} belongs"
    elif head is not None and complete_at(
        descriptor, pattern, offset + head.end() + int(head[2]) + 1
    ):
        reason = f"record {expected} is wrong and others follow"
    elif content_end - offset > LEDGER_RECORD_BYTES_MAX + frame.HEAD_BYTES_MAX + 1:
        reason = "more bytes follow than any record may have"
    else:
        for _, at in _heads(descriptor, pattern, offset, content_end):
            if complete_at(descriptor, pattern, at):
                reason = f"record {expected} is wrong and others follow at {at}"
                break
    if reason is not None:
        return Fault("damaged", offset, reason)
    return Fault("torn", offset, f"record {expected} is incomplete and nothing follows")


def _content_end(descriptor: int, offset: int) -> int:
    """Where the zeros that end the file begin; at least `offset`."""
    end = os.fstat(descriptor).st_size
    while end > offset:
        start = max(offset, end - len(_ZEROS))
        window = os.pread(descriptor, end - start, start)
        if window != _ZEROS:
            kept = window.rstrip(b"\0")
            if kept:
                return start + len(kept)
        end = start
    return offset


def _heads(
    descriptor: int, head: re.Pattern[bytes], offset: int, end: int
) -> Iterator[tuple[re.Match[bytes], int]]:
    """What has the form of a head between `offset` and `end`, and where it is.

    The match begins with the line feed or zero before it, where a record can begin.
    """
    pattern = re.compile(rb"[\n\0]" + head.pattern)
    overlap = frame.HEAD_BYTES_MAX + 1
    position = offset
    while position < end:
        window = os.pread(descriptor, _PIECE, position)
        last = len(window) < _PIECE
        limit = len(window) if last else len(window) - overlap
        for match in pattern.finditer(window):
            if match.start() < limit and position + match.start() < end:
                yield match, position + match.start() + 1
        if last:
            return
        position += limit


def count_whole(descriptor: int, head: re.Pattern[bytes], first_sequence: int) -> int:
    """How many records from `first_sequence` on still have their form; for reports on damage."""
    found = _heads(descriptor, head, 0, os.fstat(descriptor).st_size)
    return sum(
        int(match[3]) >= first_sequence and complete_at(descriptor, head, at) for match, at in found
    )


def complete_at(descriptor: int, pattern: re.Pattern[bytes], offset: int) -> bool:
    """Whether the bytes at `offset` have the form of a whole record."""
    head = pattern.match(os.pread(descriptor, frame.HEAD_BYTES_MAX, offset))
    if head is None or int(head[2]) > LEDGER_RECORD_BYTES_MAX:
        return False
    return os.pread(descriptor, 1, offset + head.end() + int(head[2])) == b"\n"
