"""Read-only requests. A query is a command that yields a reply and no event."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from operator import itemgetter
from typing import Any

from ..protocol import requests as req
from ..protocol.replies import EventsReply, JobReply, JobsReply, StatusReply
from ..protocol.views import HostLoad, ProcessView
from . import leftovers, narrate
from .activity import phases
from .admission import COARSE, closed_words, registry_silence
from .alarms import alarms, default_never_fits
from .concurrency import rise_words
from .devices import device_warnings
from .generation_gate import shown_deadline
from .lease_views import resource_supply
from .placement import stale_sample
from .selectors import select
from .sharing import HELP, shared_words
from .slots import at_cap, planned_by_peer
from .soft import SoftState
from .start_gate import ledger_words
from .state import BrokerState, Job
from .timestamps import rfc3339, timestamp
from .turn import Turn, subject
from .views import Viewer

CAPPED = COARSE["peer_cap"]
LAUNCHER_SILENCE_MS = 2_000
"""One that starts says so within milliseconds after it is ready; then something is wrong."""


def show(turn: Turn, request: req.ShowJob) -> JobReply:
    """One job."""
    return JobReply(job=Viewer(turn.state, turn.soft).job(select(turn.state, request.job)))


def jobs(turn: Turn, request: req.ListJobs) -> JobsReply:
    """Jobs: running, then queued in queue order, then (if asked) ended ones, newest first."""
    state, soft = turn.state, turn.soft
    viewer = Viewer(state, soft)
    wanted = frozenset(request.states)
    chosen: list[Job] = []
    ahead = [] if soft.reservation is None else [soft.reservation.job]
    names = dict.fromkeys((*ahead, *soft.held_back, *soft.queue.in_order(), *soft.pauses))
    waiting = [state.jobs[name] for name in names]
    known = {job.job for job in waiting}
    running = [state.jobs[attempt.job] for attempt in state.attempts.values()]
    chosen.extend(running)
    planned = [state.jobs[plan.job] for plan in soft.plans.values()]
    aside = [state.jobs[name] for name in soft.lacking_credentials]
    chosen.extend(job for job in planned + waiting + aside if job.state == "queued")
    known.update(job.job for job in chosen)
    if request.include_terminal or wanted - {"queued", "running", "waiting_for_credentials"}:
        chosen.extend(job for name, job in reversed(state.jobs.items()) if name not in known)

    def fits(job: Job) -> bool:
        if request.peer is not None and job.peer != request.peer:
            return False
        if not wanted:
            return True
        if job.job in soft.lacking_credentials:
            return "waiting_for_credentials" in wanted
        return job.state in wanted

    matching = [job for job in chosen if fits(job)]
    return JobsReply(
        jobs=tuple(viewer.job(job) for job in matching[: request.limit]),
        total=len(matching),
        concurrency_limit=state.limit,
        counts=counts(turn),
        limit_range=(
            state.policy.min_concurrent_experiments,
            state.policy.max_concurrent_experiments,
        ),
        limit_note=limit_note(state, soft),
    )


def limit_note(state: BrokerState, soft: SoftState) -> str | None:
    """Why the limit is below what the contract allows, and what raises it."""
    rises = rise_words(state, soft)
    if rises is None:
        return None
    before, reason = state.limit_before, state.limit_reason
    lowered = before is not None and before > state.limit and reason
    return f"fell from {before} to {state.limit}: {reason}; {rises}" if lowered else rises


def counts(turn: Turn) -> dict[str, int]:
    """Jobs by state as they are shown."""
    found = dict(turn.state.counts)
    aside = len(turn.soft.lacking_credentials)
    found["queued"] -= aside
    found["waiting_for_credentials"] = aside
    return found


def events(turn: Turn, request: req.ReadEvents) -> EventsReply:
    """A piece of the history, as far back as memory goes."""
    job = select(turn.state, request.job).job if request.job is not None else None
    found = []
    history = turn.soft.history
    # Most who ask have seen nearly all of it: what they know is not looked at again.
    start = bisect_right(history, request.after_sequence, key=itemgetter(0))
    for sequence, event in islice(history, start, None):
        if job is not None and subject(event)[0] != job:
            continue
        found.append(narrate.line(sequence, event))
        if len(found) >= request.limit:
            break
    return EventsReply(
        events=tuple(found),
        epoch=turn.state.epoch,
        last_sequence=turn.state.last_sequence,
        first_sequence=history[0][0] if history else 0,
    )


def status(turn: Turn) -> StatusReply:
    """The page an operator reads first; also `status.json`."""
    state, soft = turn.state, turn.soft
    sample = soft.sample
    alarming = alarms(state, soft)
    warnings = (*alarming, *_warnings(turn, alarming))
    load = HostLoad(cpu_pct=None, memory_pct=None, io_pct=None, age_s=None)
    probe: dict[str, str | None] = {"state": "unknown", "reason": "no sample yet"}
    if sample is not None:
        load = HostLoad(
            cpu_pct=sample.cpu_pct,
            memory_pct=sample.memory_pct,
            io_pct=sample.io_pct,
            age_s=max(0, turn.stamp.mono_ms - sample.sampled_at_mono_ms) / 1000,
        )
        probe = {"state": sample.probe_state, "reason": sample.probe_reason}
        if (stale := stale_sample(soft)) is not None:
            probe = {"state": "unknown", "reason": stale}
    processes = soft.processes.processes if soft.processes is not None else ()
    return StatusReply(
        run_id=state.run_id,
        run_dir=soft.run_dir,
        health="troubled" if warnings else "healthy",
        warnings=warnings,
        alarms=alarming,
        processes=tuple(
            ProcessView(
                name=name,
                pid=pid,
                up_s=max(0, turn.stamp.mono_ms - started) / 1000,
                restarts=restarts,
            )
            for name, pid, started, restarts in processes
        ),
        jobs=counts(turn),
        jobs_total=len(state.jobs),
        concurrency_limit=state.limit,
        max_parallel_runs_per_peer=state.policy.max_parallel_runs_per_peer,
        host=load,
        accelerator_probe=probe,
        queue_blocked_reasons=_blocked(turn),
        running_activity={
            "lifecycle_running": len(state.attempts),
            "by_resource_phase": phases(state, soft),
        },
        generation=_generation(state, soft),
        resource_supply=resource_supply(state, soft),
        simulated=soft.simulated,
        epoch=state.epoch,
        sequence=state.last_sequence,
        ledger_bytes=soft.ledger_bytes,
        counters=dict(sorted(soft.counters.items())),
        at=timestamp(turn.stamp.at_ms),
        limits=limits(state, soft),
    )


def _generation(state: BrokerState, soft: SoftState) -> dict[str, Any]:
    current = state.current
    phase = "open" if current is None else current.phase
    return {
        "number": state.generation,
        "state": phase,
        "deadline": None if current is None else rfc3339(shown_deadline(current, soft)),
        "cohort_size": None if current is None else current.cohort_size,
        "reason": None if current is None else current.reason,
        "admission_closed": state.closed_reason,
    }


def limits(state: BrokerState, soft: SoftState) -> dict[str, Any]:
    """Where the limit may move, why it last did, what raises it, and the marks of pressure."""
    policy = state.policy
    return {
        "range": [policy.min_concurrent_experiments, policy.max_concurrent_experiments],
        "before": state.limit_before,
        "reason": state.limit_reason or None,
        "changed_at": rfc3339(state.limit_changed_at_ms),
        "rises": rise_words(state, soft),
        "high_pct": {
            "cpu": policy.cpu_high_pct,
            "memory": policy.memory_high_pct,
            "io": policy.io_pressure_high_pct,
        },
    }


def _warnings(turn: Turn, alarming: tuple[str, ...]) -> tuple[str, ...]:
    """What is wrong beside the alarms."""
    state, soft = turn.state, turn.soft
    found = [text for _, text in sorted(soft.warnings.items())]
    found.extend(f"{name}: unreadable record" for name in soft.unreadable)
    undeclared = sorted({lane[1] for lane in soft.queue.sizes} - set(state.policy.profiles))
    found.extend(
        f"queued jobs need profile {name!r}, which the contract in force does not declare"
        for name in undeclared
    )
    unsatisfiable = default_never_fits(state, soft)
    if unsatisfiable is not None and not any(unsatisfiable in text for text in alarming):
        found.append(f"{unsatisfiable}: its submissions are refused")
    silent_ms = 0 if soft.launcher_ready else turn.stamp.mono_ms - soft.launcher_away_ms
    if silent_ms >= LAUNCHER_SILENCE_MS:
        found.append(f"the launcher has not answered for {silent_ms // 1000} s: nothing starts")
    stale = stale_sample(soft)
    if stale is not None:
        found.append(f"{stale}: nothing that needs a device starts")
    else:
        found += device_warnings(state, soft)
    found += [f"{words}; {HELP}" for words in shared_words(soft).values()]
    silence = registry_silence(soft)
    if silence is not None:
        found.append(f"{silence}: nothing starts")
    if soft.low_space:
        found.append(f"{ledger_words(soft)}: submissions are refused")
    closed = closed_words(state, soft)
    if closed is not None:
        found.append(f"admission is closed: {closed}")
    if soft.held:
        found.append("admission is held for a drain: nothing starts")
    found += leftovers.warnings(state, soft)
    if soft.lacking_credentials:
        number = len(soft.lacking_credentials)
        found.append(f"{number} job{' waits' if number == 1 else 's wait'} for credentials")
    return tuple(found)


def _blocked(turn: Turn) -> dict[str, int]:
    """Queued jobs by the coarse word of what blocks them, worked out once a lane. Those of peers
    at their cap have a word of their own when nothing else holds their lane."""
    state, soft = turn.state, turn.soft
    viewer = Viewer(state, soft)
    planned = planned_by_peer(state, soft)
    found: dict[str, int] = {}
    for lane, size in soft.queue.sizes.items():
        name = soft.queue.head(lane) or soft.queue.first_parked(lane)
        if name is None:
            continue
        word = viewer.job(state.jobs[name]).queue_blocked_reason
        capped = sum(
            count
            for peer, count in soft.queue.peer_sizes[lane].items()
            if word is None and at_cap(peer, state, planned)
        )
        if capped:
            found[CAPPED] = found.get(CAPPED, 0) + capped
        if size > capped:
            word = word or "starting"
            found[word] = found.get(word, 0) + size - capped
    for name in (*soft.held_back, *soft.pauses):
        word = viewer.job(state.jobs[name]).queue_blocked_reason or "starting"
        found[word] = found.get(word, 0) + 1
    return found
