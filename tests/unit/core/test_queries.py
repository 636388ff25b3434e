"""The page an operator reads first."""

from __future__ import annotations

from praxist_zmq.protocol.requests import GetStatus, HoldAdmission
from tests.support.broker_world import World


def test_a_hold_that_nobody_released_is_told() -> None:
    world = World()
    world.settle()
    assert world.ask(GetStatus()).health == "healthy"
    world.ask(HoldAdmission())
    status = world.ask(GetStatus())
    assert status.health == "troubled"
    assert "held" in status.warnings[0]
