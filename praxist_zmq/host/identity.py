"""Who a process is, read from /proc; whether two readings mean the same process.

It never signals. An identity that cannot be read matches nothing: "cannot read" is not
"different", and it is not "the same" either. Source: proc(5), pidfd_open(2).
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from functools import cache

from ..protocol.process import ProcessIdentity

STAT_BYTES_MAX = 4096


@cache
def boot_id() -> str:
    """The kernel's name for this boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
        return source.read().strip()


@cache
def own_namespace() -> int:
    """The inode of our process-id namespace: pids we read belong to it."""
    return os.stat("/proc/self/ns/pid").st_ino


@dataclass(frozen=True, slots=True)
class ProcStat:
    """The part of /proc/PID/stat that process control needs."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int


def parse_stat(raw: bytes) -> ProcStat | None:
    """One line of /proc/PID/stat, or None when it is not one.

    The command in parentheses may hold anything, so fields are counted from the last `)`.
    """
    head, _, _ = raw.partition(b" (")
    tail = raw[raw.rfind(b")") + 2 :].split()
    if not head.isdigit() or len(tail) < 20:
        return None
    return ProcStat(
        pid=int(head),
        state=tail[0].decode("ascii", "replace"),
        parent=int(tail[1]),
        group=int(tail[2]),
        session=int(tail[3]),
        start_ticks=int(tail[19]),
    )


def read_stat(pid: int) -> ProcStat | None:
    """What /proc says about `pid` now; None when there is no such process."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        return parse_stat(os.read(fd, STAT_BYTES_MAX))
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)


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


def has_live_task(pid: int) -> bool:
    """Whether any thread of `pid` still runs.

    State Z of the main thread alone is not death: another thread may go on working.
    """
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return False
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/stat", "rb") as source:
                raw = source.read(STAT_BYTES_MAX)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if raw[raw.rfind(b")") + 2 :][:1] not in (b"Z", b"X", b"x"):
            return True
    return False


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
