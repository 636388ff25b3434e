"""The shutdown sentinel of a run: looked at by its scheduler, written by a stop.

Whoever puts the file `ORCHESTRATOR_SHUTDOWN` into the run keeps anything new from starting; it is
looked at in every turn of the broker's, and counts for as long as it is there. It never decides
what follows. Source: seed 000 "Timing And Close".
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from ..errors import PraxistError
from ..host.spawn import utc_now
from ..ledger.files import write_atomically

RETRY_MS = 1_000

Stamp = tuple[int, int]
"""Inode and time of the last change: another file under the same name has another one."""


def set_fence(path: Path) -> None:
    """Put the sentinel there, durably, unless it is there. Raises `unsafe_path`, `path_unusable`,
    `no_space`."""
    if path.is_symlink() or not path.is_file():
        write_atomically(path, utc_now().encode() + b"\n", 0o644)


def exists(path: str) -> bool:
    """Whether anything has that name, a link to nothing included. In every turn, so without the
    exception that `lstat` costs where there is nothing, as there is as a rule."""
    return _access(path) if _access_is_allowed() else os.path.lexists(path)


def _access(path: str) -> bool:
    return os.access(path, os.F_OK, effective_ids=True, follow_symlinks=False)


@cache
def _access_is_allowed() -> bool:
    """A sandbox that does not know faccessat2(2) has it say no to everything."""
    return _access("/")


class RunFence:
    """The sentinel as the broker sees it."""

    def __init__(self, path: Path, *, reopened: bool) -> None:
        """`reopened`: this start opens what a stop closed, so the file of now has had its day;
        the supervisor removes it once that is on disk."""
        self._path = path
        self._name = str(path)
        self._passed = self._stamp() if reopened else None
        self._retry_at_ms = 0
        self.failure = ""
        """Why it could not be put there."""

    def is_set(self) -> bool:
        """Whether the sentinel is there now."""
        if not exists(self._name):
            return False
        stamp = self._stamp()
        return stamp is not None and stamp != self._passed

    def ensure(self, mono_ms: int) -> bool:
        """Put it there once a stop is on disk; False, with `failure`, when that cannot be done.
        Tried again each second.

        A failure stops nothing: the ledger says the same, and a broker obeys its ledger.
        """
        self._passed = None
        if self.is_set():
            return True
        if mono_ms >= self._retry_at_ms:
            self._retry_at_ms = mono_ms + RETRY_MS
            try:
                set_fence(self._path)
            except PraxistError as error:
                self.failure = f"the shutdown sentinel cannot be written: {error}"
        return self.is_set()

    def _stamp(self) -> Stamp | None:
        try:
            status = os.lstat(self._path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns
