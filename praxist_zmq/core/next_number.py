"""The numbers of the next job and attempt: none that anything on disk has, in the ledger or not."""

from __future__ import annotations

from ..protocol.ids import attempt_id, job_id
from .soft import SoftState
from .state import BrokerState, Job


def next_job_number(state: BrokerState, soft: SoftState) -> int:
    """Of the next job."""
    number = state.last_job_number + 1
    while job_id(number) in soft.numbers_taken:
        number += 1
    return number


def next_attempt(job: Job, soft: SoftState) -> str:
    """The name of a job's next attempt."""
    number = job.attempt_counter + 1
    while attempt_id(job.job, number) in soft.numbers_taken:
        number += 1
    return attempt_id(job.job, number)
