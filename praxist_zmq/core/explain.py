"""Why a job waits, with every gate, and what would start it; how it ended; whether a profile fits.

The gates are those of admission itself, in a fixed order, passed or not. A blocked gate and a
blocker are the same thing told twice. Source: the reference of the commands (`explain`).
"""

from __future__ import annotations

from typing import Any

from ..protocol import requests as req
from ..protocol.policy import Profile
from ..protocol.replies import Explanation, Gate
from ..protocol.views import Blocker, DeviceVerdict, JobView
from .admission import (
    Gates,
    ProfileGates,
    peer_blocker,
    profile_gates,
    run_gates,
    spokesman,
)
from .demand import demand_of
from .device_verdicts import device_verdicts, fit_when_empty
from .ending import ending_options, ending_words
from .forecast import estimate, would_start
from .generation_gate import time_left_ms
from .lease_explain import explain_lease
from .placement import never_fits, stale_sample
from .pressure import pressure_options
from .queue import CLASS_RANK, lane_of
from .reservation import newcomer
from .selectors import select
from .slots import planned_by_peer, running_of
from .soft import SoftState
from .state import Job
from .survey import look_round
from .timestamps import rfc3339
from .turn import Refused, Turn
from .views import Viewer
from .what_if import WhatIf

ORDER = (
    "admission", "recovery", "disk", "host", "retry pause", "peer cap", "run limit", "host limit",
    "pressure", "pause", "class order", "queue order", "devices", "credentials", "registry",
)  # fmt: skip
"""How the gates are told, whatever the order in which admission asks."""
OF_THE_JOB = {"peer_cap", "credentials_missing", "retry_pause"}
"""Blockers that another profile would not take away."""
AHEAD_SHOWN = 3
PROFILES_SHOWN = 3
PROFILES_LOOKED_AT = 16


def explain(turn: Turn, request: req.ExplainJob) -> Explanation:
    """Why a job waits or how it ended, or whether a profile can ever run here."""
    if request.subject.startswith("profile:"):
        return _explain_profile(turn, request.subject[len("profile:") :])
    if request.subject.startswith("lease:"):
        return explain_lease(turn, request.subject[len("lease:") :])
    job = select(turn.state, request.subject)
    view = Viewer(turn.state, turn.soft).job(job)
    if job.state == "queued":
        return _waiting(turn, job, view)
    return Explanation(
        job=view,
        verdict=ending_words(turn, job),
        position=None,
        gates=(),
        blockers=(),
        options=ending_options(turn, job),
        snapshot=snapshot(turn),
    )


# -- a waiting job ---------------------------------------------------------------------------


def _waiting(turn: Turn, job: Job, view: JobView) -> Explanation:
    state, soft = turn.state, turn.soft
    profile = state.policy.profiles.get(job.profile)
    entries = would_start(job, state, soft) if view.blockers else ()
    verdict = f"waits: {view.blockers[0].detail}" if view.blockers else "it is being started"
    return Explanation(
        job=view,
        verdict=verdict,
        position=_position(job, soft),
        gates=_gates(turn, job, view.blockers),
        blockers=view.blockers,
        options=_options(turn, job, view.blockers),
        devices=_devices(turn, job, profile),
        would_start=entries,
        start_estimate=estimate(entries),
        snapshot=snapshot(turn),
    )


def _position(job: Job, soft: SoftState) -> int | None:
    """The job's place in queue order; the one for which devices are kept is first."""
    place = soft.queue.position(job.job)
    kept = soft.reservation
    if place is None or kept is None:
        return place
    if kept.job == job.job:
        return 1
    behind = soft.queue.position(kept.job)
    return place if behind is None or behind < place else place + 1


