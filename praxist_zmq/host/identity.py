"""Who a process is, read from /proc; whether two readings mean the same process.

It never signals. An identity that cannot be read matches nothing: "cannot read" is not
"different", and it is not "the same" either. Source: proc(5), pidfd_open(2).
"""

from __future__ import annotations

import os
import pwd
from functools import cache

from ..protocol.process import ProcessIdentity
from .proc_stat import STAT_BYTES_MAX, ProcStat, has_live_task, parse_stat, read_stat

__all__ = [
    "STAT_BYTES_MAX",
    "ProcStat",
    "boot_id",
    "has_live_task",
    "identity_from",
    "identity_of",
    "is_alive",
    "open_pidfd",
    "own_namespace",
    "own_pid",
    "own_user",
    "parse_stat",
    "read_stat",
    "stat_of",
    "user_of",
    "visible",
]


@cache
def boot_id() -> str:
    """The kernel's name for this boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
        return source.read().strip()


@cache
def own_namespace() -> int:
    """The inode of our process-id namespace: pids we read belong to it."""
    return os.stat("/proc/self/ns/pid").st_ino


def identity_of(pid: int) -> ProcessIdentity | None:
    """The identity of a process of our own namespace; None when there is none."""
    stat = read_stat(pid)
    return None if stat is None else identity_from(stat)


def identity_from(stat: ProcStat) -> ProcessIdentity:
    """The identity of a process whose stat was just read from our own /proc."""
    return ProcessIdentity(
        boot_id=boot_id(),
        pid_namespace=own_namespace(),
        pid=stat.pid,
        start_ticks=stat.start_ticks,
    )


def user_of(pid: int) -> int | None:
    """The real user id of a process; None when there is none, or /proc hides it."""
    try:
        with open(f"/proc/{pid}/status", "rb") as source:
            lines = source.read(16_384).splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    for line in lines:
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return None


def visible(identity: ProcessIdentity) -> bool:
    """Whether /proc here can speak for that identity: same boot, same namespace."""
    return identity.boot_id == boot_id() and identity.pid_namespace == own_namespace()


def stat_of(identity: ProcessIdentity) -> ProcStat | None:
    """The stat of exactly that process; None when it is gone or another has its number."""
    if not visible(identity):
        return None
    stat = read_stat(identity.pid)
    return stat if stat is not None and stat.start_ticks == identity.start_ticks else None


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether exactly that process is there and any of its threads runs."""
    stat = stat_of(identity)
    if stat is None:
        return False
    return stat.state not in ("Z", "X", "x") or has_live_task(stat.pid)


def open_pidfd(identity: ProcessIdentity) -> int | None:
    """A descriptor that stands for exactly that process, or None when it is gone.

    The descriptor is opened first and the identity read after that: the number cannot change
    hands between the two without the reading showing it.
    """
    if not visible(identity):
        return None
    try:
        fd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    if stat_of(identity) is None:
        os.close(fd)
        return None
    return fd


def own_pid() -> int:
    """This process."""
    return os.getpid()


def own_user() -> str:
    """The name of the user this process runs as, or its number."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
