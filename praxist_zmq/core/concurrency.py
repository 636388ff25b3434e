"""The limit of attempts at once, which follows the host between the contract's bounds.

One step an adjustment interval, on a sample that has not been used before: down when CPU, memory
or I/O is at its high mark; up when work waits for the limit, CPU is at or below its low mark, and
memory and I/O are well below theirs. Only what the profile of a job declares which waits or runs
counts. The band between is the hysteresis. A step up is asked of the
host's registry, so that several runs do not all take the same quiet sample for their own.
Source: seed 000, seed 001; the reference of the original system, "Concurrency controller"; design 5
(I/O steers too).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol import claims
from ..protocol import events as ev
from ..protocol.policy import SchedulerPolicy
from ..protocol.reports import HostSampled
from .pressure import HOST
from .soft import SoftState
from .state import BrokerState
from .turn import Turn

MARGIN_PCT = 5.0
"""So far below its high mark memory, and I/O, must be for a step up."""


def occupied(state: BrokerState, soft: SoftState) -> int:
    """Slots in use: attempts that hold an allocation, plans under way, and what else lives."""
    return len(state.attempts) + len(soft.plans) + soft.slots_elsewhere


def adjust(turn: Turn) -> None:
    """Once a turn: a step of the limit, if one is due."""
    state, soft = turn.state, turn.soft
    sample, policy = soft.sample, state.policy
    if sample is None or sample.sampled_at_mono_ms <= soft.limit_sample_ms:
        return
    if soft.limit_due_ms is not None and turn.stamp.mono_ms < soft.limit_due_ms:
        return
    high = _too_high(_marks(state, soft))
    if high is not None and state.limit > policy.min_concurrent_experiments:
        _step(turn, sample, state.limit - 1, high)
    elif high is None and _may_rise(state, soft) and not soft.raise_asked:
        soft.raise_asked = True
        soft.limit_sample_ms = sample.sampled_at_mono_ms
        turn.claim(
            claims.RaiseLimit(
                run_key=soft.run_key,
                epoch=state.epoch,
                registration=soft.registrations,
                interval_ms=interval_ms(policy),
            ),
            "raise",
        )


def raise_answered(turn: Turn, granted: bool) -> None:
    """The registry's word on a step up. A refusal is asked again with the next sample."""
    state, soft = turn.state, turn.soft
    soft.raise_asked = False
    sample = soft.sample
    if not granted or sample is None or not _may_rise(state, soft):
        return
    why = [mark.words() for mark in _marks(state, soft)]
    _step(turn, sample, state.limit + 1, ", ".join([*why, f"{len(soft.queue)} queued"]))


def interval_ms(policy: SchedulerPolicy) -> int:
    """Between two steps, milliseconds."""
    return round(policy.adjustment_interval_seconds * 1000)


def _step(turn: Turn, sample: HostSampled, limit: int, reason: str) -> None:
    soft = turn.soft
    soft.limit_sample_ms = sample.sampled_at_mono_ms
    soft.limit_due_ms = turn.stamp.mono_ms + interval_ms(turn.state.policy)
    turn.record(
        ev.LimitChanged(
            at_ms=turn.stamp.at_ms, before=turn.state.limit, limit=limit, reason=reason[:300]
        )
    )


def domains_in_use(state: BrokerState, soft: SoftState) -> frozenset[str]:
    """The kinds of host pressure that the profile of some job declares which waits or runs; while
    none does, those of any profile. What nobody's work minds does not move the limit."""
    names = {lane[1] for lane in soft.queue.sizes}
    jobs = [*soft.held_back, *(plan.job for plan in soft.plans.values())]
    jobs += [attempt.job for attempt in state.attempts.values()]
    names |= {state.jobs[job].profile for job in jobs}
    names = names or set(state.policy.profiles)
    profiles = state.policy.profiles
    return frozenset(
        domain
        for name in names
        if name in profiles
        for domain in profiles[name].pressure_domains
        if domain in HOST
    )


@dataclass(frozen=True, slots=True)
class _Mark:
    """One kind of pressure: its reading, when the limit falls, and up to where it may rise."""

    name: str
    reading: float | None
    high: float
    low: float
    sign: str
    """`<=` or `<`: whether `low` itself will do."""

    @property
    def may_rise(self) -> bool:
        """Whether it is low enough for a step up. Only I/O may be unknown: many kernels do not
        tell it."""
        if self.reading is None:
            return self.name == "io"
        return self.reading <= self.low if self.sign == "<=" else self.reading < self.low

    def words(self) -> str:
        """`cpu 58 <= 65`."""
        return f"{self.name} {_told(self.reading)} {self.sign} {self.low:g}"


def _marks(state: BrokerState, soft: SoftState) -> list[_Mark]:
    """Those of the domains in use, by the newest sample."""
    policy, sample, used = state.policy, soft.sample, domains_in_use(state, soft)
    cpu = memory = io = None
    if sample is not None:
        cpu, memory, io = sample.cpu_pct, sample.memory_pct, sample.io_pct
    memory_high, io_high = policy.memory_high_pct, policy.io_pressure_high_pct
    every = (
        _Mark("cpu", cpu, policy.cpu_high_pct, policy.cpu_low_pct, "<="),
        _Mark("memory", memory, memory_high, memory_high - MARGIN_PCT, "<"),
        _Mark("io", io, io_high, max(io_high - MARGIN_PCT, MARGIN_PCT), "<"),
    )
    return [mark for mark in every if mark.name in used]


def _too_high(marks: list[_Mark]) -> str | None:
    """Which reading is at its high mark, in words."""
    for mark in marks:
        if mark.reading is not None and mark.reading >= mark.high:
            return f"{mark.name} {mark.reading:.0f} >= {mark.high:g}"
    return None


def _may_rise(state: BrokerState, soft: SoftState) -> bool:
    if state.limit >= state.policy.max_concurrent_experiments or not soft.registry_ready:
        return False
    if not len(soft.queue) or occupied(state, soft) < state.limit:
        return False
    return all(mark.may_rise for mark in _marks(state, soft))


def rise_words(state: BrokerState, soft: SoftState) -> str | None:
    """What lets the limit rise, in words; None when it is as high as the contract has it."""
    if state.limit >= state.policy.max_concurrent_experiments:
        return None
    pause = f"one step in {state.policy.adjustment_interval_seconds:g} s"
    return " ".join(
        filter(None, ("rises", rise_marks(state, soft), "while work waits for it,", pause))
    )


def rise_marks(state: BrokerState, soft: SoftState) -> str:
    """`at cpu <= 65 (now 97), memory < 90 (now 40)`; empty when no pressure counts."""
    told = [
        f"{mark.name} {mark.sign} {mark.low:g} (now {_told(mark.reading)})"
        for mark in _marks(state, soft)
    ]
    return f"at {', '.join(told)}" if told else ""


def _told(reading: float | None) -> str:
    return "unknown" if reading is None else f"{reading:.0f}"