def _gates(turn: Turn, job: Job, blockers: tuple[Blocker, ...]) -> tuple[Gate, ...]:
    """Every gate in the fixed order."""
    state, soft = turn.state, turn.soft
    run = run_gates(state, soft)
    asked = spokesman(job, state, soft)
    lane = profile_gates(asked.profile, asked, state, soft)
    told = {gate.name: gate for gate in (*run.gates, *lane.gates)}
    if told["admission"].state == "ok":
        told["admission"] = Gate(
            name="admission", state="ok", detail=_generation(turn, job.generation)
        )
    planned = planned_by_peer(state, soft)
    capped = peer_blocker(job, state, planned)
    running = running_of(job.peer, state, planned)
    cap = state.policy.max_parallel_runs_per_peer
    bound = f" of {cap}" if cap is not None else ", no cap"
    told["peer cap"] = _gate("peer cap", capped, f"{job.peer} runs {running}{bound}")
    alone = "no other run holds a slot" if soft.host_view is not None else "not known yet"
    told.setdefault("host limit", _gate("host limit", None, alone))
    told["class order"] = _gate("class order", None, _ahead(turn, job))
    by_code = {blocker.code: blocker for blocker in blockers}
    told["queue order"] = _gate("queue order", by_code.get("queue_order"), _place(turn, job))
    told["credentials"] = _gate(
        "credentials", by_code.get("credentials_missing"), "all values are in memory"
    )
    told["retry pause"] = _gate(
        "retry pause", by_code.get("retry_pause"), "no attempt of it has just failed"
    )
    denied = blockers[-1] if job.job in soft.held_back and blockers else None
    if denied is not None or "registry" not in told:
        told["registry"] = _gate("registry", denied, "has denied nothing")
    return tuple(told[name] for name in ORDER if name in told)


def _gate(name: str, blocker: Blocker | None, ok_words: str) -> Gate:
    if blocker is None:
        return Gate(name=name, state="ok", detail=ok_words)
    return Gate(name=name, state="blocked", detail=blocker.detail)


def _generation(turn: Turn, generation: int) -> str:
    current = turn.state.generations[generation]
    left_ms = time_left_ms(current, turn.soft)
    words = f"generation {generation} is {current.phase}"
    if left_ms is None:
        return f"{words}, no deadline"
    left_s = max(0, round(left_ms)) // 1000
    if left_s < 600:
        return f"{words}, deadline in {left_s // 60}m{left_s % 60:02d}s"
    return f"{words}, deadline in {left_s // 3600}h{left_s % 3600 // 60:02d}m"


def _ahead(turn: Turn, job: Job) -> str:
    """Who goes before the job in other lanes, and what holds them."""
    state, soft = turn.state, turn.soft
    if soft.reservation is not None and soft.reservation.job == job.job:
        return "devices are kept for it, so it goes before all others"
    viewer = Viewer(state, soft)
    mine = (CLASS_RANK[job.work_class], job.queue_sequence)
    non_mature_first = state.policy.exploration_reserve > soft.active_non_mature
    told: list[str] = []
    more = 0
    for lane, name in soft.queue.heads(non_mature_first):
        if lane == lane_of(job):
            break
        if len(told) == AHEAD_SHOWN:
            more += 1
            continue
        other = state.jobs[name]
        codes = ", ".join(blocker.code for blocker in viewer.blockers(other))
        held = f"is held itself ({codes})" if codes else "goes first"
        told.append(f"{name} ({other.work_class}) is ahead and {held}")
    if soft.reservation is not None:
        told.append(f"devices are kept for {soft.reservation.job}")
    if more:
        told.append(f"{more} more are ahead")
    return "; ".join(told) or f"no other kind of job is ahead of this one ({_class(mine[0])})"


def _class(rank: int) -> str:
    return next(name for name, number in CLASS_RANK.items() if number == rank)


def _place(turn: Turn, job: Job) -> str:
    ahead = turn.soft.queue.ahead_in_lane(job.job)
    if not ahead:
        return "first of its class and profile"
    verb = "job" if ahead == 1 else "jobs"
    return f"{ahead} {verb} of its class and profile queued before it"


def _devices(turn: Turn, job: Job, profile: Profile | None) -> tuple[DeviceVerdict, ...]:
    """The device table. What is planned for the job itself is not in its own way."""
    if profile is None or profile.accelerator == "cpu":
        return ()
    demand = demand_of(profile)
    what_if = WhatIf(turn.state, turn.soft)
    what_if.withdraw(job.job)
    state, soft = what_if.state, what_if.soft
    return device_verdicts(
        demand, look_round(demand, state, soft, newcomer(job, state, soft)), soft
    )


def _options(turn: Turn, job: Job, blockers: tuple[Blocker, ...]) -> tuple[str, ...]:
    told = [f"wait: praxist-zmq wait {job.job}"]
    codes = {blocker.code for blocker in blockers}
    if "credentials_missing" in codes:
        told.append("send the same request again: that brings the credential values back")
    profile = turn.state.policy.profiles.get(job.profile)
    alone = {"gpu_needs_exclusive", "gpu_held_exclusive"} & codes
    if alone and profile is not None and demand_of(profile).exclusive:
        told.append(
            f"{job.profile} does not declare its demand, so it needs devices alone; the contract "
            "can declare it: praxist-zmq config explain gpu_memory_gb"
        )
    told += pressure_options(job.profile, blockers)
    if codes and not codes & OF_THE_JOB:
        told += _other_profiles(turn, job)
    told.append(f"withdraw: praxist-zmq cancel {job.job}")
    return tuple(told)


