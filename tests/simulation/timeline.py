"""The fake clock: what is to happen, in the order of time, one thing after another."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from praxist_zmq.core.decision import Stamp

WALL_MS = 1_700_000_000_000


class Timeline:
    """A queue of actions by time. Nothing passes between two of them."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        """CLOCK_BOOTTIME, milliseconds."""
        self.wall_step_ms = 0
        """How far the wall clock was set away from where it began."""
        self.steps = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Have something happen so much later."""
        at_ms = self.now_ms + max(0, delay_ms)
        heapq.heappush(self._queue, (at_ms, next(self._numbers), action))

    def step(self) -> bool:
        """Let the next thing happen; False when there is none."""
        if not self._queue:
            return False
        at_ms, _, action = heapq.heappop(self._queue)
        self.now_ms = max(self.now_ms, at_ms)
        self.steps += 1
        action()
        return True

    @property
    def next_ms(self) -> int | None:
        """When the next thing happens."""
        return self._queue[0][0] if self._queue else None

    def wall_ms(self) -> int:
        """The wall clock."""
        return WALL_MS + self.now_ms + self.wall_step_ms

    def stamp(self) -> Stamp:
        """Now."""
        return Stamp(at_ms=self.wall_ms(), mono_ms=self.now_ms)
