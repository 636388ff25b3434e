"""What a run started and what still lives of it, found without a scheduler that could tell.

Proved: a shim that the ledger names, or that its evidence names while it holds that very file open
for writing; everything below a live shim; an evaluator that the ledger names and everything below
it; and a process whose environment names the attempt's directory and which the kernel has in that
evaluator's group or session. A folder, or an environment alone, which anybody can copy, finds
candidates and proves nothing: they are told and left alone. It never signals.
Rules: the design's promises 6 and 7. Source: proc(5).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..protocol.process import ProcessIdentity, Sighting
from . import tree
from .attempt_files import AttemptFiles
from .identity import ProcStat, identity_from, is_alive, read_stat, stat_of, user_of, visible
from .paths import RunPaths
from .protected import ProtectedFolder
from .remains import Namespaces, sighting
from .shim import EVIDENCE

ZYGOTE = b"praxist_zmq.host.zygote"


@dataclass(frozen=True, slots=True)
class KnownAttempt:
    """An attempt that may have processes, in the words of the ledger."""

    attempt: str
    shim: ProcessIdentity | None = None
    leader: ProcessIdentity | None = None
    presumed_dead: bool = False


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A process that may be the run's and is not proved to be."""

    pid: int
    name: str
    reason: str
    names_attempt: bool
    """Whether more than a folder speaks for it: then nobody can say that the run is gone."""


def protected_by_peers(run: RunPaths, known: Iterable[int]) -> list[LeftAlone]:
    """Processes that peers started or registered themselves and that may live, but for those that
    are `known`. Raises what `ProtectedFolder.read` raises."""
    passed = set(known)
    found: list[LeftAlone] = []
    for entry in ProtectedFolder(run).read().entries:
        pid = entry.manifest.process.pid
        if entry.manifest.attempt is not None or entry.state == "stale" or pid in passed:
            continue
        what = "draining" if entry.state == "draining" else "protected"
        proof = ", identity not proved" if entry.state == "doubtful" else ""
        reason = f"{what}, of peer {entry.manifest.peer or 'unknown'}{proof}"
        found.append(LeftAlone(pid, tree.name_of(pid), reason, True))
    return found


@dataclass(slots=True)
class ProvedProcesses:
    """What one look at /proc found."""

    leaders: dict[int, ProcStat] = field(default_factory=dict)
    below: dict[int, ProcStat] = field(default_factory=dict)
    shims: dict[int, ProcStat] = field(default_factory=dict)

    @property
    def members(self) -> dict[int, ProcStat]:
        """The experiments' processes, without our shims."""
        return {**self.below, **self.leaders}


