"""How long a job waits for devices of which the driver tells nothing, and what happens then.

A driver that is away for a minute costs no job: they wait. Where it stays unknown for longer, a job
that waits on would keep its peer waiting for nothing that anybody works on, so it is rejected,
durably, and its tag is free: nothing ran. Sources: seed 000 "Submission" (a transient probe
rejection releases the tag); the reference of the original system, 3 "Probe states"; the public
fault of a collector that fails for 60 s, after which what was submitted before is not lost.
"""

from __future__ import annotations

from .placement import stale_sample
from .soft import SoftState
from .state import BrokerState
from .turn import Turn
from .withdraw import reject

INTERVALS = 6
"""The original waits for three intervals: by default the very minute that must cost nothing."""
GRACE_MIN_S, GRACE_MAX_S = 10.0, 120.0


def grace_ms(state: BrokerState) -> int:
    """How long the driver may tell nothing while jobs wait for devices."""
    interval_s = state.policy.adjustment_interval_seconds
    return round(1000 * min(GRACE_MAX_S, max(GRACE_MIN_S, INTERVALS * interval_s)))


def note_probe(soft: SoftState, probe_state: str) -> None:
    """A sample came: remember since when the devices are unknown. That no sample comes is our own
    fault, and no reason to reject anything."""
    if probe_state != "unknown":
        soft.probe_unknown_since_ms = None
    elif soft.probe_unknown_since_ms is None:
        soft.probe_unknown_since_ms = soft.now_ms


def give_up(turn: Turn) -> None:
    """Reject what waits for devices that were unknown for too long."""
    soft, state = turn.soft, turn.state
    if soft.now_ms < _over_ms(state, soft) or soft.held or stale_sample(soft) is not None:
        return
    gpu = {name for name, profile in state.policy.profiles.items() if profile.accelerator == "gpu"}
    if not (gpu & {profile for _, profile in soft.queue.sizes} or soft.held_back or soft.pauses):
        return
    unknown_s = (soft.now_ms - (soft.probe_unknown_since_ms or 0)) // 1000
    reason = soft.sample.probe_reason if soft.sample is not None else None
    detail = f"the devices are not known for {unknown_s} s: {reason or 'no reason given'}"
    for name in [*soft.queue.in_order(), *soft.held_back, *soft.pauses]:
        job = state.jobs[name]
        if job.profile in gpu:
            nothing_ran = not job.attempts_used
            reject(turn, job, "accelerator_probe_unknown", detail, frees_identity=nothing_ran)


def _over_ms(state: BrokerState, soft: SoftState) -> float:
    since_ms = soft.probe_unknown_since_ms
    return float("inf") if since_ms is None else since_ms + grace_ms(state)


def due_ms(state: BrokerState, soft: SoftState) -> int | None:
    """When `give_up` may have something to do."""
    over_ms = _over_ms(state, soft)
    return int(over_ms) if soft.queue and soft.now_ms < over_ms < float("inf") else None
