"""What can be seen from here of an attempt's processes: the one gatherer of facts for `core.proof`.

A foreign pid namespace is looked into from the first one alone, where /proc shows every process of
the host. The lock is an flock on the open log of the attempt: launcher, shim, evaluator and all
that keep its output hold it, whatever their namespace, and the kernel frees it with the last of
them. It never signals and decides nothing. Sources: pid_namespaces(7), proc(5), flock(2).
"""

from __future__ import annotations

import fcntl
import os
from functools import cached_property
from pathlib import Path
from typing import Literal

from ..protocol.process import ProcessIdentity, Sighting
from .identity import boot_id, has_live_task, is_alive, own_namespace, read_stat
from .lineage import FIRST_PID_NAMESPACE

STATUS_BYTES_MAX = 16_384


class Namespaces:
    """The pid namespaces of this host that hold processes, as one look at /proc shows them."""

    def __init__(self, own: int | None = None) -> None:
        """`own` is the inode of the namespace that we are in."""
        self._own = own_namespace() if own is None else own

    def state(self, process: ProcessIdentity) -> Literal["own", "dead", "other"]:
        """Of the namespace in which `process`, of this boot, was."""
        if process.pid_namespace == self._own:
            return "own"
        if self._own != FIRST_PID_NAMESPACE:
            return "other"
        inits, undecided = self._inits
        first = inits.get(process.pid_namespace)
        if first is None:
            return "other" if undecided else "dead"
        # A namespace lives as long as its first process. One that is younger than a process of the
        # namespace means that the number names another namespace now.
        return "dead" if first > process.start_ticks else "other"

    @cached_property
    def _inits(self) -> tuple[dict[int, int], bool]:
        """Namespace below ours -> start of its first process; whether any could not be told."""
        found: dict[int, int] = {}
        undecided = False
        for name in os.listdir("/proc"):
            numbers = _nested_numbers(name) if name.isdigit() else ()
            if len(numbers) < 2:
                continue  # it has ended, or is in our own namespace
            try:
                inode = os.stat(f"/proc/{name}/ns/pid").st_ino
                same_clock = _clock_of(name) == _clock_of("self")
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError:
                undecided = True
                continue
            stat = read_stat(int(name))
            if stat is None or (stat.state == "Z" and not has_live_task(stat.pid)):
                continue  # a first process is a zombie only after all others are gone
            is_first = numbers[-1] == 1 and same_clock
            start = stat.start_ticks if is_first else 0
            found[inode] = max(found.get(inode, 0), start)
        return found, undecided


def names(process: ProcessIdentity, pid: int) -> bool:
    """Whether a process of another pid namespace is the one that has this number in ours."""
    numbers, stat = _nested_numbers(str(pid)), read_stat(pid)
    try:
        inode = os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return False
    return (
        stat is not None
        and numbers[-1:] == (process.pid,)
        and (process.boot_id, process.pid_namespace) == (boot_id(), inode)
        and process.start_ticks == stat.start_ticks
    )


def _nested_numbers(pid: str) -> tuple[int, ...]:
    """The numbers that a process has, from our namespace down to its own; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as source:
            lines = source.read(STATUS_BYTES_MAX).splitlines()
    except OSError:
        return ()
    for line in lines:
        if line.startswith(b"NSpid:"):
            return tuple(int(part) for part in line.split()[1:])
    return ()


def _clock_of(pid: str) -> int | None:
    """Which time namespace a process's start is told in; None on a kernel without them."""
    try:
        return os.stat(f"/proc/{pid}/ns/time").st_ino
    except FileNotFoundError:
        return None


def lock_of(log: Path) -> Literal["held", "free", "unknown"]:
    """Of an attempt's log. A shared lock for an instant disturbs nobody who looks."""
    try:
        fd = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return "unknown"
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    except OSError:
        return "unknown"
    finally:
        os.close(fd)
    return "free"


def sighting(
    shim: ProcessIdentity,
    log: Path,
    *,
    namespaces: Namespaces | None = None,
    found: int | None = None,
    empty_looks: int = 0,
    presumed_dead: bool = False,
) -> Sighting:
    """The facts about an attempt with this shim and log. `found` and `empty_looks` are the
    caller's: how one searches depends on who has adopted the orphans."""
    same_boot = shim.boot_id == boot_id()
    namespace = (namespaces or Namespaces()).state(shim) if same_boot else "other"
    return Sighting(
        same_boot=same_boot,
        namespace=namespace,
        shim_alive=namespace == "own" and is_alive(shim),
        lock=lock_of(log) if same_boot else "unknown",
        found=found,
        empty_looks=empty_looks,
        presumed_dead=presumed_dead,
    )
