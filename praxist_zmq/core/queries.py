"""Read-only requests. A query is a command that yields a reply and no event."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from operator import itemgetter
from typing import Any

from ..protocol import requests as req
from ..protocol.replies import (
    DevicesReply,
    EventsReply,
    Explanation,
    Gate,
    JobReply,
    JobsReply,
    StatusReply,
)
from ..protocol.views import DeviceView, HostLoad, ProcessView
from . import narrate
from .admission import concurrency_limit, lane_gates, registry_silence, run_gates
from .placement import never_fits, stale_sample
from .selectors import select
from .state import Job
from .turn import Refused, Turn, subject
from .views import Viewer, timestamp


def show(turn: Turn, request: req.ShowJob) -> JobReply:
    """One job."""
    return JobReply(job=Viewer(turn.state, turn.soft).job(select(turn.state, request.job)))


def jobs(turn: Turn, request: req.ListJobs) -> JobsReply:
    """Jobs: running, then queued in queue order, then (if asked) ended ones, newest first."""
    state, soft = turn.state, turn.soft
    viewer = Viewer(state, soft)
    wanted = frozenset(request.states)
    chosen: list[Job] = []
    waiting = [state.jobs[name] for name in (*soft.held_back, *soft.queue.in_order())]
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
        concurrency_limit=concurrency_limit(state),
        counts=counts(turn),
    )


def counts(turn: Turn) -> dict[str, int]:
    """Jobs by state as they are shown."""
    found = dict(turn.state.counts)
    aside = len(turn.soft.lacking_credentials)
    found["queued"] -= aside
    found["waiting_for_credentials"] = aside
    return found


def explain(turn: Turn, request: req.ExplainJob) -> Explanation:
    """Why a job waits or how it ended, or whether a profile can ever run here."""
    if request.subject.startswith("profile:"):
        return _explain_profile(turn, request.subject[len("profile:") :])
    job = select(turn.state, request.subject)
    viewer = Viewer(turn.state, turn.soft)
    view = viewer.job(job)
    if job.state != "queued":
        return Explanation(
            job=view,
            verdict=_verdict(job),
            position=None,
            gates=(),
            blockers=(),
            options=_options(job),
        )
    run = run_gates(turn.state, turn.soft)
    lane = lane_gates(turn.state.policy.profiles.get(job.profile), turn.state, turn.soft)
    position = next(
        (n for n, name in enumerate(turn.soft.queue.in_order(), 1) if name == job.job), None
    )
    gates = run.gates + lane.gates
    if view.blockers and view.blockers[0].code == "credentials_missing":
        detail = view.blockers[0].detail
        gates = (*gates, Gate(name="credentials", state="blocked", detail=detail))
    if view.blockers and view.blockers[0].code == "queue_order":
        detail = f"place {position} in the queue"
        gates = (*gates, Gate(name="queue order", state="blocked", detail=detail))
    denial = turn.soft.held_back.get(job.job)
    if denial is not None:
        gates = (*gates, Gate(name="registry", state="blocked", detail=denial.detail))
    first = view.blockers[0].detail if view.blockers else "it is being started"
    return Explanation(
        job=view,
        verdict=f"waits: {first}",
        position=position,
        gates=gates,
        blockers=view.blockers,
        options=(f"wait: praxist-zmq wait {job.job}", f"withdraw: praxist-zmq cancel {job.job}"),
    )


def _verdict(job: Job) -> str:
    if job.state == "running":
        return "running" if job.cancel_reason is None else f"ending: {job.cancel_reason}"
    if job.state == "rejected":
        return f"rejected ({job.reject_code}): {job.reject_detail}"
    if job.state == "drained_unknown":
        return "outcome unknown: the record of its end was lost"
    how = f"signal {job.signal}" if job.signal is not None else f"exit {job.exit_code}"
    text = f"{job.state}, {how}"
    return f"{text}: {job.failure_signature}" if job.failure_signature else text


def _options(job: Job) -> tuple[str, ...]:
    if job.state in ("failed", "rejected"):
        read = (f"read it: praxist-zmq logs {job.job}",) if job.attempt else ()
        return (*read, f"after a repair: praxist-zmq retry {job.job} [-- CMD...]")
    if job.state == "drained_unknown":
        return (
            "look at the log and the results; it is not run again under this tag",
            f"read it: praxist-zmq logs {job.job}",
        )
    if job.state == "running":
        return (f"follow it: praxist-zmq logs -f {job.job}",)
    return ()


def _explain_profile(turn: Turn, name: str) -> Explanation:
    profile = turn.state.policy.profiles.get(name)
    if profile is None:
        declared = ", ".join(sorted(turn.state.policy.profiles))
        raise Refused(
            "unknown_profile", f"profile {name!r} is not declared", [f"declared: {declared}"]
        )
    never = never_fits(profile, turn.soft)
    run = run_gates(turn.state, turn.soft)
    lane = lane_gates(profile, turn.state, turn.soft)
    blockers = run.blockers + lane.blockers
    if never is not None:
        verdict = f"can never run here: {never}"
    elif blockers:
        verdict = f"a job of it would wait: {blockers[0].detail}"
    else:
        verdict = "a job of it would start now"
    return Explanation(
        job=None,
        verdict=verdict,
        position=None,
        gates=run.gates + lane.gates,
        blockers=blockers,
        options=(),
    )


def devices(turn: Turn) -> DevicesReply:
    """The devices with what is declared on them and what they are seen to use."""
    state, soft = turn.state, turn.soft
    if soft.sample is None:
        return DevicesReply(devices=(), simulated=False)
    runs_on: dict[str, set[str]] = {}
    if soft.host_view is not None:
        names = {row.run_key: row.run_id for row in soft.host_view.runs}
        for row in soft.host_view.allocations:
            if row.run_key == soft.run_key:
                continue  # our own ledger knows better, and sooner
            for uuid in row.envelope.device_uuids:
                runs_on.setdefault(uuid, set()).add(names.get(row.run_key, row.run_key[:12]))
    views = []
    stale = stale_sample(soft) is not None
    for device in sorted(soft.sample.devices, key=lambda d: d.index):
        held = [state.attempts[name] for name in sorted(state.device_holders.get(device.uuid, ()))]
        ours = held or soft.foreign_devices.get(device.uuid) == soft.run_key
        views.append(
            DeviceView(
                index=device.index,
                uuid=device.uuid,
                name=device.name,
                state="unknown" if stale else device.state,
                memory_total_mib=device.memory_total_mib,
                memory_used_mib=None if stale else device.memory_used_mib,
                utilization_pct=None if stale else device.utilization_pct,
                declared_memory_mib=sum(a.memory_mib or 0 for a in held),
                declared_utilization_pct=sum(a.utilization_pct or 0.0 for a in held),
                external_memory_mib=None if held or stale else device.memory_used_mib,
                external_utilization_pct=None if held or stale else device.utilization_pct,
                exclusive=any(a.exclusive for a in held) or device.uuid in soft.foreign_devices,
                jobs=tuple(a.job for a in held),
                runs=tuple(
                    sorted(runs_on.get(device.uuid, set()) | ({state.run_id} if ours else set()))
                ),
            )
        )
    return DevicesReply(devices=tuple(views), simulated=soft.sample.simulated)


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
    warnings = _warnings(turn)
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
        concurrency_limit=concurrency_limit(state),
        host=load,
        accelerator_probe=probe,
        queue_blocked_reasons=_blocked(turn),
        running_activity=_activity(turn),
        generation={
            "number": state.generation,
            "state": "open" if state.closed_reason is None else "closed",
            "deadline": None if state.deadline_at_ms is None else timestamp(state.deadline_at_ms),
            "cohort_size": state.cohort_size,
        },
        resource_supply={"leases": [], "idle_waiters": 0, "stats": {}, "maturity": {}},
        simulated=sample.simulated if sample is not None else False,
        epoch=state.epoch,
        sequence=state.last_sequence,
        ledger_bytes=soft.ledger_bytes,
        counters=dict(sorted(soft.counters.items())),
        at=timestamp(turn.stamp.at_ms),
    )


def _warnings(turn: Turn) -> tuple[str, ...]:
    state, soft = turn.state, turn.soft
    found = [text for _, text in sorted(soft.warnings.items())]
    found.extend(f"{name}: unreadable record" for name in soft.unreadable)
    undeclared = sorted({lane[1] for lane in soft.queue.sizes} - set(state.policy.profiles))
    found.extend(
        f"queued jobs need profile {name!r}, which the contract in force does not declare"
        for name in undeclared
    )
    if not soft.launcher_ready:
        found.append("the launcher does not answer: nothing starts")
    stale = stale_sample(soft)
    if stale is not None:
        found.append(f"{stale}: nothing that needs a device starts")
    silence = registry_silence(soft)
    if silence is not None:
        found.append(f"{silence}: nothing starts")
    if soft.low_space:
        found.append("the ledger's disk is full: submissions are refused")
    if state.closed_reason is not None:
        found.append(f"admission is closed: {state.closed_reason}")
    if soft.held:
        found.append("admission is held for a drain: nothing starts")
    for attempt in state.attempts.values():
        if attempt.stuck_pids:
            pids = ", ".join(str(pid) for pid in attempt.stuck_pids[:5])
            found.append(f"{attempt.attempt} cannot be ended: {pids}")
    if soft.lacking_credentials:
        number = len(soft.lacking_credentials)
        found.append(f"{number} job{' waits' if number == 1 else 's wait'} for credentials")
    return tuple(found)


def _blocked(turn: Turn) -> dict[str, int]:
    """Queued jobs by the coarse word of what blocks them, worked out once a lane."""
    state, soft = turn.state, turn.soft
    viewer = Viewer(state, soft)
    found: dict[str, int] = {}
    for lane, size in soft.queue.sizes.items():
        head = soft.queue.head(lane)
        if head is None:
            continue
        view = viewer.job(state.jobs[head])
        word = view.queue_blocked_reason or "starting"
        found[word] = found.get(word, 0) + size
    for name in soft.held_back:
        word = viewer.job(state.jobs[name]).queue_blocked_reason or "starting"
        found[word] = found.get(word, 0) + 1
    return found


def _activity(turn: Turn) -> dict[str, Any]:
    phases: dict[str, int] = {}
    for attempt in turn.state.attempts.values():
        word = "unknown" if attempt.device_uuids else "non_gpu_allocation"
        phases[word] = phases.get(word, 0) + 1
    return {"lifecycle_running": len(turn.state.attempts), "by_resource_phase": phases}
