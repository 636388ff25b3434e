"""Jobs that ran and whose end is not known: run again by a word of their own alone."""

from __future__ import annotations

import pytest

from praxist_zmq.core.commands import LauncherSaid
from praxist_zmq.core.retry import decide_retry
from praxist_zmq.protocol.policy import Profile
from praxist_zmq.protocol.replies import Refusal
from praxist_zmq.protocol.requests import ExplainJob, RetryJob, SubmitJob
from tests.support.broker_world import World, policy

JOB = SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={})


def lost(world: World) -> None:
    """A running attempt whose record is lost with its shim."""
    running = world.launcher.attempts["j-1.1"]
    world.turn(LauncherSaid(world.launcher_address, world.launcher.end(running, "unknown")))
    world.settle()


@pytest.fixture
def world() -> World:
    world = World()
    world.settle()
    world.ask(JOB)
    world.settle()
    lost(world)
    assert world.broker.state.jobs["j-1"].state == "drained_unknown"
    assert not world.broker.state.attempts
    return world


def test_what_was_lost_runs_again_by_the_word_lost_alone(world: World) -> None:
    for changed in (False, True):
        command = ("false",) if changed else JOB.command
        for request in (
            RetryJob(job="j-1", environment={}, command=command),
            JOB.model_copy(update={"retry_terminal": True, "command": command}),
        ):
            told = world.ask(request)
            assert isinstance(told, Refusal) is changed
            lines = told.help if changed else told.notes
            assert any("praxist-zmq retry --lost j-1" in line for line in lines)
    assert world.broker.state.jobs["j-1"].state == "drained_unknown"
    options = world.ask(ExplainJob(subject="j-1")).options
    assert any("praxist-zmq retry --lost j-1" in option for option in options)
    told = world.ask(RetryJob(job="j-1", lost=True, retry_of="j-1.1", environment={}))
    assert told.verdict == "retrying"
    world.settle()
    assert world.broker.state.attempts["j-1.2"].phase == "running"
    again = world.ask(RetryJob(job="j-1", lost=True, retry_of="j-1.1", environment={}))
    assert not again.new, "one attempt is followed once"
    world.finish("j-1.2")
    world.settle()
    assert world.broker.state.jobs["j-1"].state == "completed"
    world.crash_broker()
    assert world.broker.state.jobs["j-1"].state == "completed"


@pytest.mark.parametrize(
    ("rerun", "used", "ending", "again"),
    [
        (False, 0, False, False),
        (True, 0, False, True),
        (True, 2, False, False),
        (True, 0, True, False),
    ],
)
def test_a_profile_may_ask_for_it_within_its_automatic_retries(
    rerun: bool, used: int, ending: bool, again: bool
) -> None:
    decision = decide_retry(
        outcome="unknown",
        exit_code=None,
        permanent=False,
        retries_used=used,
        retries_allowed=2,
        withdrawn_in_a_row=0,
        cut_short=False,
        ending=ending,
        rerun_lost=rerun,
    )
    assert decision.again is again
    assert decision.consumed is again
    assert (decision.reason == "lost") is again


def test_the_profiles_choice_is_carried_out() -> None:
    contract = policy(retries=1)
    profiles = {**contract.profiles, "cpu": Profile(on_lost="requeue")}
    world = World(contract=contract.model_copy(update={"profiles": profiles}))
    world.settle()
    world.ask(JOB)
    world.settle()
    lost(world)
    assert world.broker.state.jobs["j-1"].retries_used == 1
    assert world.broker.state.jobs["j-1"].state in ("queued", "running")
