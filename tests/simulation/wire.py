"""The fake network: connections between two processes, as sockets on one host are.

In order and whole while a connection lives; a sender may find it full. When it is cut, what was
under way is lost, or comes late, after messages of the connection that followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .world import SimWorld


class WireEnd(Protocol):
    """A process at one end."""

    name: str
    life: int
    up: bool

    def heard(self, wire: FakeWire, message: Any) -> None:
        """A message arrived."""

    def cut_off(self, wire: FakeWire) -> None:
        """The connection is gone."""


class FakeWire:
    """One connection. Sides 0 and 1; `send(side, ...)` goes to the other side."""

    def __init__(self, world: SimWorld, client: WireEnd, server: WireEnd) -> None:
        self._world = world
        self.ends = (client, server)
        self._lives = (client.life, server.life)
        self.up = True
        self._free_ms = [0, 0]
        self._under_way: dict[int, tuple[int, Any]] = {}
        self._sent = 0

    def send(
        self,
        sender: WireEnd,
        message: Any,
        *,
        may_be_full: bool = True,
        may_be_lost: bool = False,
    ) -> bool:
        """False when there is no connection or no room."""
        if not self.up or (may_be_full and self._world.faults.hits("full")):
            return False
        if may_be_lost and self._world.faults.hits("lost"):
            return True
        side = 1 if sender is self.ends[0] else 0
        rng = self._world.rng
        delay = rng.randint(0, 2)
        if self._world.faults.hits("slow"):
            delay += rng.choice((20, 200, 1_500))
        at_ms = max(self._free_ms[side], self._world.time.now_ms + delay)
        self._free_ms[side] = at_ms
        self._sent += 1
        number = self._sent
        self._under_way[number] = (side, message)
        self._world.time.after(at_ms - self._world.time.now_ms, lambda: self._arrive(number))
        return True

    def _arrive(self, number: int) -> None:
        found = self._under_way.pop(number, None)
        if found is not None:
            self._hand_over(*found)

    def _hand_over(self, side: int, message: Any) -> None:
        end = self.ends[side]
        if end.up and end.life == self._lives[side]:
            end.heard(self, message)

    def cut(self) -> None:
        """The connection is lost."""
        if not self.up:
            return
        self.up = False
        under_way, self._under_way = self._under_way, {}
        for side, message in under_way.values():
            if self._world.faults.hits("late after a cut"):
                delay = self._world.rng.choice((1, 30, 700))
                self._world.time.after(
                    delay, lambda side=side, message=message: self._hand_over(side, message)
                )
        for side, end in enumerate(self.ends):
            if end.up and end.life == self._lives[side]:
                end.cut_off(self)
