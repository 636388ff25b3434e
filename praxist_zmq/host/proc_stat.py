"""One line of /proc/PID/stat, and whether a process with any thread that runs is behind it.

Apart from `host.identity`, so that what must start fast reads it without the protocol's models.
Never signals. Source: proc(5). Standard library only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

STAT_BYTES_MAX = 4096


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
