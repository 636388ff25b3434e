"""The life of a job and of an attempt, as tables. Everything about allowed order lives here.

An event without a row is illegal: it raises and changes nothing. `docs/states.md` is drawn from
these tables.
"""

from __future__ import annotations

START = "none"

JOB: dict[tuple[str, str], tuple[str, ...]] = {
    (START, "job_queued"): ("queued",),
    ("queued", "attempt_allocated"): ("running",),
    ("queued", "job_rejected"): ("cancelled", "rejected"),
    ("running", "job_cancel_requested"): ("running",),
    ("running", "job_requeued"): ("queued",),
    ("running", "job_finished"): (
        "completed",
        "failed",
        "cancelled",
        "drained_unknown",
    ),
    ("failed", "job_retried"): ("queued",),
    ("cancelled", "job_retried"): ("queued",),
    ("rejected", "job_retried"): ("queued",),
    ("drained_unknown", "job_retried"): ("queued",),
}
"""(state, event kind) -> states it may lead to. An event that carries the state chooses."""

LOST = "drained_unknown"
"""It ran and is gone, and no record tells how it ended: run again by a word of its own alone."""
RETRIABLE = frozenset(state for state, event in JOB if event == "job_retried") - {LOST}
"""States in which a job may be run again on request."""

ATTEMPT: dict[tuple[str, str], str] = {
    (START, "attempt_allocated"): "allocated",
    ("allocated", "attempt_bound"): "bound",
    ("bound", "attempt_launched"): "running",
    ("allocated", "attempt_exited"): "exited",
    ("bound", "attempt_exited"): "exited",
    ("running", "attempt_exited"): "exited",
    ("allocated", "attempt_stuck"): "allocated",
    ("bound", "attempt_stuck"): "bound",
    ("running", "attempt_stuck"): "running",
    ("exited", "attempt_stuck"): "exited",
    ("exited", "allocation_released"): "released",
    **{
        (phase, event): phase
        for phase in ("allocated", "bound", "running", "exited")
        for event in ("attempt_found", "attempt_presumed_dead")
    },
}
"""(phase, event kind) -> phase."""


class IllegalTransition(Exception):
    """An event that the tables do not allow: the ledger or the program is wrong."""

    def __init__(self, subject: str, state: str, event: str) -> None:
        super().__init__(f"{subject} is {state}; {event} is not allowed there")


def next_job_state(job: str, state: str, event: str, wanted: str | None = None) -> str:
    """The state after `event`. Raises IllegalTransition."""
    allowed = JOB.get((state, event))
    if allowed is None or (wanted is not None and wanted not in allowed):
        raise IllegalTransition(job, state, event)
    return wanted if wanted is not None else allowed[0]


def next_attempt_phase(attempt: str, phase: str, event: str) -> str:
    """The phase after `event`. Raises IllegalTransition."""
    try:
        return ATTEMPT[(phase, event)]
    except KeyError:
        raise IllegalTransition(attempt, phase, event) from None
