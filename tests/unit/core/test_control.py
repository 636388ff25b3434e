"""What an operator asked for goes on over a restart of the broker."""

from __future__ import annotations

from praxist_zmq.protocol.requests import StopRun, SubmitJob
from tests.support.broker_world import World


def stopped_world() -> World:
    world = World()
    world.ask(SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={}))
    world.settle()
    world.ask(StopRun())
    return world


def test_a_broker_that_takes_over_in_a_stop_goes_on_with_it() -> None:
    world = stopped_world()
    world.to_launcher.clear()
    world.crash_broker()
    assert not world.broker.stopped
    world.settle()
    assert world.broker.stopped
    assert world.broker.state.jobs["j-1"].state == "failed"


def test_up_opens_a_stopped_run_again() -> None:
    world = stopped_world()
    world.settle()
    world.start_broker(reopen=True)
    assert world.broker.state.closed_reason is None
    assert not world.broker.stopped
