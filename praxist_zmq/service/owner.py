"""Who serves a run: found through the owner lock, never through what a file claims alone.

The lock's file names its holder for people. A process is believed to be the holder only when it
has exactly that identity and /proc shows the lock among its descriptors; a forged or stale file
names nobody.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ..errors import PraxistError
from ..host.identity import open_pidfd
from ..host.paths import RunPaths, RunSockets
from ..ledger.files import open_regular, read_limited
from ..ledger.lock import HOLDER_BYTES_MAX
from ..protocol.process import ProcessIdentity

STOP_PROGRAM = "stop"
_NAMING_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Owner:
    """The living holder of a run's owner lock."""

    identity: ProcessIdentity
    pidfd: int
    """Stands for exactly that process; the caller closes it."""
    is_stop: bool
    """By its own word a `stop` that does without a scheduler, and so holds the run's locks."""


def find_owner(run: RunPaths) -> Owner | None:
    """The supervisor that serves `run`, or the `stop` that ends it; None when the lock is free.

    Raises `not_yours` when somebody holds the lock whom we cannot prove to be the one the file
    names (another user, container or namespace), `unsafe_path` or `path_unusable`.
    """
    try:
        descriptor = open_regular(run.owner_lock, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return find_without_lock(run)
    try:
        if _is_free(descriptor):
            return find_without_lock(run)
        claimed = os.pread(descriptor, HOLDER_BYTES_MAX, 0)
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    identity, program = _holder(claimed)
    pidfd = open_pidfd(identity) if identity is not None else None
    if identity is None or pidfd is None:
        raise PraxistError("not_yours", f"{run.owner_lock} is held by a process we cannot see")
    if not _holds(identity.pid, status.st_dev, status.st_ino):
        os.close(pidfd)
        raise PraxistError(
            "not_yours", f"process {identity.pid} is named in {run.owner_lock} but does not hold it"
        )
    return Owner(identity, pidfd, is_stop=program == STOP_PROGRAM)


def find_without_lock(run: RunPaths) -> Owner | None:
    """The supervisor that serves `run` with a lock whose file was removed; None as a rule."""
    for path in (run.endpoint, RunSockets.of(run).announcement):
        try:
            named = json.loads(read_limited(path, _NAMING_BYTES_MAX))["supervisor"]
            identity = ProcessIdentity(**named)
        except (OSError, PraxistError, ValueError, RecursionError, KeyError, TypeError):
            continue
        pidfd = open_pidfd(identity)
        if pidfd is None:
            continue
        if _holds_removed(identity.pid, run.owner_lock):
            return Owner(identity, pidfd, is_stop=False)
        os.close(pidfd)
    return None


def _is_free(descriptor: int) -> bool:
    """Whether nobody holds it. A shared lock for an instant disturbs no other reader."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _holder(claimed: bytes) -> tuple[ProcessIdentity | None, object]:
    try:
        holder = json.loads(claimed)
        identity = ProcessIdentity(**{key: holder[key] for key in ProcessIdentity.model_fields})
        return identity, holder.get("program")
    except (ValueError, KeyError, TypeError, ValidationError):
        return None, None


def holds_lock(pid: int, path: Path) -> bool:
    """Whether process `pid` holds an flock on the file that `path` names now."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return _holds(pid, status.st_dev, status.st_ino)


def _holds(pid: int, device: int, inode: int) -> bool:
    """Whether /proc/PID/fdinfo shows an flock on an open descriptor of that very file."""

    def is_it(descriptor: Path) -> bool:
        status = os.stat(descriptor)
        return (status.st_dev, status.st_ino) == (device, inode)

    return _holds_one(pid, is_it)


def _holds_removed(pid: int, path: Path) -> bool:
    """Whether process `pid` holds an flock on a file that was at `path` and was removed."""
    return _holds_one(pid, lambda descriptor: os.readlink(descriptor) == f"{path} (deleted)")


def _holds_one(pid: int, is_it: Callable[[Path], bool]) -> bool:
    folder = Path(f"/proc/{pid}/fd")
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        try:
            if not is_it(folder / name):
                continue
            if "FLOCK" in Path(f"/proc/{pid}/fdinfo/{name}").read_text(encoding="ascii"):
                return True
        except OSError:
            continue  # closed meanwhile
    return False
