"""Whether a name still stands for the file that its owner made.

A cleaner, a restored backup or a hand can take a file away from a process that has it open: it goes
on and notices nothing, while another one finds another file, or none, under the same name. So
whoever owns a lock, a ledger or a socket looks at the name, and stops when it is not theirs any
more. One stat(2); changes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A name, and the file that it stood for."""

    path: str
    device: int
    inode: int

    @classmethod
    def opened(cls, path: Path, descriptor: int) -> NamedFile:
        """The file behind `descriptor`, which is to be found at `path`."""
        found = os.fstat(descriptor)
        return cls(os.fspath(path), found.st_dev, found.st_ino)

    @classmethod
    def found(cls, path: Path) -> NamedFile | None:
        """The file at `path` now, a link being a file of its own; None when there is none."""
        try:
            there = os.lstat(path)
        except OSError:
            return None
        return cls(os.fspath(path), there.st_dev, there.st_ino)

    def is_there(self) -> bool:
        """Whether the name stands for that very file. What cannot be looked at is not there."""
        try:
            there = os.lstat(self.path)
        except OSError:
            return False
        return there.st_dev == self.device and there.st_ino == self.inode
