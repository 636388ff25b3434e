"""Signals as messages: a descriptor for the poller instead of code in a handler.

Source of the rules: signal(7); Python's `signal.set_wakeup_fd`.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Literal

SignalName = Literal["end", "hangup", "child"]

_NAMES: dict[int, SignalName] = {
    signal.SIGTERM: "end",
    signal.SIGINT: "end",
    signal.SIGHUP: "hangup",
    signal.SIGCHLD: "child",
}


def _noted(number: int, frame: FrameType | None) -> None:
    """The wakeup descriptor has already told; a handler must exist for that."""


class SignalPipe:
    """SIGTERM and SIGINT (`end`), SIGHUP (`hangup`), SIGCHLD (`child`). Main thread only.

    A signal that was ignored when the process started stays ignored, as nohup(1) means it, except
    SIGCHLD and SIGTERM, without which nothing can be reaped or ended.
    """

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(write, False)
        self._write = write
        self._previous_fd = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._previous: dict[int, object] = {}
        for number in _NAMES:
            current = signal.getsignal(number)
            if current is signal.SIG_IGN and number == signal.SIGHUP:
                continue
            self._previous[number] = current
            signal.signal(number, _noted)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _NAMES)

    def fileno(self) -> int:
        """For the poller."""
        return self._read

    def drain(self) -> list[SignalName]:
        """What arrived since the last call, each at least once."""
        try:
            numbers = os.read(self._read, 4096)
        except BlockingIOError:
            return []
        return [_NAMES[number] for number in numbers if number in _NAMES]

    def close(self) -> None:
        """Restore what was there before."""
        signal.set_wakeup_fd(self._previous_fd)
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self._read)
        os.close(self._write)
