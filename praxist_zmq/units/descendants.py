"""Finds the processes of units, and ends them: TERM, then KILL, until none is left.

A unit's processes are its child, what descends from that, and what carries its mark in the
environment it was started with: that finds those whose parent has died. Not to be seen are
orphans that were started with a cleared environment, or by another user; the scheduler's own stop
finds those. The attempt's process group is never signalled: the evaluator is in it.

A process is signalled through a pidfd that was opened before its identity was compared, so a
number that came to be used anew is never hit. Source: proc(5), pidfd_open(2).
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator

from .unit import MARK_VARIABLE

RESCAN_S = 0.05
Found = dict[int, int]
"""Process to start time in ticks since boot: together they name one process of this boot."""


def now_s() -> float:
    """Seconds since boot, suspension included: for durations."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def find(mark: str, roots: Iterable[int] = ()) -> Found:
    """Living processes that carry `mark` or one made from it, and the descendants of `roots`.

    `roots` are children of ours that were not waited for, so their numbers are still theirs. A
    mark is followed by a slash and more in the processes of a run inside a unit.
    """
    wanted = f"\0{MARK_VARIABLE}={mark}".encode()
    parents: dict[int, int] = {}
    ticks: Found = {}
    chosen = set(roots)
    for pid in _pids():
        seen = _stat(pid)
        if seen is None:
            continue
        parents[pid], ticks[pid] = seen
        if _carries(pid, wanted):
            chosen.add(pid)
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    waiting = list(chosen)
    while waiting:
        below = [pid for pid in children.get(waiting.pop(), ()) if pid not in chosen]
        chosen.update(below)
        waiting += below
    return {pid: ticks[pid] for pid in chosen if pid in ticks}


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _stat(pid: int) -> tuple[int, int] | None:
    """Parent and start time of a living process; None when it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return None  # it ended meanwhile
    return None if words[0] in (b"Z", b"X") else (int(words[1]), int(words[19]))


def _carries(pid: int, wanted: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = b"\0" + file.read()
    except OSError:
        return False  # gone, or another user's
    at = environment.find(wanted)
    # `x.1` is not the mark of unit `x.12`; a whole run's mark ends with its dot.
    return at >= 0 and (
        wanted.endswith(b".") or environment[at + len(wanted) : at + len(wanted) + 1] in b"\0/"
    )


def tell(processes: Found, number: int) -> list[int]:
    """Send a signal to those that are still the same; their pidfds, for the caller to close."""
    held = []
    for pid, ticks in processes.items():
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        seen = _stat(pid)
        if seen is None or seen[1] != ticks:
            os.close(descriptor)
            continue
        held.append(descriptor)
        try:
            signal.pidfd_send_signal(descriptor, number)
        except (ProcessLookupError, PermissionError):
            continue  # gone, or it has become another user's: it stays in what is found
    return held


def drain(look: Callable[[], Found], grace_s: float) -> tuple[int, ...]:
    """End all that `look` finds, and what those start meanwhile; the ones that would not end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = now_s() + grace_s
        told: set[tuple[int, int]] = set()
        while found := look():
            left_s = until - now_s()
            if left_s <= 0:
                break
            fresh = {pid: ticks for pid, ticks in found.items() if (pid, ticks) not in told}
            told.update(fresh.items())
            held = tell(fresh, number)
            _wait_for_end(held, min(left_s, RESCAN_S))
        if not found:
            return ()
    return tuple(sorted(look()))


def _wait_for_end(held: list[int], timeout_s: float) -> None:
    """Until one of them has ended, but not long: others may be forked meanwhile."""
    waiter = select.poll()
    for descriptor in held:
        waiter.register(descriptor, select.POLLIN)
    waiter.poll(max(1, int(timeout_s * 1000)))
    for descriptor in held:
        os.close(descriptor)
