"""SIGTERM and SIGINT while units run: noted, and handed on after everything has been ended.

A stop of the attempt sends TERM to its whole process group; without this the evaluator would die
first and leave its units' descendants behind.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

WATCHED = (signal.SIGTERM, signal.SIGINT)


class Interrupts:
    """In the main thread: takes the signals over. In another one they stay as they are."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in WATCHED:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number
            os.write(self._write_end, b"!")

    def close(self) -> None:
        """Put the handlers back."""
        for number, handler in self._before.items():
            # None is a handler that was not set from Python; it cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.close(self.read_end)
        os.close(self._write_end)

    def hand_on(self) -> None:
        """After `close`: let the signal do what it would have done."""
        if self.number is not None:
            signal.raise_signal(self.number)
