"""Why a job waits, with every gate, or how it ended; whether a profile can ever run here."""

from __future__ import annotations

from ..protocol import requests as req
from ..protocol.replies import Explanation, Gate
from .admission import peer_blocker, profile_gates, run_gates
from .placement import never_fits, stale_sample
from .selectors import select
from .state import Job
from .turn import Refused, Turn
from .views import Viewer


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
    lane = profile_gates(turn.state.policy.profiles.get(job.profile), job, turn.state, turn.soft)
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
    capped = peer_blocker(job, turn.state)
    if capped is not None:
        gates = (*gates, Gate(name="peer cap", state="blocked", detail=capped.detail))
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
    sample = turn.soft.sample
    never = None if sample is None or stale_sample(turn.soft) else never_fits(profile, sample)
    run = run_gates(turn.state, turn.soft)
    lane = profile_gates(profile, None, turn.state, turn.soft)
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
