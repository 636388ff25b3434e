"""The page an operator reads first."""

from __future__ import annotations

from praxist_zmq.core import broker_snapshot
from praxist_zmq.core.broker import Broker
from praxist_zmq.core.queries import status
from praxist_zmq.core.turn import Turn
from praxist_zmq.protocol.requests import GetStatus, HoldAdmission
from tests.support.broker_world import BOOT, World


def test_a_hold_that_nobody_released_is_told() -> None:
    world = World()
    world.settle()
    assert world.ask(GetStatus()).health == "healthy"
    world.ask(HoldAdmission())
    status = world.ask(GetStatus())
    assert status.health == "troubled"
    assert "held" in status.warnings[0]


def test_what_a_start_says_of_the_generation_is_shown_and_kept() -> None:
    world = World()

    def begin(generation: int, cohort_size: int | None, deadline_at_ms: int | None) -> int:
        decision = world.broker.begin(
            world.stamp(), run_id="run", boot_id=BOOT, version="test", policy=world.policy,
            generation=generation, reopen=False, cohort_size=cohort_size,
            deadline_at_ms=deadline_at_ms,
        )  # fmt: skip
        world.broker = Broker(broker_snapshot.load(broker_snapshot.dump(world.broker.state)))
        return sum(event.kind == "policy_adopted" for event in decision.events)  # type: ignore[attr-defined]

    def shown() -> tuple[object, ...]:
        turn = Turn(world.broker.state, world.broker.soft, world.stamp())
        generation = status(turn).generation
        return generation["number"], generation["cohort_size"], generation["deadline"]

    assert shown() == (0, None, None)
    assert begin(1, 8, 1_800_000_000_000) == 1
    told = (1, 8, "2027-01-15T08:00:00.000Z")
    assert shown() == told
    assert begin(1, None, None) == 0, "a start that is told nothing keeps it"
    assert shown() == told
    assert begin(1, 9, None) == 1
    assert shown() == (1, 9, told[2])
    assert begin(2, None, None) == 1
    assert shown() == (2, None, None)
