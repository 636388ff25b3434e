"""What follows from the launcher's reports, with a world of the real machines around it."""

from __future__ import annotations

from praxist_zmq.protocol import orders
from praxist_zmq.protocol.requests import CancelJobs, SubmitJob
from tests.support.broker_world import World


def test_a_cancel_before_the_launcher_told_that_it_runs_ends_it_all_the_same() -> None:
    world = World()
    world.ask(SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={}))
    while not any(a.phase == "running" for a in world.launcher.attempts.values()):
        assert world.deliver()
    world.crash_broker()  # the launcher's word that it started is lost with it
    reports = list(world.to_broker)
    world.to_broker.clear()
    (result,) = world.ask(CancelJobs(jobs=("j-1",), running=True)).results
    assert result.outcome == "ending"
    world.to_broker.extend(reports)
    sent = []
    while world.to_broker or world.to_registry or world.to_launcher:
        sent += [type(order) for order in world.to_launcher]
        world.deliver()
    assert orders.StopAttempt in sent
    assert world.broker.state.jobs["j-1"].state == "failed"
    assert not world.broker.state.attempts
