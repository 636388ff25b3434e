"""Ends what a run started when no scheduler does it: TERM, grace, KILL, looks until it is gone.

Every signal goes to an identity that was just verified; what is not proved to be the run's is told
and left alone. Bounded: what does not go is named. It decides no fence and reads no ledger; its
caller has done both. Rules: the design's promises 6 and 7; seed 000 "Timing And Close".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..host import signals
from ..host.clock import Clock, pause_ms
from ..host.identity import ProcStat, identity_from
from ..host.stop_search import LeftAlone, ProvedProcesses, StopSearch

LOOK_APART_MS = 200
"""Between the two empty looks that prove an end."""
TERM_PAUSE_MS = 50
KILL_PAUSE_MS = 20
KILL_BOUND_MS = 20_000
SHIM_GRACE_MS = 2_000
"""For a shim to write its record and end, once nothing is below it."""


@dataclass(slots=True)
class Swept:
    """What a sweep found and did, by process id."""

    matched: set[int] = field(default_factory=set)
    """Evaluators, and the shims around them."""
    descendants: set[int] = field(default_factory=set)
    terminated: set[int] = field(default_factory=set)
    killed: set[int] = field(default_factory=set)
    remaining: set[int] = field(default_factory=set)
    left: list[LeftAlone] = field(default_factory=list)


class StopSweep:
    """One sweep over the processes of a run."""

    def __init__(self, search: StopSearch, clock: Clock) -> None:
        self._search = search
        self._clock = clock
        self._told: set[tuple[int, int]] = set()
        self.swept = Swept()

    def look_only(self) -> Swept:
        """What a sweep would find, without a signal."""
        found = self._note(self._search.look())
        self.swept.remaining = {*found.members, *found.shims}
        self.swept.left = self._search.candidates(self.swept.remaining)
        return self.swept

    def run(self, grace_ms: int) -> Swept:
        """End all of it. Blocks, at most for `grace_ms` and a bound for what will not go."""
        self._terminate(grace_ms)
        last = self._kill()
        self.swept.remaining = {*last.members, *last.shims}
        self.swept.left = self._search.candidates(self.swept.remaining)
        return self.swept

    def _note(self, found: ProvedProcesses) -> ProvedProcesses:
        self.swept.matched |= {*found.leaders, *found.shims}
        self.swept.descendants |= {*found.below} - self.swept.matched
        return found

    def _terminate(self, grace_ms: int) -> None:
        """TERM each once, also those that appear meanwhile, until nothing is left or the grace is
        over. A shim is not told: it ends by itself when nothing is below it."""
        until = self._clock.mono_ms() + grace_ms
        while True:
            found = self._note(self._search.look())
            _wake(found.shims.values())
            for stat in found.members.values():
                key = (stat.pid, stat.start_ticks)
                if key not in self._told:
                    self._told.add(key)
                    if signals.send(identity_from(stat), signals.TERM):
                        self.swept.terminated.add(stat.pid)
                    signals.send(identity_from(stat), signals.CONT)
            left_ms = until - self._clock.mono_ms()
            if not found.members or left_ms <= 0:
                return
            pause_ms(min(TERM_PAUSE_MS, left_ms))

    def _kill(self) -> ProvedProcesses:
        """KILL until two looks in a row, apart, found nothing; the last look."""
        until = self._clock.mono_ms() + KILL_BOUND_MS
        shims_until: int | None = None
        empty = 0
        while True:
            found = self._note(self._search.look())
            now = self._clock.mono_ms()
            if found.members:
                empty, shims_until, pause = 0, None, KILL_PAUSE_MS
                self._send_kill(found.members.values())
            elif found.shims:
                empty, pause = 0, KILL_PAUSE_MS
                _wake(found.shims.values())
                shims_until = now + SHIM_GRACE_MS if shims_until is None else shims_until
                if now >= shims_until:
                    self._send_kill(found.shims.values())
            else:
                empty, pause = empty + 1, LOOK_APART_MS
            if empty >= 2 or now >= until:
                return found
            pause_ms(pause)

    def _send_kill(self, stats: Iterable[ProcStat]) -> None:
        for stat in stats:
            if signals.send(identity_from(stat), signals.KILL):
                self.swept.killed.add(stat.pid)


def _wake(stats: Iterable[ProcStat]) -> None:
    """A stopped shim reaps nothing and never ends."""
    for stat in stats:
        if stat.state in ("T", "t"):
            signals.send(identity_from(stat), signals.CONT)
