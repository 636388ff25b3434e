"""Take back what was only planned: a placement that nobody needs, a job that will not run."""

from __future__ import annotations

from ..protocol import events as ev
from ..protocol.ids import attempt_id
from . import start_gate
from .next_number import next_attempt
from .soft import Plan
from .state import Job
from .storm import withdraw
from .turn import Turn


def drop_plan(turn: Turn, attempt: str, put_back: bool) -> Plan | None:
    """A plan is over. Put its job back in its place, if asked and if it still waits."""
    soft = turn.soft
    found = soft.plans.pop(attempt, None)
    if found is None:
        return None
    soft.fleet.drop_plan(attempt, found.envelope)
    soft.unlooked.pop(attempt, None)
    job = turn.state.jobs.get(found.job)
    if put_back and job is not None and job.state == "queued":
        soft.begun_ms.pop(attempt, None)
        withdraw(soft, attempt)
        start_gate.withdraw(soft, attempt)
        soft.queue.put(job)
    if job is not None:
        # What it stood for does not count for its peer any more; an attempt that comes of it does.
        soft.queue.unpark(job.peer)
    return found


def reject(turn: Turn, job: Job, code: str, detail: str, *, frees_identity: bool) -> None:
    """A queued job will not run; durable before anybody is told."""
    turn.soft.queue.remove(job.job)
    turn.soft.held_back.pop(job.job, None)
    turn.soft.pauses.pop(job.job, None)
    turn.soft.lacking_credentials.pop(job.job, None)
    turn.soft.vault.drop(job.job)
    # The registry may be about to commit its plan; the answer is then released at once.
    planned = next_attempt(job, turn.soft)
    drop_plan(turn, planned, put_back=False)
    withdraw(turn.soft, planned)
    start_gate.withdraw(turn.soft, planned)
    turn.record(
        ev.JobRejected(
            at_ms=turn.stamp.at_ms,
            job=job.job,
            state="cancelled" if code == "cancelled" else "rejected",
            code=code,
            detail=detail[:1000],
            frees_identity=frees_identity,
        )
    )


def end_without_attempt(turn: Turn, job: Job) -> None:
    """The record of its end is unreadable, the one of its release is not: nothing is left of
    it, and nobody would ever tell who waits for it."""
    reason = turn.soft.unreadable.get(job.job, "it runs without an allocation")
    turn.record(
        ev.JobFinished(
            at_ms=turn.stamp.at_ms,
            job=job.job,
            attempt=job.attempt or attempt_id(job.job, max(job.attempt_counter, 1)),
            state="drained_unknown",
            exit_code=None,
            signal=None,
            failure_category=None,
            failure_signature=f"a record of it is unreadable: {reason}"[:320],
        )
    )
