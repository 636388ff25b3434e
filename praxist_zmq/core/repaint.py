"""A log as its reader would have seen it: what a carriage return painted over is not shown.

A progress bar writes its states over each other, with a carriage return between two and no line
feed; only the last one counts. Values in, values out; standard library only.
"""

from __future__ import annotations

import re
from typing import AnyStr

HELD_BYTES_MAX = 1 << 16
"""What is longer without an end or a carriage return is no state of a progress bar."""

_BAR = re.compile(
    r"^[^|]{0,80}?\d{1,3}%\|[^|]*\|[^\[]*(\[[^\]]*\])?"  # tqdm
    r"|^.{0,80}?\d+it \[[^\]]*\]"  # tqdm without a total
    r"|^.{0,80}?\d+/\d+ \[[=>.]*\].*"  # keras
    r"|^.{0,80}?[━█]{4}.*"  # rich, pip
)


def last_state(line: AnyStr) -> AnyStr:
    """Of a line, without its line feed: what is left to see of it."""
    back = b"\r" if isinstance(line, bytes) else "\r"
    return line.rstrip(back).rpartition(back)[2]


def as_seen(text: str) -> str:
    """A text without what was painted over."""
    return "\n".join(last_state(line) for line in text.split("\n"))


def without_bar(line: str) -> str:
    """A line without the progress bar that it begins with; nothing, when it is one."""
    return _BAR.sub("", line, count=1)


class Repainting:
    """The same for a log that is read piece by piece."""

    def __init__(self) -> None:
        self._line = b""

    def feed(self, content: bytes) -> bytes:
        """What is settled now: whole lines, each as it was last."""
        *whole, rest = (self._line + content).split(b"\n")
        settled = b"".join(last_state(line) + b"\n" for line in whole)
        back = b"\r" if rest.endswith(b"\r") else b""
        self._line = last_state(rest) + back
        if len(self._line) > HELD_BYTES_MAX and not back:
            settled, self._line = settled + self._line, b""
        return settled

    @property
    def pending(self) -> bytes:
        """The present state of a line that has not ended."""
        return last_state(self._line)
