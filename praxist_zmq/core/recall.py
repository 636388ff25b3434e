"""Whether an attempt that has not begun may still begin, and calling back those that may not.

The record that forbids a start is on disk before this order leaves. GO may be with the launcher or
the shim by then: it is called back, and the shim's answer says what happened. Rules: seed 000
"Timing And Close" (nothing starts after a freeze, whatever was due).
"""

from __future__ import annotations

from ..protocol.orders import AbandonAttempt
from .admission import halted_words
from .generation_gate import takes_class
from .soft import SoftState
from .state import Attempt, BrokerState
from .turn import Turn


def wanted(attempt: Attempt, state: BrokerState, soft: SoftState) -> bool:
    """Whether nothing that is on record, or set for now, forbids an attempt to begin."""
    job = state.jobs[attempt.job]
    if job.cancel_reason is not None or halted_words(state, soft) is not None:
        return False
    return takes_class(job.generation, job.work_class, state)


def call_back(turn: Turn) -> None:
    """Those that have not begun, as far as is known, and may not any more, never will: each of
    them ends at its barrier, or says that it runs already."""
    for attempt in turn.state.attempts.values():
        if attempt.phase in ("allocated", "bound") and not wanted(attempt, turn.state, turn.soft):
            turn.order(AbandonAttempt(attempt=attempt.attempt))
