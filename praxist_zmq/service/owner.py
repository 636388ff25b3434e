"""Who serves a run: found through the owner lock, never through what a file claims alone.

The lock's file names its holder for people. A process is believed to be the holder only when it
has exactly that identity and /proc shows the lock among its descriptors; a forged or stale file
names nobody.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ..errors import PraxistError
from ..host.identity import open_pidfd
from ..host.paths import RunPaths
from ..ledger.files import open_regular
from ..ledger.lock import HOLDER_BYTES_MAX
from ..protocol.process import ProcessIdentity

STOP_PROGRAM = "stop"


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
        return None
    try:
        if _is_free(descriptor):
            return None
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
    folder = Path(f"/proc/{pid}/fd")
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        try:
            status = os.stat(folder / name)
            if (status.st_dev, status.st_ino) != (device, inode):
                continue
            if "FLOCK" in Path(f"/proc/{pid}/fdinfo/{name}").read_text(encoding="ascii"):
                return True
        except OSError:
            continue  # closed meanwhile
    return False
