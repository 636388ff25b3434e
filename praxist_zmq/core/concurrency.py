"""The limit of attempts at once, which follows the host between the contract's bounds.

One step an adjustment interval, on a sample that has not been used before: down when CPU, memory
or I/O is at its high mark; up when work waits for the limit, CPU is at or below its low mark, and
memory and I/O are well below theirs. The band between is the hysteresis. A step up is asked of the
host's registry, so that several runs do not all take the same quiet sample for their own.
Source: seed 000, seed 001; the reference of the original system, "Concurrency controller"; design 5
(I/O steers too).
"""

from __future__ import annotations

from ..protocol import claims
from ..protocol import events as ev
from ..protocol.policy import SchedulerPolicy
from ..protocol.reports import HostSampled
from .soft import SoftState
from .state import BrokerState
from .turn import Turn

MARGIN_PCT = 5.0
"""So far below its high mark memory, and I/O, must be for a step up."""


def occupied(state: BrokerState, soft: SoftState) -> int:
    """Slots in use: attempts that hold an allocation, and plans under way."""
    return len(state.attempts) + len(soft.plans)


def adjust(turn: Turn) -> None:
    """Once a turn: a step of the limit, if one is due."""
    state, soft = turn.state, turn.soft
    sample, policy = soft.sample, state.policy
    if sample is None or sample.sampled_at_mono_ms <= soft.limit_sample_ms:
        return
    if soft.limit_due_ms is not None and turn.stamp.mono_ms < soft.limit_due_ms:
        return
    high = _too_high(policy, sample)
    if high is not None and state.limit > policy.min_concurrent_experiments:
        _step(turn, sample, state.limit - 1, high)
    elif high is None and _may_rise(state, soft, sample) and not soft.raise_asked:
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
    if not granted or sample is None or not _may_rise(state, soft, sample):
        return
    policy = state.policy
    why = f"cpu {_told(sample.cpu_pct)} <= {policy.cpu_low_pct:g}"
    why += f", memory {_told(sample.memory_pct)}, {len(soft.queue)} queued"
    _step(turn, sample, state.limit + 1, why)


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


def _too_high(policy: SchedulerPolicy, sample: HostSampled) -> str | None:
    """Which reading is at its high mark, in words."""
    for name, reading, high in (
        ("cpu", sample.cpu_pct, policy.cpu_high_pct),
        ("memory", sample.memory_pct, policy.memory_high_pct),
        ("io", sample.io_pct, policy.io_pressure_high_pct),
    ):
        if reading is not None and reading >= high:
            return f"{name} {reading:.0f} >= {high:g}"
    return None


def _may_rise(state: BrokerState, soft: SoftState, sample: HostSampled) -> bool:
    policy = state.policy
    if state.limit >= policy.max_concurrent_experiments or not soft.registry_ready:
        return False
    if not len(soft.queue) or occupied(state, soft) < state.limit:
        return False
    if sample.cpu_pct is None or sample.cpu_pct > policy.cpu_low_pct:
        return False
    if sample.memory_pct is None or sample.memory_pct >= policy.memory_high_pct - MARGIN_PCT:
        return False
    io_mark = policy.io_pressure_high_pct - MARGIN_PCT
    return sample.io_pct is None or sample.io_pct < max(io_mark, MARGIN_PCT)


def _told(reading: float | None) -> str:
    return "unknown" if reading is None else f"{reading:.0f}"
