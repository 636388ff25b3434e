"""What must hold of generations in a ledger's history: they go forward, and a freeze is the end.

Open, assessment, frozen, closed, and back only by opening. After the freeze record nothing of a
generation is queued, given an allocation or brought to its barrier; only what stood there before
may still begin. Shares no code with the machine that decides; changes nothing. Source: seed 000
"Timing And Close"; the reference of the original system, 8.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..protocol import events as ev
from .evolve import FREED_BY_RERUN
from .state import BrokerState

ORDER = ("open", "assessment", "frozen", "closed")


class GenerationHistory:
    """Generations in a history: how far each is, and which tags a rerun frees."""

    def __init__(self, base: BrokerState | None) -> None:
        self.closed = False
        """Whether nothing of the run is taken any more."""
        self._phases: dict[int, str] = {}
        self._generation_of: dict[str, int] = {}
        self._class_of: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._unbound: set[str] = set()
        """Attempts whose shim is not at its barrier."""
        self._late: set[str] = set()
        """Attempts that a freeze met before that: they never begin."""
        self._held: dict[str, int] = {}
        """Attempt that holds an allocation -> its generation."""
        if base is not None:
            self._take(base)

    def _take(self, base: BrokerState) -> None:
        self.closed = base.closed_reason is not None
        self._phases = {number: found.phase for number, found in base.generations.items()}
        for job in base.jobs.values():
            self._generation_of[job.job] = job.generation
            self._class_of[job.job] = job.work_class
            if job.reject_code is not None:
                self._refused[job.job] = job.reject_code
        for attempt in base.attempts.values():
            self._held[attempt.attempt] = self._generation_of[attempt.job]
            if attempt.phase == "allocated":
                self._unbound.add(attempt.attempt)
                if self.phase(self._held[attempt.attempt]) in ("frozen", "closed"):
                    self._late.add(attempt.attempt)

    def phase(self, generation: int) -> str:
        """How far it is. One that nobody opened by name is open from the first that is heard."""
        return self._phases.get(generation, "open")

    def of(self, job: str) -> int | None:
        """The generation of a job."""
        return self._generation_of.get(job)

    def see(self, event: Any) -> Iterable[str]:
        """Faults of one event."""
        match event:
            case ev.JobQueued():
                self._generation_of[event.job] = event.generation
                self._class_of[event.job] = event.work_class
                yield from self._check(event.job, "queued")
            case ev.JobRetried():
                self._refused.pop(event.job, None)
                self._class_of[event.job] = event.work_class
                yield from self._check(event.job, "retried")
            case ev.JobRejected():
                self._refused[event.job] = event.code
            case ev.AdmissionClosed():
                self.closed = True
            case ev.AdmissionOpened():
                self.closed = False
            case (
                ev.GenerationOpened()
                | ev.GenerationAssessed()
                | ev.GenerationFrozen()
                | ev.GenerationClosed()
            ):
                yield from self._move(event)
            case _:
                yield from self._attempt(event)

    def _attempt(self, event: Any) -> Iterable[str]:
        match event:
            case ev.AttemptAllocated():
                yield from self._check(event.job, "given an allocation")
                self._unbound.add(event.attempt)
                self._held[event.attempt] = self._generation_of.get(event.job, 0)
            case ev.AttemptBound():
                self._unbound.discard(event.attempt)
            case ev.AttemptLaunched():
                if event.attempt in self._late:
                    yield f"{event.attempt} began, its barrier was reached after the freeze"
            case ev.AllocationReleased():
                self._unbound.discard(event.attempt)
                self._late.discard(event.attempt)
                self._held.pop(event.attempt, None)

    def _check(self, job: str, what: str) -> Iterable[str]:
        phase = self.phase(self._generation_of.get(job, 0))
        if self.closed:
            yield f"{job} was {what} after admission was closed"
        if phase in ("frozen", "closed"):
            yield f"{job} was {what} after its generation was frozen"
        if phase == "assessment" and self._class_of.get(job) != "mature":
            yield f"{job} was {what} in an assessment and is not mature"

    def _move(self, event: Any) -> Iterable[str]:
        number = event.generation
        before = self.phase(number)
        match event:
            case ev.GenerationOpened():
                after = "open"
            case ev.GenerationAssessed():
                after = "assessment"
            case ev.GenerationFrozen():
                after = "frozen"
                late = {name for name in self._unbound if self._held.get(name) == number}
                self._late |= late
            case _:
                after = "closed"
                if before not in ("frozen", "closed"):
                    yield f"generation {number} was closed and had not been frozen"
                yield from (
                    f"generation {number} was closed, {name} holds an allocation"
                    for name, of in self._held.items()
                    if of == number
                )
        if after == "open":
            self._phases[number] = after
            self._late = {name for name in self._late if self._held.get(name) != number}
            return
        again = before == "closed" and after == "frozen"  # closed, it is asked for its signal
        if ORDER.index(after) < ORDER.index(before) and not again:
            yield f"generation {number} was {before} and became {after}"
        self._phases[number] = max(before, after, key=ORDER.index)

    def freed(self, event: Any) -> list[str]:
        """The jobs whose tags an event gives back."""
        if not isinstance(event, ev.GenerationOpened) or not event.rerun:
            return []
        return [
            job
            for job, code in self._refused.items()
            if code in FREED_BY_RERUN and self._generation_of.get(job) == event.generation
        ]