def _other_profiles(turn: Turn, job: Job) -> list[str]:
    """Profiles of the contract that would start now. None is ever chosen for a peer."""
    state, soft = turn.state, turn.soft
    if run_gates(state, soft).blockers:
        return []
    if peer_blocker(job, state, planned_by_peer(state, soft)) is not None:
        return []
    others = [name for name in state.policy.profiles if name != job.profile][:PROFILES_LOOKED_AT]
    free = [name for name in others if not profile_gates(name, None, state, soft).blockers]
    return [
        f"use {name}, which would start now, only if the task calls it equivalent "
        "(this contract does not)"
        for name in free[:PROFILES_SHOWN]
    ]


# -- the facts -------------------------------------------------------------------------------


def snapshot(turn: Turn) -> dict[str, Any]:
    """The facts an explanation rests on, with their ages."""
    state, soft = turn.state, turn.soft
    age_ms = soft.sample_age_ms()
    words = {load.attribution for load in soft.fleet.loads(state)}
    silent_ms = soft.registry_silence_ms()
    return {
        "sample_age_s": None if age_ms is None else max(0, age_ms) / 1000,
        "sample_stale": stale_sample(soft) is not None,
        "attribution": next(
            (word for word in ("unavailable", "partial", "complete") if word in words), None
        ),
        "host_view_version": None if soft.host_view is None else soft.host_view.version,
        "registry": "away" if not soft.registry_ready else ("silent" if silent_ms else "answers"),
        "eta_endings": state.calibration.observed,
        "limit": state.limit,
        "limit_before": state.limit_before,
        "limit_reason": state.limit_reason or None,
        "limit_changed_at": rfc3339(state.limit_changed_at_ms),
        "epoch": state.epoch,
        "sequence": state.last_sequence,
        "at": rfc3339(turn.stamp.at_ms),
        "simulated": soft.simulated,
    }


# -- a profile -------------------------------------------------------------------------------


def _explain_profile(turn: Turn, name: str) -> Explanation:
    state, soft = turn.state, turn.soft
    profile = state.policy.profiles.get(name)
    if profile is None:
        declared = ", ".join(sorted(state.policy.profiles))
        raise Refused(
            "unknown_profile", f"profile {name!r} is not declared", [f"declared: {declared}"]
        )
    run = run_gates(state, soft)
    lane = profile_gates(name, None, state, soft)
    blockers = run.blockers + lane.blockers
    empty, ever = _empty_host(turn, profile)
    if ever is not None:
        verdict = f"can never run here: {ever}"
    elif blockers:
        verdict = f"a job of it would wait: {blockers[0].detail}"
    else:
        verdict = "a job of it would start now"
    devices: tuple[DeviceVerdict, ...] = ()
    if profile.accelerator == "gpu":
        demand = demand_of(profile)
        devices = device_verdicts(demand, look_round(demand, state, soft), soft)
    return Explanation(
        job=None,
        verdict=verdict,
        position=None,
        gates=(empty, *_in_order(run, lane)),
        blockers=blockers,
        options=(),
        devices=devices,
        snapshot=snapshot(turn),
    )


def _in_order(run: Gates, lane: ProfileGates) -> list[Gate]:
    told = {gate.name: gate for gate in (*run.gates, *lane.gates)}
    return [told[name] for name in ORDER if name in told]


def _empty_host(turn: Turn, profile: Profile) -> tuple[Gate, str | None]:
    """Whether the profile would run if nothing else did, and why it never can."""
    sample = turn.soft.sample
    if profile.accelerator == "cpu":
        return Gate(name="empty host", state="ok", detail="needs no device"), None
    if sample is None or stale_sample(turn.soft) is not None or sample.probe_state == "unknown":
        return Gate(name="empty host", state="unknown", detail="the devices are not known"), None
    ever = never_fits(profile, sample)
    fit = fit_when_empty(demand_of(profile), sample.devices)
    words = f"{fit} of {len(sample.devices)} devices would fit, needs {profile.gpu_count}"
    if ever is not None:
        return Gate(name="empty host", state="blocked", detail=ever[:500]), ever
    state = "ok" if fit >= profile.gpu_count else "unknown"  # a lost device may come back
    return Gate(name="empty host", state=state, detail=words), None  # type: ignore[arg-type]
