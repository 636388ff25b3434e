"""The lock that makes one process the owner of something, for as long as it lives.

flock(2) on a file that we never delete or replace: the kernel frees it at death, however that
comes. Others may delete it, so whoever holds it looks now and then whether it is there. What is
written in the file names the holder for people and is never trusted.
Never waits; never signals anybody.

Sources: flock(2); the descriptor is close-on-exec, because a child that kept it would hold the
lock after its parent's death.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import PraxistError
from . import files
from .named_file import NamedFile

HOLDER_BYTES_MAX = 4096
"""Of a lock's file: the holder, told for people."""
_REPLACED_TRIES = 10


class OwnerLock:
    """A held lock. Made by `acquire`, ended by `release` or by the process's death."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.holder_error: str | None = None
        """Why the holder could not be written (a full disk must not keep us from starting)."""
        self._descriptor: int | None = descriptor
        self.named = NamedFile.opened(path, descriptor)
        """Look now and then whether it is there: without its name a lock keeps nobody out."""

    @classmethod
    def acquire(cls, path: Path, holder: Mapping[str, object]) -> OwnerLock:
        """Take the lock of `path` at once, and write `holder` there for people.

        Raises PraxistError `already_running` with what the present holder wrote, `unsafe_path`
        or `path_unusable`.
        """
        for _ in range(_REPLACED_TRIES):
            try:
                descriptor = files.open_regular(path, os.O_RDWR | os.O_CREAT)
            except FileNotFoundError:
                raise PraxistError("path_unusable", f"{path.parent} does not exist") from None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                named = _read_holder(descriptor)
                os.close(descriptor)
                raise PraxistError("already_running", f"{path} is held by {named}") from None
            except OSError as error:
                os.close(descriptor)
                raise PraxistError("path_unusable", f"{path}: {error.strerror}") from error
            lock = cls(path, descriptor)
            if lock.named.is_there():
                lock._write_holder(holder)
                return lock
            lock.release()
        raise PraxistError("unsafe_path", f"{path} is being replaced while it is locked")

    def _write_holder(self, holder: Mapping[str, object]) -> None:
        text = json.dumps(holder, sort_keys=True).encode() + b"\n"
        if len(text) > HOLDER_BYTES_MAX:
            raise PraxistError("internal", f"the holder of {self.path} is described too long")
        descriptor = self.descriptor
        try:
            os.pwrite(descriptor, text, 0)
            os.ftruncate(descriptor, len(text))
        except OSError as error:
            self.holder_error = f"{self.path}: {error.strerror}"

    @property
    def descriptor(self) -> int:
        """The locked descriptor. Raises PraxistError `internal` after `release`."""
        if self._descriptor is None:
            raise PraxistError("internal", f"{self.path} was released")
        return self._descriptor

    def release(self) -> None:
        """Give the lock up; the file stays. Safe to call twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _read_holder(descriptor: int) -> str:
    text = os.pread(descriptor, HOLDER_BYTES_MAX, 0).decode("utf-8", errors="replace")
    line = "".join(c for c in text if c.isprintable()).strip()
    return line[:500] or "another process"
