"""Which processes belong to an attempt, read from /proc.

Under a live shim the answer is exact: the shim is a child subreaper, so every descendant, also one
that called setsid twice, cleared its environment and closed everything, is found by walking
children from it. Without the shim there is only evidence: group, session, environment, and
orphans that fell to us. It never signals. Source: proc(5), prctl(2).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from .identity import ProcStat, has_live_task, read_stat, user_of

NAME_CHARACTERS_MAX = 32
ENVIRON_BYTES_MAX = 4 * 1024 * 1024
DIRECTORY_VARIABLE = b"PRAXIST_EXPERIMENT_ATTEMPT_DIR="


def processes() -> Iterator[ProcStat]:
    """Every process that /proc shows. Costly: not for the steady state."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read_stat(int(name))
            if stat is not None:
                yield stat


def children(pid: int) -> list[int]:
    """The children of `pid`, of all its threads."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return found
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as source:
                found.extend(int(part) for part in source.read().split())
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{task}"):
                # A kernel without CONFIG_PROC_CHILDREN: ask every process for its parent.
                return [stat.pid for stat in processes() if stat.parent == pid]
        except ProcessLookupError:
            continue
    return found


def descendants(pid: int) -> list[ProcStat]:
    """All processes below `pid`, zombies too, parents before children.

    A number may change hands during the walk. So a child counts only while it names its parent,
    and a parent's list only when the parent is still the same process after the list was read.
    """
    root = read_stat(pid)
    if root is None:
        return []
    found: dict[int, ProcStat] = {}
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        below = [read_stat(child) for child in children(parent.pid)]
        now = read_stat(parent.pid)
        if now is None or now.start_ticks != parent.start_ticks:
            continue
        for stat in below:
            if stat is not None and stat.parent == parent.pid and stat.pid not in found:
                found[stat.pid] = stat
                waiting.append(stat)
    return list(found.values())


def living(stats: Iterable[ProcStat]) -> list[ProcStat]:
    """Those with a thread that still runs; a zombie with no live task is dead."""
    return [stat for stat in stats if stat.state not in ("Z", "X", "x") or has_live_task(stat.pid)]


def names_attempt(pid: int, directory: str) -> bool:
    """Whether the initial environment of `pid` names the attempt's directory.

    The directory and not the name: every run on the host has a `j-1.1`. A hint: anyone can forge
    it.
    """
    return DIRECTORY_VARIABLE + os.fsencode(directory) in _environment(pid)


def attempt_named(pid: int, attempts: str) -> str | None:
    """The attempt below the directory `attempts` that the environment of `pid` names: a hint."""
    below = DIRECTORY_VARIABLE + os.fsencode(attempts) + b"/"
    for variable in _environment(pid):
        if variable.startswith(below) and b"/" not in variable[len(below) :]:
            return variable[len(below) :].decode("utf-8", "replace")[:64]
    return None


def _environment(pid: int) -> list[bytes]:
    """The initial environment of `pid`; empty when it is gone or hidden."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as source:
            return source.read(ENVIRON_BYTES_MAX).split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def name_of(pid: int) -> str:
    """Its program by its own word, for people; `?` when it is gone or hidden."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as source:
            name = source.read(256).strip()
    except OSError:
        return "?"
    return "".join(c if c.isprintable() else "?" for c in name)[:NAME_CHARACTERS_MAX]


def owner(pid: int) -> int | None:
    """The user that `pid` runs as; None when it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except (FileNotFoundError, ProcessLookupError):
        return None


def of_user(uid: int, since_ticks: int) -> list[ProcStat]:
    """Live processes of a user that are not older than that: all that a tree of theirs can be."""
    return [
        stat
        for stat in living(processes())
        if stat.start_ticks >= since_ticks and user_of(stat.pid) == uid
    ]


def kin(directory: str, group: int | None, since_ticks: int) -> list[tuple[ProcStat, bool, bool]]:
    """Live processes that may belong to an attempt whose shim is gone, but for us.

    None is older than the shim. With each, what speaks for it: whether it is our user's and its
    environment names the attempt's directory, which anybody can copy; and whether it is in the
    evaluator's group or session, whose number may have changed hands. One alone proves nothing.
    """
    found: list[tuple[ProcStat, bool, bool]] = []
    own_user = os.getuid()
    for stat in living(processes()):
        if stat.start_ticks < since_ticks or stat.pid == os.getpid():
            continue
        named = names_attempt(stat.pid, directory) and owner(stat.pid) == own_user
        grouped = group is not None and group in (stat.group, stat.session)
        if named or grouped:
            found.append((stat, named, grouped))
    return found
