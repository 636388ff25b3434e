"""Does the run get anywhere? What an operator must see before all else.

Peers look busy, and spend, while nothing of theirs ever runs; so that is told first. A run in which
nobody wants anything is no trouble, and neither is one whose experiments hold what others wait for.
Decides nothing about admission. Source: seed 000 (loud failure); public fault: a GPU task on a host
without GPU got no job admitted, without a word.
"""

from __future__ import annotations

from .admission import BlockerTable
from .placement import never_fits, probe_blocker, stale_sample
from .soft import SoftState
from .start_gate import alarm as gate_alarm
from .state import BrokerState, Job
from .storm import failing_alarm, storm_alarm
from .timestamps import span_words

WAIT_TOLD_MS = 60_000
"""So long may the first job of a generation wait without an alarm; jobs start in milliseconds."""
START_TOLD_MS = 180_000
"""So long may work wait while nothing runs, after something has."""
PROBE_TOLD_MS = 10_000
"""A driver may need seconds for its first answer."""


def alarms(state: BrokerState, soft: SoftState) -> tuple[str, ...]:
    """What keeps the run from getting anywhere, in words; empty when nothing does."""
    found = (
        _no_progress(state, soft) or _no_start(state, soft),
        _probe_unknown(state, soft),
        gate_alarm(soft),
        storm_alarm(soft),
        failing_alarm(soft),
    )
    return tuple(text for text in found if text is not None)


def default_never_fits(state: BrokerState, soft: SoftState) -> str | None:
    """Why the default profile can never run on this host; None when it may, or when the newest
    sample is too old to say."""
    if soft.sample is None or stale_sample(soft) is not None:
        return None
    name = state.policy.default_profile
    reason = never_fits(state.policy.profiles[name], soft.sample)
    return None if reason is None else f"default profile {name!r} {reason}"


def _no_progress(state: BrokerState, soft: SoftState) -> str | None:
    current = state.current
    if current is None or current.phase != "open" or current.attempts:
        return None
    if state.attempts or state.closed_reason is not None:
        return None
    why = default_never_fits(state, soft) or _refused(soft) or _waits_long(state, soft)
    if why is None:
        return None
    age = span_words(soft.now_at_ms - current.opened_at_ms)
    return (
        f"NO PROGRESS  generation {state.generation} open {age}, "
        f"no experiment was ever admitted: {why}"
    )


def _refused(soft: SoftState) -> str | None:
    """Nothing waits, because all that came was refused."""
    refused = soft.counters.get("refused_profile_unsatisfiable", 0)
    if not refused or len(soft.queue):
        return None
    were = "submission was" if refused == 1 else "submissions were"
    return f"{refused} {were} refused, with a profile that can never run on this host"


def _waits_long(state: BrokerState, soft: SoftState) -> str | None:
    oldest = _oldest_waiting(state, soft)
    if oldest is None:
        return None
    since_ms = max(
        oldest.queued_at_ms, state.current.opened_at_ms if state.current is not None else 0
    )
    if soft.now_at_ms - since_ms < WAIT_TOLD_MS:
        return None
    return _why_waiting(oldest, state, soft)


def note_use(state: BrokerState, soft: SoftState) -> None:
    """Once a turn: something runs, or nothing waits that could."""
    waits = soft.queue or soft.held_back or soft.lacking_credentials
    halted = soft.held or soft.fenced or state.closed_reason is not None
    if state.attempts or not waits or halted:
        soft.used_at_ms = soft.now_ms


def _no_start(state: BrokerState, soft: SoftState) -> str | None:
    """That nothing has run for minutes while work waits, whatever ran before."""
    idle_ms = soft.now_ms - soft.used_at_ms
    oldest = _oldest_waiting(state, soft)
    if idle_ms < START_TOLD_MS or oldest is None:
        return None
    why = _why_waiting(oldest, state, soft)
    return f"NO START for {span_words(idle_ms)}, nothing runs: {why}"


def _why_waiting(oldest: Job, state: BrokerState, soft: SoftState) -> str:
    if oldest.job in soft.lacking_credentials:
        return f"{oldest.job} waits for credentials"
    blockers = BlockerTable(state, soft).of(oldest)
    why = blockers[0].detail if blockers else "it is being started, and does not start"
    return f"{oldest.job} ({oldest.profile}) waits: {why}"


def _oldest_waiting(state: BrokerState, soft: SoftState) -> Job | None:
    names = [
        *(job for _, job in soft.queue.heads()),
        *(plan.job for plan in soft.plans.values()),
        *soft.held_back,
        *soft.pauses,
        *soft.lacking_credentials,
    ]
    jobs = (state.jobs[name] for name in names)
    return min(jobs, key=lambda job: job.queue_sequence, default=None)


def _probe_unknown(state: BrokerState, soft: SoftState) -> str | None:
    """That nothing is known of the devices that the contract has profiles for, for longer than a
    hiccup; who looks should see it before somebody waits."""
    blocker = probe_blocker(soft)
    if blocker is None or blocker.code != "probe_unknown":
        return None
    unknown_ms = soft.now_ms - soft.probe_known_ms
    gpu = {name for name, profile in state.policy.profiles.items() if profile.accelerator == "gpu"}
    if unknown_ms < PROBE_TOLD_MS or not gpu:
        return None
    wanted = gpu & {name for _, name in soft.queue.sizes}
    held = "GPU jobs held" if wanted else "no GPU job could start"
    return f"PROBE UNKNOWN for {span_words(unknown_ms)}, {held}: {blocker.detail}"
