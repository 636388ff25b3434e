"""Whatever is lost on the launcher's link is told again, and a silent launcher is replaced."""

from __future__ import annotations

import pytest

from praxist_zmq.core.commands import LauncherSaid
from praxist_zmq.core.launcher_side import (
    ASK_LAUNCHER_MS,
    COMPARE_MS,
    RESTART_AFTER_MS,
    SILENT_ASKS,
    YOUNG_MS,
)
from praxist_zmq.protocol import orders, reports
from praxist_zmq.protocol.requests import CancelJobs, GetStatus, SubmitJob
from tests.support.broker_world import World

MESSAGES = 16
"""More than one experiment takes, what heals a loss included."""


def submit(world: World) -> None:
    world.ask(SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={}))


def step(world: World, lost: int, passed: int) -> tuple[bool, int]:
    """Deliver one message, unless it is the `lost`th on the launcher's link."""
    if world.to_broker:
        on_link = isinstance(world.to_broker[0], LauncherSaid)
        if on_link and passed == lost:
            world.to_broker.popleft()
            return True, passed + 1
        return world.deliver(), passed + on_link
    if not world.to_registry and world.to_launcher:
        if passed == lost:
            world.to_launcher.popleft()
            return True, passed + 1
        return world.deliver(), passed + 1
    return world.deliver(), passed


def play(world: World, lost: int, *, cancelled: bool) -> int:
    """One experiment to its end; how many messages passed on the launcher's link."""
    passed, asked = 0, False
    for _ in range(12):
        more = True
        while more:
            more, passed = step(world, lost, passed)
            if not cancelled:
                world.finish_one(0)
            elif not asked and any(a.phase == "running" for a in world.launcher.attempts.values()):
                world.ask(CancelJobs(jobs=("j-1",), running=True))
                asked = True
        if not world.broker.state.attempts and world.broker.state.jobs["j-1"].ended_at_ms:
            return passed
        world.pass_time(COMPARE_MS)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("lost", range(MESSAGES))
def test_an_experiment_ends_whichever_message_is_lost(lost: int, cancelled: bool) -> None:
    world = World()
    world.settle()
    submit(world)
    passed = play(world, lost, cancelled=cancelled)
    assert passed < 3 * MESSAGES
    job = world.broker.state.jobs["j-1"]
    assert job.state in (("cancelled",) if cancelled else ("completed",))
    assert world.launcher.runs == {"j-1.1": 1}, "again under the same attempt"
    assert not world.registry.state.rows


def test_nothing_is_compared_while_nothing_lives() -> None:
    world = World()
    world.settle()
    for _ in range(5):
        world.pass_time(COMPARE_MS)
    assert not world.to_launcher


def silence(world: World) -> None:
    """The launcher takes what it is sent, and says nothing."""
    for _ in range(SILENT_ASKS + 1):
        world.to_launcher.clear()
        world.pass_time(COMPARE_MS)


def test_a_silent_launcher_is_told_of_and_another_is_asked_for() -> None:
    world = World()
    world.settle()
    world.turn(reports.ProcessesSeen(processes=(("launcher", 42, world.now_ms, 0),)))
    world.now_ms += YOUNG_MS
    world.turn(world.sample())
    submit(world)
    while not world.to_launcher:
        assert world.deliver()
    silence(world)
    assert not world.broker.soft.launcher_ready
    status = world.ask(GetStatus())
    assert status.health == "troubled"
    assert any("the launcher has not answered for" in warning for warning in status.warnings)
    assert not world.restarts
    for _ in range(RESTART_AFTER_MS // ASK_LAUNCHER_MS):
        world.pass_time(ASK_LAUNCHER_MS)
    assert world.restarts == [orders.RestartProcess(name="launcher", pid=42)]
    world.crash_launcher()
    world.settle()
    assert sum(world.launcher.runs.values()) == 1
    assert world.ask(GetStatus()).health == "healthy"


def test_a_launcher_that_is_still_starting_is_left_alone() -> None:
    world = World()
    world.to_broker.clear()  # it has not introduced itself
    world.pass_time(RESTART_AFTER_MS)
    world.turn(reports.ProcessesSeen(processes=(("launcher", 42, world.now_ms, 0),)))
    world.pass_time(YOUNG_MS - ASK_LAUNCHER_MS)
    assert not world.restarts
    world.pass_time(2 * ASK_LAUNCHER_MS)
    assert world.restarts


def test_a_late_answer_brings_a_silent_launcher_back() -> None:
    world = World()
    submit(world)
    world.settle()
    silence(world)
    assert not world.broker.soft.launcher_ready
    world.pass_time(ASK_LAUNCHER_MS)
    world.settle()
    assert world.broker.soft.launcher_ready
    assert not world.restarts
