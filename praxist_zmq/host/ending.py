"""Ending an attempt's processes: who they are now, TERM, and KILL until none is left.

Every signal goes to an identity that was just verified. What cannot be proved to belong to the
attempt is named, keeps the attempt held, and is never signalled. It decides no deadline.
Rules: the design's promises 6 and 7. Source: kill(2), pidfd_send_signal(2).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..protocol.process import ProcessIdentity
from . import signals, tree
from .identity import ProcStat, identity_from, is_alive, read_stat, stat_of

PASSES_MAX = 30


@dataclass(frozen=True, slots=True)
class Members:
    """Live processes of an attempt: proved or well-founded ours, and doubtful ones."""

    ours: tuple[ProcStat, ...] = ()
    doubtful: tuple[ProcStat, ...] = ()

    @property
    def pids(self) -> tuple[int, ...]:
        """All of them, for people."""
        return tuple(sorted(stat.pid for stat in (*self.ours, *self.doubtful)))


def under(shim: ProcessIdentity) -> Members | None:
    """The exact tree below a live shim; None when the shim is gone."""
    if stat_of(shim) is None:
        return None
    found = tree.living(tree.descendants(shim.pid))
    # The number could have changed hands during the walk; then the walk was about a stranger.
    return Members(tuple(found)) if stat_of(shim) is not None else None


@dataclass(frozen=True, slots=True)
class Fallen:
    """Orphans whose shim died: what a search by ancestry can still find of attempts."""

    to_launcher: tuple[ProcStat, ...] = ()
    """They descend from some attempt that this launcher started."""
    to_supervisor: tuple[ProcStat, ...] = ()
    """They descend from some attempt that an earlier launcher started."""
    only_one: bool = False
    """Those that fell to the launcher can be of one attempt only: every other shim lives."""
    other_leaders: frozenset[ProcessIdentity] = frozenset()
    """Evaluators of other attempts, on record as such."""
    other_directories: tuple[str, ...] = ()
    """Directories of other attempts."""


def without_shim(
    directory: str,
    shim: ProcessIdentity,
    leader: ProcessIdentity | None,
    hinted_group: int | None,
    fallen: Fallen,
    seen: Iterable[ProcessIdentity] = (),
) -> Members:
    """What may be left of an attempt whose shim is gone.

    `directory` is the attempt's. `leader` is proved (the ledger's word, or seen as the shim's
    child), and so are those `seen` below the shim while it lived; `hinted_group` is only an
    evidence file's word and makes nothing ours. An orphan that may as well be another attempt's
    is doubtful, and so is a process for which only its environment speaks, which anybody can copy.
    """
    group = None if leader is None else _group_still_meant(leader)
    hinted = hinted_group if leader is None else None
    ours, doubtful = tree.kin(directory, group, hinted, shim.start_ticks)
    proved = {stat.pid: stat for stat in ours}
    unsure = {stat.pid: stat for stat in doubtful}
    for known in (*seen, *([leader] if leader is not None else [])):
        stat = stat_of(known)
        if stat is not None and is_alive(known):
            proved[stat.pid] = stat
    for orphan in tree.living(fallen.to_launcher):
        if identity_from(orphan) in fallen.other_leaders:
            continue
        related = leader is not None and leader.pid in (orphan.group, orphan.session)
        elsewhere = any(tree.names_attempt(orphan.pid, d) for d in fallen.other_directories)
        # It fell to us from some attempt of ours; its environment tells from which.
        named = not elsewhere and tree.names_attempt(orphan.pid, directory)
        target = proved if related or named or (fallen.only_one and not elsewhere) else unsure
        target[orphan.pid] = orphan
    for stray in tree.living(fallen.to_supervisor):
        # Nothing that fell from this shim is older than the shim.
        could_be = stray.start_ticks >= shim.start_ticks
        if could_be and identity_from(stray) not in fallen.other_leaders:
            named = tree.names_attempt(stray.pid, directory)
            (proved if named else unsure)[stray.pid] = stray
    for root in list(proved.values()):
        for below in tree.living(tree.descendants(root.pid)):
            proved.setdefault(below.pid, below)
    for pid in proved:
        unsure.pop(pid, None)
    return Members(tuple(proved.values()), tuple(unsure.values()))


def _group_still_meant(leader: ProcessIdentity) -> int | None:
    """The leader's group, unless another process has its number.

    As long as one member of the group lives, the kernel does not give the number away; so a
    stranger with that number proves that no member is left.
    """
    holder = read_stat(leader.pid)
    if holder is not None and holder.start_ticks != leader.start_ticks:
        return None
    return leader.pid


@dataclass(slots=True)
class Ending:
    """The signals of one stop: remembers who was told, so that TERM is sent once to each."""

    told: set[tuple[int, int]] = field(default_factory=set)
    group_told: bool = False

    def terminate(self, members: Members, leader_fd: int | None) -> None:
        """TERM the group and every member once; wake those that are stopped."""
        if not self.group_told and leader_fd is not None:
            self.group_told = True
            signals.send_group(leader_fd, signals.TERM)
            signals.send_group(leader_fd, signals.CONT)
            leader_group = _leader_pid(leader_fd)
            if signals.group_signals_supported():
                for stat in members.ours:
                    if stat.group == leader_group:
                        self.told.add((stat.pid, stat.start_ticks))
        for stat in members.ours:
            key = (stat.pid, stat.start_ticks)
            if key not in self.told:
                self.told.add(key)
                signals.send(identity_from(stat), signals.TERM)
                signals.send(identity_from(stat), signals.CONT)

    def kill(self, look: Callable[[], Members], leader_fd: int | None) -> Members:
        """KILL everything, again as long as new ones appear; what was seen last.

        A process that forks between the look and the signal leaves a child that the next look
        finds. KILL also ends what is stopped.
        """
        killed: set[tuple[int, int]] = set()
        members = look()
        for _ in range(PASSES_MAX):
            if leader_fd is not None:
                signals.send_group(leader_fd, signals.KILL)
            fresh = [s for s in members.ours if (s.pid, s.start_ticks) not in killed]
            if not fresh:
                break
            for stat in fresh:
                killed.add((stat.pid, stat.start_ticks))
                signals.send(identity_from(stat), signals.KILL)
            members = look()
        return members


def _leader_pid(leader_fd: int) -> int:
    """The pid behind a pidfd; -1 once it was reaped."""
    with open(f"/proc/self/fdinfo/{leader_fd}", encoding="ascii") as source:
        for line in source:
            if line.startswith("Pid:"):
                return int(line.split()[1])
    return -1


def own_orphans(zygote: int, shims: set[int]) -> list[ProcStat]:
    """Processes that fell to us as a subreaper: our children but for the zygote and shims."""
    return [
        stat
        for stat in tree.descendants(os.getpid())
        if stat.parent == os.getpid() and stat.pid != zygote and stat.pid not in shims
    ]


def supervisors_orphans(supervisor: ProcessIdentity, known: set[int]) -> list[ProcStat]:
    """Processes of attempts that fell to the supervisor, a subreaper, when a launcher had died.

    They are its children outside its session: our own processes stay in it, while a shim leads a
    session of its own and nothing below a shim can come back (setsid(2)). `known` are children
    in other sessions whose meaning is known. Empty when the supervisor is not our parent.
    """
    stat = stat_of(supervisor)
    if stat is None or os.getppid() != stat.pid:
        return []
    below = [read_stat(pid) for pid in tree.children(stat.pid) if pid not in known]
    return [
        child
        for child in below
        if child is not None and child.parent == stat.pid and child.session != stat.session
    ]
