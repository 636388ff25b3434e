"""A retry by hand is one attempt of one job: of which job, and after which attempt.

A job that nothing ran of may have given its tag back; the tag is another job's then, or free, and
no retry of the one may touch the other. A retry that names the attempt it follows runs once: asked
again, under whatever request id, it is answered from what has happened since.
Source: promise 2 (resending after any failure is always safe).
"""

from __future__ import annotations

from ..protocol.ids import job_of
from .state import BrokerState, Job
from .transitions import LOST, RETRIABLE
from .turn import Refused


def last_attempt(job: Job) -> str:
    """The attempt that a retry now would follow; `j-12.0` when none was made or kept."""
    return job.attempt or f"{job.job}.0"


def tag_words(state: BrokerState, job: Job) -> str | None:
    """What became of the tag of a job that holds it no more; None when it does."""
    holder = state.identities.get(job.identity)
    if holder == job.job:
        return None
    if holder is None:
        return "nothing of it ran and its tag is free: send it again"
    return f"nothing of it ran, and its tag is {holder}'s now"


def check_tag(state: BrokerState, job: Job) -> None:
    """Raises Refused `tag_given_back` for a job that holds its tag no more."""
    words = tag_words(state, job)
    if words is None:
        return
    holder = state.identities.get(job.identity)
    named = f"retry that one, if it is meant: praxist-zmq retry {holder}"
    help = [] if holder is None else [named, "other science needs another tag"]
    raise Refused("tag_given_back", f"{job.job}: {words}", help)


def followed_already(job: Job, retry_of: str | None) -> str | None:
    """That the named attempt was followed by another one already, in words; None when a retry of it
    is still to be made. Raises Refused `retry_conflict` for an attempt that never was."""
    ended_badly = job.state in RETRIABLE or job.state == LOST
    if retry_of is None or (ended_badly and retry_of == last_attempt(job)):
        return None
    number = int(retry_of.partition(".")[2])
    if job_of(retry_of) != job.job or number > job.attempt_counter:
        raise Refused(
            "retry_conflict",
            f"{job.job}, which holds the tag, has no attempt {retry_of}",
            [f"its last one is {last_attempt(job)}: praxist-zmq show {job.job}"],
        )
    if job.state == "queued":
        return f"{retry_of} was already followed: the next attempt waits; nothing more is run"
    return f"{retry_of} was already followed by {last_attempt(job)}; nothing more is run"


def retry_conflict(job: Job) -> str:
    """Why a retry may not change a job in its state, in words."""
    if job.state == LOST:
        return f"{job.job} is {LOST}: it ran, and nobody knows how it ended"
    return f"{job.job} is {job.state}; a changed request cannot retry it"


def lost_notes(job: Job) -> tuple[str, ...]:
    """How a job that was not run again, since nobody knows how it ended, is run again after all."""
    return tuple(retry_help(job)) if job.state == LOST else ()


def retry_help(job: Job) -> list[str]:
    """What to do about a job whose state a retry may not change."""
    if job.state == "drained_unknown":
        return [
            f"its outcome is unknown: look at its results and its log: praxist-zmq logs {job.job}",
            "its processes are proved gone; if its results are no good, run it again, whatever "
            f"effect it had: praxist-zmq retry --lost {job.job}",
        ]
    if job.state == "completed":
        return ["it has its result; give other science another tag"]
    return ["wait for it, or cancel it first"]
