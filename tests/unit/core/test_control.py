"""What an operator asked for goes on over a restart of the broker."""

from __future__ import annotations

from praxist_zmq.protocol.requests import CancelJobs, HoldAdmission, StopRun, SubmitJob
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


def test_a_withdrawn_job_frees_its_tag_only_if_nothing_of_it_ran() -> None:
    world = World(limit=1)
    for tag in ("ran", "waits"):
        world.ask(SubmitJob(peer="p", tag=tag, command=("true",), cwd="/", environment={}))
    world.settle()
    world.finish_one(75)
    world.ask(HoldAdmission())
    world.settle()
    jobs = world.broker.state.jobs
    assert [job.state for job in jobs.values()] == ["queued", "queued"]
    request = CancelJobs(jobs=("j-1", "j-2"), admission_timeout=True)
    ran, waits = world.ask(request).results
    assert (ran.outcome, ran.frees_tag) == ("cancelled", False)
    assert (waits.outcome, waits.frees_tag) == ("cancelled", True)
    assert world.broker.state.tags.get("ran") == "j-1"
