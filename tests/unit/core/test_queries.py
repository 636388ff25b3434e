"""The page an operator reads first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from praxist_zmq.core.soft import EVENTS_KEPT
from praxist_zmq.protocol.events import AdmissionOpened
from praxist_zmq.protocol.requests import GetStatus, HoldAdmission, ReadEvents
from tests.support.broker_world import World


def test_a_hold_that_nobody_released_is_told() -> None:
    world = World()
    world.settle()
    assert world.ask(GetStatus()).health == "healthy"
    world.ask(HoldAdmission())
    status = world.ask(GetStatus())
    assert status.health == "troubled"
    assert "held" in status.warnings[0]


class Looked(tuple[int, Any]):
    """An entry of the history that counts who takes it apart."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        Looked.looks += 1
        return super().__iter__()


def test_a_page_of_events_looks_at_nothing_that_its_reader_has_seen() -> None:
    world = World()
    event = AdmissionOpened(at_ms=0, reason="x")
    numbers = [n for n in range(1, EVENTS_KEPT) if n % 7]  # records that nobody could read
    world.broker.soft.history = deque(Looked((n, event)) for n in numbers)
    for after in (numbers[-3], numbers[-4] + 1, 0):
        Looked.looks = 0
        page = world.ask(ReadEvents(after_sequence=after, limit=10))
        expected = [n for n in numbers if n > after][:10]
        assert [line.sequence for line in page.events] == expected
        assert Looked.looks <= 10