class StopSearch:
    """Looks for the processes of the attempts of one run."""

    def __init__(self, run: RunPaths, attempts: Iterable[KnownAttempt]) -> None:
        self._run = run
        self._files = AttemptFiles(run)
        self._attempts = list(attempts)
        self._seen: dict[str, set[ProcessIdentity]] = {}
        """What was below a live shim, by attempt: proved for as long as it lives."""

    @property
    def out_of_sight(self) -> list[tuple[KnownAttempt, Sighting]]:
        """Those whose processes have numbers of another boot or namespace, and what can be seen."""
        namespaces = Namespaces()
        return [
            (
                known,
                sighting(known.shim, self._run.attempt_log(known.attempt), namespaces=namespaces,
                         presumed_dead=known.presumed_dead),
            )
            for known in self._attempts
            if known.shim is not None and not visible(known.shim)
        ]  # fmt: skip

    def look(self) -> ProvedProcesses:
        """Everything that is proved to be the run's and lives."""
        found = ProvedProcesses()
        orphaned: list[tuple[KnownAttempt, ProcessIdentity]] = []
        for known in self._attempts:
            shim = known.shim or self._shim_by_evidence(known.attempt)
            seen = self._seen.setdefault(known.attempt, set())
            stat = stat_of(shim) if shim is not None and is_alive(shim) else None
            if shim is not None and stat is not None:
                found.shims[stat.pid] = stat
                below = tree.living(tree.descendants(stat.pid))
                if stat_of(shim) is not None:  # else its number changed hands during the walk
                    seen.update(identity_from(each) for each in below)
            elif known.leader is not None and visible(known.leader):
                orphaned.append((known, known.leader))
            self._take(found, known, seen)
        if orphaned:
            self._take_groups(found, orphaned)
        for root in list(found.members.values()):
            for each in tree.living(tree.descendants(root.pid)):
                found.below.setdefault(each.pid, each)
        for pid in [*found.leaders, *found.shims]:
            found.below.pop(pid, None)
        return found

    def _take(
        self, found: ProvedProcesses, known: KnownAttempt, seen: set[ProcessIdentity]
    ) -> None:
        for each in (*seen, *([known.leader] if known.leader is not None else [])):
            stat = stat_of(each)
            if stat is None or not is_alive(each):
                seen.discard(each)
            elif each == known.leader:
                found.leaders[stat.pid] = stat
            else:
                found.below[stat.pid] = stat

    def _take_groups(
        self, found: ProvedProcesses, orphaned: list[tuple[KnownAttempt, ProcessIdentity]]
    ) -> None:
        """Members of an evaluator's group or session, when their environment says the same."""
        meant = {leader.pid: (known, leader) for known, leader in orphaned if _still_meant(leader)}
        for stat in tree.living(tree.processes()):
            for number in {stat.group, stat.session} & set(meant):
                known, leader = meant[number]
                directory = str(self._run.attempt(known.attempt))
                if (
                    stat.start_ticks >= leader.start_ticks
                    and tree.owner(stat.pid) == os.getuid()
                    and tree.names_attempt(stat.pid, directory)
                ):
                    found.below[stat.pid] = stat
                    self._seen[known.attempt].add(identity_from(stat))

    def _shim_by_evidence(self, attempt: str) -> ProcessIdentity | None:
        """The shim that the evidence names, if /proc bears it out; a file alone proves nothing."""
        shim = self._files.claimed_shim(attempt)
        if shim is None or not is_alive(shim) or user_of(shim.pid) != os.getuid():
            return None
        return shim if writes_evidence(shim, self._run.attempt(attempt)) else None

    def candidates(self, proved: Iterable[int]) -> list[LeftAlone]:
        """Processes that seem to be the run's and are not proved to be, but for us."""
        known = {*proved, *_ourselves()}
        found: list[LeftAlone] = []
        for stat in tree.living(tree.processes()):
            if stat.pid in known or tree.owner(stat.pid) != os.getuid():
                continue
            reason = self._reason(stat.pid)
            if reason is not None:
                found.append(LeftAlone(stat.pid, tree.name_of(stat.pid), *reason))
        return found

    def _reason(self, pid: int) -> tuple[str, bool] | None:
        attempt = tree.attempt_named(pid, str(self._run.attempts))
        if attempt is not None:
            return f"only its environment names {attempt}, identity not proved", True
        try:
            folder = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            return None
        if folder == str(self._run.run_dir) or folder.startswith(f"{self._run.run_dir}/"):
            return "run dir matches by folder only, identity not proved", False
        return None


def writes_evidence(shim: ProcessIdentity, directory: Path) -> bool:
    """Whether a process is the shim that writes the evidence in an attempt's directory."""
    proved = ZYGOTE in _arguments(shim.pid) and _writes(shim.pid, str(directory / EVIDENCE))
    return proved and is_alive(shim)


def _still_meant(leader: ProcessIdentity) -> bool:
    """Whether the number of a leader can only mean its own group: no stranger has it now."""
    holder = read_stat(leader.pid)
    return holder is None or holder.start_ticks == leader.start_ticks


def _ourselves() -> set[int]:
    """This process and those above it: the operator's shell stands in the run's folder too."""
    found: set[int] = set()
    stat = read_stat(os.getpid())
    while stat is not None and stat.pid not in found:
        found.add(stat.pid)
        stat = read_stat(stat.parent) if stat.parent > 0 else None
    return found


def _arguments(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as source:
            return source.read(65_536)
    except OSError:
        return b""  # gone, or hidden from us: proves nothing


def _writes(pid: int, path: str) -> bool:
    """Whether `pid` has the file at `path` open for reading and writing."""
    try:
        wanted = os.lstat(path)
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for number in numbers:
        try:
            status = os.stat(f"/proc/{pid}/fd/{number}")
            if (status.st_dev, status.st_ino) != (wanted.st_dev, wanted.st_ino):
                continue
            with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as source:
                flags = next(line for line in source if line.startswith("flags:"))
        except (OSError, StopIteration):
            continue  # closed since the listing
        if int(flags.split()[1], 8) & os.O_ACCMODE == os.O_RDWR:
            return True
    return False
