"""The limit follows the kinds of host pressure that work in use declares, and says why and what
raises it."""

from __future__ import annotations

from typing import Any

import pytest

from praxist_zmq.core.queries import limit_note
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from praxist_zmq.protocol.reports import HostSampled
from praxist_zmq.protocol.requests import GetStatus, ListJobs, SubmitJob
from tests.support.broker_world import World

BUSY = {"cpu_pct": 97.0}


class Steered(World):
    """A run with a limit that moves, on a host whose pressure the test sets."""

    def __init__(self, initial: int = 4) -> None:
        self.pressure: dict[str, float | None] = {}
        super().__init__(
            2,
            contract=SchedulerPolicy(
                max_concurrent_experiments=4,
                min_concurrent_experiments=1,
                initial_concurrent_experiments=initial,
                adjustment_interval_seconds=2,
                exploration_reserve=0,
                default_profile="free",
                profiles={
                    "free": Profile(pressure_domains=()),
                    "cpu": Profile(pressure_domains=("cpu",)),
                    "memory": Profile(pressure_domains=("memory",)),
                },
            ),
        )

    def sample(self) -> HostSampled:
        return super().sample().model_copy(update=self.pressure)

    def submit(self, profile: str) -> None:
        number = self.broker.state.last_job_number + 1
        self.ask(
            SubmitJob(
                peer="p",
                tag=f"t-{number}",
                command=("true",),
                cwd="/",
                environment={},
                profile=profile,
            )
        )
        self.settle()

    def rounds(self, count: int = 6) -> int:
        """The limit after so many intervals."""
        for _ in range(count):
            self.pass_time(2_001)
            self.settle()
        return self.broker.state.limit


@pytest.mark.parametrize(
    ("profile", "pressure", "limit"),
    [
        ("free", {"cpu_pct": 97.0, "memory_pct": 99.0, "io_pct": 90.0}, 4),
        ("memory", BUSY, 4),
        ("memory", {"memory_pct": 99.0}, 1),
        ("cpu", BUSY, 1),
        ("cpu", {"memory_pct": 99.0}, 4),
    ],
)
def test_the_limit_falls_only_for_pressure_that_work_in_use_declares(
    profile: str, pressure: dict[str, Any], limit: int
) -> None:
    world = Steered()
    for _ in range(5):
        world.submit(profile)
    world.pressure = pressure
    assert world.rounds() == limit


def test_the_limit_rises_whatever_pressure_nobody_declares() -> None:
    world = Steered(initial=1)
    for _ in range(6):
        world.submit("free")
    world.pressure = {"cpu_pct": 97.0, "memory_pct": None}
    assert world.rounds() == 4


def test_why_it_is_low_and_what_raises_it_is_told() -> None:
    world = Steered()
    for _ in range(5):
        world.submit("cpu")
    world.pressure = BUSY
    world.rounds()
    words = (
        "fell from 2 to 1: cpu 97 >= 92; rises at cpu <= 65 (now 97) while work waits for it, one "
        "step in 2 s"
    )
    assert limit_note(world.broker.state, world.broker.soft) == words
    assert world.ask(ListJobs()).limit_note == words
    assert world.ask(GetStatus()).limits["rises"] in words


def test_nothing_is_told_of_a_limit_at_its_bound() -> None:
    world = Steered()
    assert limit_note(world.broker.state, world.broker.soft) is None
