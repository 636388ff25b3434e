"""What is left of attempts that no run answers for: for the claim registry, which frees their rows.

A run that is down, or that disowned an attempt, will not tell the attempt's end. Then the registry
looks itself, as `core.proof` has it: while the shim lives it remembers what stands below it, and
once the shim is gone it searches until nothing of the tree is found. What cannot be seen from here
stays held until the run is back. It never signals.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..core.claim_state import Unserved, Watch
from ..core.proof import LOOKS, Verdict, judge
from ..host import ending, tree
from ..host.attempt_files import AttemptFiles
from ..host.identity import identity_from, is_alive, visible
from ..host.paths import RunPaths
from ..host.process_watch import ProcessWatch
from ..host.remains import Namespaces, sighting
from ..protocol.process import ProcessIdentity

LOOK_APART_MS = 200
REMEMBER_APART_MS = 5_000
"""Between two looks below a living shim: what was forked since the last one, and has left its
group, environment and output, is not found any more once the shim is destroyed."""
PAUSE_MAX_MS = 10_000
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Tree:
    """One attempt whose run does not answer for it."""

    whose: Unserved
    shim_gone: bool
    seen: set[ProcessIdentity] = field(default_factory=set)
    """Found below its shim while that lived: proved the attempt's, whatever they become."""
    leader: ProcessIdentity | None = None
    member: ProcessIdentity | None = None
    """One process, proved its own, that lives without the shim: until it ends no look is needed."""
    empty_looks: int = 0
    due_ms: int = 0
    pause_ms: int = LOOK_APART_MS
    told: Verdict | None = None


class OrphanTrees:
    """All of them. `opened` and `closing` tell the poller's owner about descriptors."""

    def __init__(self, opened: Callable[[int], None], closing: Callable[[int], None]) -> None:
        self._trees: dict[Watch, _Tree] = {}
        self._namespaces_at_ms: int | None = None
        self._members: ProcessWatch[tuple[Watch, ProcessIdentity]] = ProcessWatch(opened, closing)

    def follow(self, unserved: Mapping[Watch, Unserved], now_ms: int) -> None:
        """These are all that no run answers for now."""
        for watch in self._trees.keys() - unserved.keys():
            del self._trees[watch]
        for watch in unserved.keys() - self._trees.keys():
            gone = not is_alive(watch.identity)
            found = self._trees[watch] = _Tree(unserved[watch], gone, due_ms=now_ms)
            self._remember(watch, found, now_ms)

    def shims_gone(self, watches: Iterable[Watch]) -> None:
        """The kernel told that these shims ended."""
        for watch in watches:
            if watch in self._trees:
                self._trees[watch].shim_gone, self._trees[watch].due_ms = True, 0

    def look(self, readable: Iterable[object], now_ms: int) -> tuple[Watch, ...]:
        """Those whose tree is proved gone; each again until it is followed no more."""
        for watch, member in self._members.ended(readable):
            found = self._trees.get(watch)
            if found is not None and found.member == member:
                found.member, found.due_ms = None, now_ms
        gone = []
        namespaces = Namespaces()
        for watch, found in self._trees.items():
            if found.member is not None or found.due_ms > now_ms:
                continue
            if not found.shim_gone:
                self._remember(watch, found, now_ms)
                continue
            verdict = look_once(watch, found, namespaces)
            if verdict != found.told and verdict.evidence != "not_searched":
                found.told = verdict
                _log.info("%s of %s: %s", watch.attempt, found.whose.run_dir, verdict.words)
            if verdict.state == "gone":
                gone.append(watch)
            again = found.empty_looks == 1
            found.pause_ms = LOOK_APART_MS if again else min(found.pause_ms * 2, PAUSE_MAX_MS)
            found.due_ms = now_ms + found.pause_ms
        self._watch_members()
        return tuple(gone)

    def _remember(self, watch: Watch, found: _Tree, now_ms: int) -> None:
        """Note what stands below the shim, if that lives."""
        _look_below(found, watch.identity)
        if not found.shim_gone:
            found.due_ms = now_ms + REMEMBER_APART_MS

    def _watch_members(self) -> None:
        wanted = {(w, t.member): t.member for w, t in self._trees.items() if t.member is not None}
        try:
            over = self._members.update(wanted)
        except OSError as error:
            _log.warning("what is left of attempts is looked at by the clock: %s", error)
            over = list(wanted)
        for watch, _ in over:
            self._trees[watch].member = None

    def ended_elsewhere(self, unjudged: Collection[Watch], now_ms: int) -> list[Watch]:
        """Of processes in other pid namespaces, which cannot be watched: those whose namespace is
        proved to have ended."""
        if not unjudged:
            self._namespaces_at_ms = None
            return []
        if self._namespaces_at_ms is not None and now_ms < self._namespaces_at_ms:
            return []
        self._namespaces_at_ms = now_ms + PAUSE_MAX_MS
        namespaces = Namespaces()
        return [watch for watch in unjudged if namespaces.state(watch.identity) == "dead"]

    def due_ms(self) -> int | None:
        """When the next look is due; None when the kernel will tell."""
        waiting = [t.due_ms for t in self._trees.values() if t.member is None]
        if self._namespaces_at_ms is not None:
            waiting.append(self._namespaces_at_ms)
        return min(waiting, default=None)

    def close(self) -> None:
        """Watch nothing any more."""
        self._members.close()


def may_live(watch: Watch, whose: Unserved) -> bool:
    """By looks at one instant: False only where nothing of the tree is found."""
    found = _Tree(whose, shim_gone=True)
    verdicts = [look_once(watch, found, Namespaces()) for _ in range(LOOKS)]
    return verdicts[-1].state != "gone"


def _look_below(found: _Tree, shim: ProcessIdentity) -> None:
    """What stands below the shim while it lives, and which of them is the evaluator."""
    below = ending.under(shim)
    if below is None or not is_alive(shim):
        return  # below one that has just died there is nothing, and what was seen counts
    found.seen = {identity_from(stat) for stat in below.ours}
    for stat in below.ours:
        if stat.parent == shim.pid and stat.group == stat.pid:
            found.leader = identity_from(stat)


def look_once(watch: Watch, found: _Tree, namespaces: Namespaces) -> Verdict:
    """What can be said now. Notes a process of the tree that lives."""
    shim, attempt = watch.identity, watch.attempt or ""
    run = RunPaths(Path(found.whose.run_dir))
    number = None
    if visible(shim) and not found.whose.own and not found.seen:
        # Of another user's processes /proc shows numbers, groups, sessions and owners. Without a
        # look below the shim any of theirs that is as young may be of the tree.
        if found.whose.uid is not None:
            number = len(tree.of_user(found.whose.uid, shim.start_ticks))
    elif visible(shim):
        if found.whose.own and found.leader is None:
            # Its word can only keep a row, never free one.
            started = AttemptFiles(run).evidence(attempt, shim).started
            found.leader = started.leader if started is not None else None
        members = ending.without_shim(
            str(run.attempt(attempt)), shim, found.leader, None, ending.Fallen(), found.seen
        )
        number = len(members.pids)
        # One in doubt may turn out to be a stranger, so it is looked at again by the clock.
        found.member = identity_from(members.ours[0]) if members.ours else None
    if number is not None:
        found.empty_looks = 0 if number else found.empty_looks + 1
    log = run.attempt_log(attempt)
    return judge(
        sighting(shim, log, namespaces=namespaces, found=number, empty_looks=found.empty_looks)
    )
