"""Whether a process that ended may be started again. Pure: time comes in.

The rule is Erlang/OTP's restart intensity: more than `limit` restarts within `period_ms`, over
all processes together, means that restarting does not help; the supervisor then stops everything
and says why, instead of looping. An exit code that names a permanent cause (a damaged or
unwritable ledger, an unusable path, a contract that is invalid or can run nothing here) is never
answered with a restart; one that names a passing cause (a full disk) is answered with one every few
seconds, without a limit.
"""

from __future__ import annotations

import os
from collections import deque

from ..core.host_shortage import LACKS

RESTARTS_MAX = 5
PERIOD_MS = 10_000
STARTS_IN_VAIN_MAX = 3
"""Ends in a row of a process that was never ready, while the run starts. It needs a limit of its
own: one that takes seconds to fail stays below the intensity for ever."""
PERMANENT_EXIT_CODES = frozenset({65, 73, 74, 78})
PASSING_EXIT_CODE = 75
"""How a process ends that found no room on the disk."""


def likely_cause(words: str) -> list[str]:
    """What the last words of a process point to, and how to mend it; empty when unknown."""
    return [
        f"the host seems to lack {lack.what}: {lack.mend}"
        for number, lack in LACKS.items()
        if os.strerror(number) in words
    ][:1]


class RestartIntensity:
    """Counts restarts in a moving window."""

    def __init__(self, limit: int = RESTARTS_MAX, period_ms: int = PERIOD_MS) -> None:
        self._limit = limit
        self._period_ms = period_ms
        self._restarts: deque[int] = deque()

    def allow(self, now_ms: int) -> bool:
        """Count one restart at `now_ms` (any monotonic clock). False: it would be one too many."""
        while self._restarts and now_ms - self._restarts[0] >= self._period_ms:
            self._restarts.popleft()
        if len(self._restarts) >= self._limit:
            return False
        self._restarts.append(now_ms)
        return True


def is_permanent(exit_code: int | None) -> bool:
    """Whether an exit code names a cause that a restart cannot mend."""
    return exit_code in PERMANENT_EXIT_CODES


def is_passing(exit_code: int | None) -> bool:
    """Whether an exit code names a cause that passes without us, but not within seconds."""
    return exit_code == PASSING_EXIT_CODE
