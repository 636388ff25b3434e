"""The only reading of the clock.

Durations use CLOCK_BOOTTIME, which counts time asleep and never steps; the wall clock is for
people. Source: clock_gettime(2).
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Something that tells the time; a test may hold it still."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for people."""
        ...

    def mono_ms(self) -> int:
        """CLOCK_BOOTTIME in milliseconds, for durations."""
        ...


class SystemClock:
    """The kernel's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for people."""
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        """CLOCK_BOOTTIME in milliseconds, for durations."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def pause_ms(duration: int) -> None:
    """Sleep: only for a wait that nothing in the kernel can end."""
    time.sleep(duration / 1000)
