"""What has not begun when its end, or the end of all starts, is on record never begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from praxist_zmq.core.commands import FenceSeen, SignalSeen
from praxist_zmq.core.registry_side import GO_HOLDS_MS
from praxist_zmq.protocol import orders
from praxist_zmq.protocol.requests import (
    AssessGeneration,
    CancelJobs,
    FreezeGeneration,
    HoldAdmission,
    OpenGeneration,
    StopRun,
    SubmitJob,
)
from tests.support.broker_world import World

DEADLINE_S = 60


def let_go(world: World) -> None:
    """A job is released, and the launcher has not read it yet."""
    world.ask(OpenGeneration(generation=0, deadline_seconds=DEADLINE_S))
    world.ask(SubmitJob(peer="p", tag="t", command=("run",), cwd="/", environment={}))
    while not any(isinstance(order, orders.ReleaseAttempt) for order in world.to_launcher):
        assert world.deliver()


def at_deadline(world: World) -> None:
    world.pass_time(DEADLINE_S * 1_000)


ENDS: dict[str, tuple[Callable[[World], Any], str, str | None]] = {
    "cancel": (lambda w: w.ask(CancelJobs(jobs=("j-1",), running=True)), "cancelled", "cancelled"),
    "stop": (lambda w: w.ask(StopRun()), "cancelled", "cancelled"),
    "freeze": (lambda w: w.ask(FreezeGeneration()), "rejected", "generation_closing"),
    "close": (
        lambda w: w.ask(FreezeGeneration(generation=0, signal=True)),
        "rejected", "generation_closing",
    ),
    "close file": (
        lambda w: w.turn(SignalSeen(0, "CLOSING_SIGNAL")), "rejected", "generation_closing",
    ),
    "deadline": (at_deadline, "rejected", "generation_closing"),
    "assess": (
        lambda w: w.ask(AssessGeneration(generation=0)), "rejected", "generation_assessment",
    ),
    "fence": (lambda w: w.turn(FenceSeen(present=True)), "queued", None),
    "hold": (lambda w: w.ask(HoldAdmission()), "queued", None),
}  # fmt: skip


@pytest.mark.parametrize("what", ENDS)
def test_a_go_that_is_on_its_way_is_called_back(what: str) -> None:
    world = World()
    let_go(world)
    act, state, code = ENDS[what]
    act(world)
    world.settle()
    assert not world.launcher.runs
    job = world.broker.state.jobs["j-1"]
    assert (job.state, job.reject_code, job.attempts_used) == (state, code, 0)
    assert not world.broker.state.attempts
    assert not world.registry.state.rows


@pytest.mark.parametrize("what", ENDS)
def test_what_begun_all_the_same_is_told_so(what: str) -> None:
    """The shim had taken its GO: a cancel ends it, a freeze lets it go on."""
    world = World()
    let_go(world)
    (release,) = [o for o in world.to_launcher if isinstance(o, orders.ReleaseAttempt)]
    world.launcher.obey(release)  # and its word on that is not here yet
    ENDS[what][0](world)
    world.settle()
    assert world.launcher.runs == {"j-1.1": 1}
    state = world.broker.state.jobs["j-1"].state
    assert state == ("cancelled" if what in ("cancel", "stop") else "running")


def test_mature_work_at_its_barrier_outlives_an_assessment() -> None:
    world = World()
    world.ask(
        SubmitJob(
            peer="p", tag="t", command=("run",), cwd="/", environment={}, work_class="mature",
        )
    )  # fmt: skip
    while not any(isinstance(order, orders.ReleaseAttempt) for order in world.to_launcher):
        assert world.deliver()
    world.ask(AssessGeneration(generation=0))
    world.settle()
    assert world.launcher.runs == {"j-1.1": 1}


def test_a_go_holds_for_a_while_only() -> None:
    world = World()
    let_go(world)
    (release,) = [o for o in world.to_launcher if isinstance(o, orders.ReleaseAttempt)]
    assert world.now_ms < release.until_ms <= world.now_ms + GO_HOLDS_MS
