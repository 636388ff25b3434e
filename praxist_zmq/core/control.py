"""What an operator or owner may do to accepted work: cancel, retry, hold, stop.

Sources: interface "Command"; seed 000 "Timing And Close" (a rejection is durable before it is
told; stop fences first).
"""

from __future__ import annotations

from ..errors import PraxistError
from ..protocol import events as ev
from ..protocol import requests as req
from ..protocol.replies import CancelledJobs, CancelResult, Done, Refusal, Stopping, Submitted
from ..protocol.text import OsText
from . import leftovers
from .attempts import end
from .commands import ClientRequest
from .credentials import redact, restore_command
from .recall import call_back
from .retry_of import check_tag
from .selectors import select
from .state import Job
from .submit import submit
from .turn import Refused, Turn
from .withdraw import reject

CANCEL_GRACE_MS = 5_000
STOPPED = "the run was stopped"


def cancel(turn: Turn, request: req.CancelJobs, uid: int | None) -> CancelledJobs:
    """Withdraw queued jobs; end running ones when asked to."""
    return CancelledJobs(results=tuple(_cancel(turn, request, uid, name) for name in request.jobs))


def _cancel(turn: Turn, request: req.CancelJobs, uid: int | None, name: str) -> CancelResult:
    try:
        job = select(turn.state, name)
    except PraxistError as error:
        return CancelResult(job=name, outcome="refused", code=error.code, detail=error.detail)

    def refused(code: str, detail: str) -> CancelResult:
        return CancelResult(job=job.job, outcome="refused", code=code, detail=detail)

    if request.peer is not None and request.peer != job.peer:
        return refused("not_yours", f"{job.job} belongs to {job.peer}")
    reason = redact(request.reason, turn.secrets_of(job.job))
    if job.state == "queued":
        never_ran = request.admission_timeout and job.attempts_used == 0
        if request.admission_timeout:
            detail = "not started in the time allowed"
            reject(turn, job, "admission_timeout", detail, frees_identity=never_ran)
        else:
            reject(turn, job, "cancelled", reason, frees_identity=False)
        return CancelResult(
            job=job.job, outcome="cancelled", code=None, detail=reason, frees_tag=never_ran
        )
    if job.state != "running":
        return refused("not_cancellable", f"it already ended as {job.state}")
    if request.admission_timeout:
        return refused("job_runs", "it already started")
    if not request.running and not request.presume_dead:
        return refused("job_runs", "it is running; ending it needs --yes")
    if request.presume_dead:
        if request.peer is not None:
            return refused("not_yours", "only the operator, not a peer, may presume its end")
        try:
            leftovers.presume_dead(turn, job, reason, uid)
        except PraxistError as error:
            return refused(error.code, error.detail)
    _end_running(turn, job, reason, CANCEL_GRACE_MS)
    waits = _whom_it_waits_for(turn, job)
    detail = reason if request.presume_dead or waits is None else f"{reason}; {waits}"
    return CancelResult(job=job.job, outcome="ending", code=None, detail=detail[:1000])


def _whom_it_waits_for(turn: Turn, job: Job) -> str | None:
    attempt = turn.state.live_attempt(job)
    return None if attempt is None else leftovers.note(attempt, turn.soft)


def _end_running(turn: Turn, job: Job, reason: str, grace_ms: int) -> None:
    if job.cancel_reason is None:
        turn.record(
            ev.JobCancelRequested(
                at_ms=turn.stamp.at_ms, job=job.job, reason=reason[:1000], grace_ms=grace_ms
            )
        )
    attempt = turn.state.live_attempt(job)
    if attempt is not None:
        end(turn, attempt, grace_ms)


def retry(turn: Turn, command: ClientRequest, request: req.RetryJob) -> Submitted | Refusal:
    """`submit` with `retry_terminal` under what is stored."""
    job = select(turn.state, request.job)
    check_tag(turn.state, job)
    stored = _stored_command(job, request)
    if job.profile not in turn.state.policy.profiles:
        raise Refused("unknown_profile", f"profile {job.profile!r} is no longer declared")
    cwd = request.cwd if request.cwd is not None else job.cwd
    environment = request.environment
    if "PWD" in environment:
        # Where the sender's shell is, not where the experiment is to work.
        environment = {**environment, "PWD": cwd}
    return submit(
        turn,
        command,
        req.SubmitJob(
            peer=request.peer or job.peer,
            tag=job.tag,
            command=stored,
            cwd=cwd,
            environment=environment,
            profile=job.profile,
            work_class=job.work_class,
            eta_seconds=None if job.eta_ms is None else job.eta_ms / 1000,
            generation=job.generation,
            retry_terminal=True,
            lost=request.lost,
            not_secret=job.not_secret,
            retry_of=request.retry_of,
        ),
    )


def _stored_command(job: Job, request: req.RetryJob) -> tuple[OsText, ...]:
    if request.command is not None:
        return request.command
    command = restore_command(job.command, request.environment)
    if command is None:
        raise Refused(
            "bad_command",
            "the stored command needs a credential variable that your environment lacks",
            [f"give the command again: praxist-zmq retry {job.job} -- CMD..."],
        )
    return command


def hold(turn: Turn, request: req.HoldAdmission) -> Done:
    """Start nothing more, until it is released or the scheduler is started again. What is queued
    stays queued."""
    turn.soft.held = request.held
    call_back(turn)
    return Done()


def stop(turn: Turn, request: req.StopRun) -> Stopping:
    """Fence the run, reject its queue, end what runs."""
    state, soft = turn.state, turn.soft
    queued = [job for job in state.jobs.values() if job.state == "queued"]
    running = [job for job in state.jobs.values() if job.state == "running"]
    answer = Stopping(
        dry_run=request.dry_run,
        rejected=tuple(job.job for job in queued),
        ending=tuple(job.job for job in running),
    )
    if request.dry_run:
        return answer
    if state.closed_reason != STOPPED:
        turn.record(ev.AdmissionClosed(at_ms=turn.stamp.at_ms, reason=STOPPED))
    soft.stopping = True
    _end_all(turn, queued, running, round(request.grace_seconds * 1000))
    return answer


def resume_stop(turn: Turn) -> None:
    """After a restart: what a stop may not have got to is done, with the grace of a cancel where
    its own is not on disk."""
    jobs = list(turn.state.jobs.values())
    queued = [job for job in jobs if job.state == "queued"]
    running = [job for job in jobs if job.state == "running" and job.cancel_reason is None]
    _end_all(turn, queued, running, CANCEL_GRACE_MS)


def _end_all(turn: Turn, queued: list[Job], running: list[Job], grace_ms: int) -> None:
    for job in queued:
        reject(turn, job, "admission_closed", STOPPED, frees_identity=False)
    for job in running:
        _end_running(turn, job, STOPPED, grace_ms)
