"""A descriptor that becomes readable after a time, so that whoever polls needs no clock of ours.

Decides nothing. Source: timerfd_create(2); Python has it from 3.13 on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

_CLOCK_MONOTONIC = 1
_TIMES = ctypes.c_long * 4
"""Seconds and nanoseconds of the interval, and of the first time."""


class Alarm:
    """One timer. Raises OSError when the kernel gives none."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = _checked(
            self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        )

    def fileno(self) -> int:
        """Readable once the time is over."""
        return self._descriptor

    def set(self, in_ms: int | None) -> None:
        """Go off after so long, at least a millisecond; None: not at all. Once."""
        milliseconds = 0 if in_ms is None else max(1, in_ms)
        seconds, rest = divmod(milliseconds, 1_000)
        times = _TIMES(0, 0, seconds, rest * 1_000_000)
        _checked(self._libc.timerfd_settime(self._descriptor, 0, times, None))
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 8)  # an earlier one, not to be heard any more

    def close(self) -> None:
        """Give it back."""
        os.close(self._descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
