"""Space set aside, so that a full disk still takes the records that free things.

A file of reserved blocks beside the ledger. When the disk is full it is deleted; when there is
room again it is made anew. While it is missing the owner should take no new work.
Lack of space is no failure here: then the ballast is just missing. On a small disk it takes a
quarter of what is free.

Sources: posix_fallocate(3), statvfs(3).
"""

from __future__ import annotations

import os
from pathlib import Path

from . import files

_SHARE = 4
_BYTES_MIN = 65_536


class Ballast:
    """The ballast of one directory. `size` is in bytes, at most; 0 reserves nothing."""

    def __init__(self, directory: Path, size: int) -> None:
        self.path = directory / "ballast"
        self.size = size
        self.missing = True
        """Whether it was given up, or could not be made yet."""
        self._given_up = 0

    def drop(self) -> bool:
        """Give it up. Says whether that freed anything, so that an append may be tried again."""
        self.missing = True
        with files.usable(self.path):
            try:
                given_up = self.path.stat().st_blocks * 512
                self.path.unlink()
            except FileNotFoundError:
                return False
        self._given_up = max(self._given_up, given_up)
        return True

    def fill(self) -> None:
        """Make it unless it is there; leave it missing while there is too little room.

        Raises PraxistError `unsafe_path` when something else stands in its place, or
        `path_unusable`.
        """
        if not self.missing:
            return
        files.refuse_irregular(self.path)
        with files.usable(self.path):
            there = self.path.stat().st_blocks * 512 if self.path.exists() else 0
            room = os.statvfs(self.path.parent)
            free = room.f_bavail * room.f_frsize + there
            # What giving it up set free is not room: it must be there a second time.
            if free < 2 * self._given_up:
                return
            size = min(self.size, free // _SHARE)
            if size >= min(self.size, _BYTES_MIN):
                self.missing = size > 0 and not self._reserve(size)
                self._given_up = self._given_up if self.missing else 0

    def _reserve(self, size: int) -> bool:
        descriptor = files.open_regular(self.path, os.O_RDWR | os.O_CREAT)
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            self.path.unlink(missing_ok=True)
            if error.errno not in files.NO_SPACE:
                raise
            return False
        finally:
            os.close(descriptor)
        return True
