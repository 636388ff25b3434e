"""Keeps directories of ours below /tmp from programs that remove old files there.

systemd-tmpfiles leaves a directory alone, and all below it, while somebody holds a BSD lock on it;
others (tmpwatch, tmpreaper) go by times alone, so these are renewed long before any of them is
old. Removes nothing and decides nothing; what cannot be locked or touched is tried again the next
time. Sources: tmpfiles.d(5) "Age", flock(2), utimensat(2).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

RENEW_MS = 3 * 3600 * 1000
"""Cleaners count in days; the shortest setting that is in use is one."""
_DEPTH_MAX = 2


class FreshPlace:
    """Directories that somebody of ours uses. `close` or the process's death ends it."""

    def __init__(self, shared: Sequence[Path], own: Path, now_ms: int) -> None:
        """`shared`: parents that others use too; of them only the directory itself is kept fresh.
        `own`: the directory that is kept with what is in it."""
        self._shared = tuple(shared)
        self._own = own
        self._held: dict[Path, int] = {}
        self._due_ms = now_ms
        self.keep(now_ms)

    @property
    def due_ms(self) -> int:
        """When `keep` has something to do again, CLOCK_BOOTTIME milliseconds."""
        return self._due_ms

    def keep(self, now_ms: int) -> None:
        """Lock what is not locked, and renew the times, when that is due."""
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + RENEW_MS
        for directory in (*self._shared, self._own):
            self._lock(directory)
            _renew(directory)
        for path in _below(self._own, _DEPTH_MAX):
            _renew(path)

    def close(self) -> None:
        """Leave them to whoever comes."""
        while self._held:
            os.close(self._held.popitem()[1])

    def _lock(self, directory: Path) -> None:
        """A shared lock on the directory that is there now."""
        held = self._held.get(directory)
        try:
            there = os.stat(directory, follow_symlinks=False)
            if held is not None:
                ours = os.fstat(held)
                if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino):
                    return
                os.close(self._held.pop(directory))
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(directory, flags)
        except OSError:
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return
        self._held[directory] = descriptor


def _renew(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(path, follow_symlinks=False)


def _below(directory: Path, depth: int) -> Iterator[Path]:
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        yield Path(entry.path)
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path), depth - 1)
