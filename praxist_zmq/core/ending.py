"""How a job ended, in words, and what its peer can do about it."""

from __future__ import annotations

from ..errors import PraxistError
from . import leftovers
from .generation_gate import generation_refusal
from .retry_of import tag_words
from .state import Job
from .submit import check_open, retry_when
from .transitions import RETRIABLE
from .turn import Turn
from .views import cancelled_words


def ending_words(turn: Turn, job: Job) -> str:
    """One sentence about a job that does not wait."""
    if job.state == "running":
        words = "running" if job.cancel_reason is None else f"ending: {job.cancel_reason}"
        attempt = turn.state.live_attempt(job)
        more = None if attempt is None else leftovers.verdict(attempt, turn.soft)
        return words if more is None else f"{words}; {more}"
    if job.state == "cancelled" and job.reject_code is not None:
        return f"{cancelled_words(job.reject_detail or '')} (before it started)"
    if job.state == "rejected":
        return f"rejected ({job.reject_code}): {job.reject_detail}"
    if job.state == "drained_unknown":
        return "outcome unknown: the record of its end was lost"
    how = f"signal {job.signal}" if job.signal is not None else f"exit {job.exit_code}"
    if job.state == "cancelled":
        how = how if job.exit_code is not None or job.signal is not None else "its end is unknown"
        return f"{cancelled_words(job.cancel_reason or '')} ({how})"
    text = f"{job.state}, {how}"
    return f"{text}: {job.failure_signature}" if job.failure_signature else text


def ending_options(turn: Turn, job: Job) -> tuple[str, ...]:
    """What to do next, and whether an explicit retry would be taken now."""
    given_back = tag_words(turn.state, job)
    if given_back is not None:
        return (given_back,)
    if job.state in RETRIABLE:
        read = (f"read it: praxist-zmq logs {job.job}",) if job.attempt else ()
        refused = _retry_refused(turn, job)
        if refused is not None:
            return (*read, f"a retry would be refused now: {refused}")
        return (
            *read,
            f"{retry_when(job)}: praxist-zmq retry {job.job} [-- CMD...]",
            "the same launch with --retry-terminal would be accepted too",
        )
    if job.state == "drained_unknown":
        return (
            "look at the log and the results; it is not run again by itself",
            f"read it: praxist-zmq logs {job.job}",
            f"run it again, whatever effect it had: praxist-zmq retry --lost {job.job}",
        )
    if job.state == "running":
        attempt = turn.state.live_attempt(job)
        more = () if attempt is None else leftovers.options(job, attempt, turn.soft)
        return (*more, f"follow it: praxist-zmq logs -f {job.job}")
    return ()


def _retry_refused(turn: Turn, job: Job) -> str | None:
    if job.profile not in turn.state.policy.profiles:
        return f"the contract in force does not declare profile {job.profile!r}"
    late = generation_refusal(
        job.generation, job.profile, job.work_class, job.eta_ms, turn.state, turn.soft
    )
    if late is not None:
        return late.detail
    try:
        check_open(turn, job.profile)
    except PraxistError as error:
        return error.detail
    return None
