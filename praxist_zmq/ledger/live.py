"""The segment that takes records: writes them over zeros that were written and synced before.

A sync of bytes that lie within the file, on blocks that were written before, moves no metadata of
the file system; so it is quicker than one that makes the file longer, and needs no space. Room is
made by `grow`, between commits, from a small share of what is free; a write that passes the end
takes a little more room along. Zeros are written, not just reserved: the first write to reserved
blocks would change metadata again.
Never syncs twice after a failure and never judges one: the owner poisons itself.

Sources: PostgreSQL, which fills the files of its write-ahead log with zeros; measured in bin/bench.
"""

from __future__ import annotations

import os

from . import files

ROOM_BYTES = 1024 * 1024
"""Room that `grow` makes."""
_STEP_BYTES = 256 * 1024
"""Room that a write makes which passes the end."""
_PAGE = 4096
_SHARE = 8
"""Of the free space, room takes at most one part in so many."""


class LiveSegment:
    """A descriptor, the end of the good records, and the room after it."""

    def __init__(self, descriptor: int, used: int, segment_bytes: int) -> None:
        """`used` is the length of the file. No room is made beyond `segment_bytes`."""
        self.used = used
        """Where the synced records end, in bytes."""
        self._descriptor = descriptor
        self._end = used
        self._limit = -(-segment_bytes // _PAGE) * _PAGE
        self._written = 0

    @property
    def room(self) -> int:
        """Bytes that can be written without making the file longer."""
        return self._end - self.used

    def write(self, block: bytes, *, stretch: bool) -> None:
        """Write `block` after the records; with more room behind it if there is none, `stretch` and
        the disk has it. Raises OSError; `roll_back` then."""
        if stretch and self.room < len(block):
            length = self._target(self.used + len(block), _STEP_BYTES)
            if length > self.used + len(block):
                try:
                    zeros = bytes(length - self.used - len(block))
                    files.write_all_at(self._descriptor, block + zeros, self.used)
                except OSError as error:
                    if error.errno not in files.NO_SPACE:
                        raise
                    self.roll_back(self.used)
                else:
                    self._end = length
                    self._written = len(block)
                    return
        files.write_all_at(self._descriptor, block, self.used)
        self._written = len(block)

    def sync(self) -> None:
        """Make what was written durable and part of the records. Raises OSError."""
        os.fdatasync(self._descriptor)
        self.used += self._written
        self._end = max(self._end, self.used)
        self._written = 0

    def roll_back(self, used: int) -> None:
        """Forget all after `used`: zeros there, durable, in the room there was. Raises OSError.

        Synced at once, because what a later crash leaves must be zero or the later write's.
        """
        self._written = 0
        try:
            files.write_all_at(self._descriptor, bytes(self._end - used), used)
        except OSError as error:
            # A file system that never overwrites has no space even for this.
            if error.errno not in files.NO_SPACE:
                raise
            self._end = used
        os.ftruncate(self._descriptor, self._end)
        os.fsync(self._descriptor)
        self.used = used

    def grow(self) -> None:
        """Make room again when half of it is gone. Without space there is less, or none.

        Raises OSError for anything but lack of space.
        """
        if self.room >= ROOM_BYTES // 2:
            return
        length = self._target(self.used, ROOM_BYTES)
        if length <= self._end:
            return
        try:
            files.write_all_at(self._descriptor, bytes(length - self._end), self._end)
        except OSError as error:
            if error.errno not in files.NO_SPACE:
                raise
            length = self._end
            os.ftruncate(self._descriptor, length)
        os.fsync(self._descriptor)
        self._end = length

    def _target(self, used: int, most: int) -> int:
        """How long the file may be with room after `used`."""
        space = os.fstatvfs(self._descriptor)
        room = min(most, space.f_bavail * space.f_frsize // _SHARE)
        return min(used + room, self._limit) // _PAGE * _PAGE

    def trim(self) -> None:
        """Give the room back; for a segment that takes no more records. Raises OSError."""
        if self.room:
            os.ftruncate(self._descriptor, self.used)
            self._end = self.used

    def close(self) -> None:
        """Let the file go. Raises OSError."""
        os.close(self._descriptor)
