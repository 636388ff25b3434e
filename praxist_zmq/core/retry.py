"""What follows from the way an attempt ended. Only exit 75 is retried by itself.

Sources: seed 000 "Submission" (exit 75, infrastructure_retries); design 5 (a program that cannot be
executed is a permanent failure; an unknown end is never success).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..protocol.events import FailureCategory

EXIT_TEMPORARY = 75
WITHDRAWN_IN_A_ROW_MAX = 5
"""An attempt that never ran costs no retry; this many in a row, for no reason that is known, end
the job. What the host lacks is a known reason."""


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Either another attempt, or the job's end."""

    again: bool
    reason: Literal["exit_75", "never_ran", "spawn_failed", "host_shortage", "lost"] | None = None
    consumed: bool = False
    state: Literal["completed", "failed", "cancelled", "drained_unknown"] | None = None
    category: FailureCategory | None = None


def decide_retry(
    *,
    outcome: str,
    exit_code: int | None,
    permanent: bool,
    retries_used: int,
    retries_allowed: int,
    withdrawn_in_a_row: int,
    cut_short: bool,
    ending: bool,
    lacking: bool = False,
    free: bool = False,
    rerun_lost: bool = False,
) -> RetryDecision:
    """The consequence of an attempt's end.

    `cut_short` says that we ended it (`ended_by_us`), `ending` that the run or its generation takes
    no more: then nothing is tried again. `lacking`: it never ran because the host lacked something;
    `free`: another attempt is no retry of its own, for it tried a placement that all wait for.
    `rerun_lost`: its profile wants it run again where its end is not known.
    """
    if cut_short:
        return RetryDecision(False, state="cancelled", category="interrupted")
    if outcome == "unknown":
        if rerun_lost and not ending and retries_used < retries_allowed:
            return RetryDecision(True, reason="lost", consumed=True)
        return RetryDecision(False, state="drained_unknown")
    if outcome == "never_ran":
        if lacking:
            return RetryDecision(True, reason="host_shortage")
        if withdrawn_in_a_row + 1 >= WITHDRAWN_IN_A_ROW_MAX:
            return RetryDecision(False, state="failed", category="infrastructure")
        return RetryDecision(True, reason="never_ran", consumed=False)
    if outcome == "exec_failed":
        return RetryDecision(False, state="failed")
    if outcome == "spawn_failed" and permanent:
        return RetryDecision(False, state="failed", category="environment")
    if outcome == "exited" and exit_code == 0:
        return RetryDecision(False, state="completed")
    temporary = outcome == "spawn_failed" or exit_code == EXIT_TEMPORARY
    if free and exit_code == EXIT_TEMPORARY and not ending:
        return RetryDecision(True, reason="exit_75")
    if temporary and not ending and retries_used < retries_allowed:
        reason: Literal["exit_75", "spawn_failed"] = (
            "spawn_failed" if outcome == "spawn_failed" else "exit_75"
        )
        return RetryDecision(True, reason=reason, consumed=True)
    category: FailureCategory | None = None
    if ending:
        category = "interrupted"
    elif temporary:
        category = "infrastructure"
    return RetryDecision(False, state="failed", category=category)
