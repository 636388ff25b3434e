"""Who the processes on a device are: each with its ancestors, as /proc names them.

The broker finds our attempts among them by comparing (pid, start ticks) with the shims that it
knows. This module only reads, and only about the pids that it is given: it never signals a process
that a driver named, and never scans all of /proc.

The driver names processes by their numbers in the first pid namespace. Seen from another one the
same number may be a stranger, so from there nobody has a lineage. An ancestor that is younger than
its child is no ancestor: its number was used again between two readings, and the lineage ends.
Source: proc(5), pid_namespaces(7); public faults of GPU monitors in containers.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..protocol.reports import ProcessStamp
from .identity import STAT_BYTES_MAX, ProcStat, own_namespace, parse_stat

FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""The inode of the first pid namespace, fixed in the kernel."""
GENERATIONS_MAX = 64
DISPLAY_CHARACTERS_MAX = 64


@dataclass(frozen=True, slots=True)
class Lineage:
    """One process: itself and its ancestors without pid 1; `name` and `user` for display only."""

    stamps: tuple[ProcessStamp, ...] = ()
    name: str | None = None
    user: str | None = None

    @property
    def fields(self) -> dict[str, object]:
        """As fields of a `DeviceProcess`."""
        return {"lineage": self.stamps, "name": self.name, "user": self.user}


UNKNOWN = Lineage()


class LineageReader:
    """Reads lineages from `proc`; `namespace` is the inode of the pid namespace we are in."""

    def __init__(self, proc: Path = Path("/proc"), namespace: int | None = None) -> None:
        self._proc = os.fspath(proc)
        inode = own_namespace() if namespace is None else namespace
        self._sees_all = inode == FIRST_PID_NAMESPACE

    def look(self, pids: Iterable[int]) -> dict[int, Lineage]:
        """The lineage of each pid now. Empty for one that is not there, and for all of them when
        this process is not in the first pid namespace."""
        wanted = set(pids)
        if not self._sees_all:
            return dict.fromkeys(wanted, UNKNOWN)
        seen: dict[int, _Seen | None] = {}
        return {pid: self._lineage(pid, seen) for pid in wanted}

    def _lineage(self, pid: int, seen: dict[int, _Seen | None]) -> Lineage:
        first = self._read(pid, seen)
        if first is None:
            return UNKNOWN
        stamps: list[ProcessStamp] = []
        now: _Seen | None = first
        while now is not None and now.stat.pid != 1 and len(stamps) < GENERATIONS_MAX:
            stamps.append(now.stamp)
            above = self._read(now.stat.parent, seen)
            if above is not None and above.stat.start_ticks > now.stat.start_ticks:
                break
            now = above
        return Lineage(tuple(stamps), first.name, self._user(pid))

    def _read(self, pid: int, seen: dict[int, _Seen | None]) -> _Seen | None:
        """What /proc says about a pid; read once in a look."""
        if pid not in seen:
            seen[pid] = _seen(self._raw(pid)) if pid > 0 else None
        return seen[pid]

    def _raw(self, pid: int) -> bytes:
        try:
            descriptor = os.open(f"{self._proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""  # gone, or hidden from us: both are unknown
        try:
            return os.read(descriptor, STAT_BYTES_MAX)
        except OSError:
            return b""  # it ended in between
        finally:
            os.close(descriptor)

    def _user(self, pid: int) -> str | None:
        try:
            uid = os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return None
        return _user_name(uid)


@dataclass(frozen=True, slots=True)
class _Seen:
    stat: ProcStat
    stamp: ProcessStamp
    name: str


def _seen(raw: bytes) -> _Seen | None:
    stat = parse_stat(raw)
    if stat is None or stat.pid < 1:
        return None
    comm = raw[raw.find(b"(") + 1 : raw.rfind(b")")]
    stamp = ProcessStamp(pid=stat.pid, start_ticks=stat.start_ticks)
    return _Seen(stat, stamp, _for_display(comm.decode("utf-8", "replace")))


@lru_cache(maxsize=256)
def _user_name(uid: int) -> str:
    try:
        return _for_display(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)


def _for_display(text: str) -> str:
    """Text that a stranger chose, without what could move a terminal's cursor."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown[:DISPLAY_CHARACTERS_MAX]
