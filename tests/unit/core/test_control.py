"""What an operator asked for goes on over a restart of the broker."""

from __future__ import annotations

import pytest

from praxist_zmq.core.commands import FenceSeen
from praxist_zmq.protocol.codec import decode_event
from praxist_zmq.protocol.events import AdmissionClosed
from praxist_zmq.protocol.requests import (
    CancelJobs,
    FreezeGeneration,
    HoldAdmission,
    ShowJob,
    StopRun,
    SubmitJob,
)
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
    assert world.broker.state.jobs["j-1"].state == "cancelled"


def test_a_stop_that_reached_the_disk_in_part_is_finished_by_the_next_broker() -> None:
    world = World(limit=1)
    for tag in ("runs", "waits", "waits too"):
        world.ask(SubmitJob(peer="p", tag=tag, command=("true",), cwd="/", environment={}))
    world.settle()
    before = len(world.disk)
    world.ask(StopRun())
    assert len(world.disk) == before + 4
    world.to_launcher.clear()
    del world.disk[before + 2 :]  # the fence, and one rejection
    world.crash_broker()
    world.settle()
    assert world.broker.stopped
    states = [job.state for job in world.broker.state.jobs.values()]
    assert states == ["cancelled", "rejected", "rejected"]


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


def test_a_sentinel_of_another_tool_starts_nothing_and_takes_nothing_while_it_is_there() -> None:
    world = World(limit=1)
    for tag in ("runs", "waits"):
        world.ask(SubmitJob(peer="p", tag=tag, command=("true",), cwd="/", environment={}))
    world.settle()
    world.turn(FenceSeen(present=True))
    late = world.ask(SubmitJob(peer="p", tag="late", command=("true",), cwd="/", environment={}))
    assert late.code == "admission_closed"
    assert "removes that file" in late.help[0]
    world.finish_one(0)
    world.settle()
    jobs = world.broker.state.jobs
    assert (jobs["j-1"].state, jobs["j-2"].state) == ("completed", "queued")
    assert not world.broker.stopped
    told = world.ask(ShowJob(job="j-2")).job
    assert [blocker.code for blocker in told.blockers] == ["admission_closed"]
    world.turn(FenceSeen(present=False))
    world.settle()
    assert jobs["j-2"].state == "running"


def test_a_placement_that_the_registry_grants_behind_the_sentinel_is_given_back() -> None:
    world = World(limit=1)
    world.ask(SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={}))
    world.turn(FenceSeen(present=True))
    world.settle()
    assert world.broker.state.jobs["j-1"].state == "queued"
    assert not world.broker.state.attempts
    world.turn(FenceSeen(present=False))
    world.settle()
    assert world.broker.state.jobs["j-1"].state == "running"


@pytest.mark.parametrize("steps", range(1, 9))
@pytest.mark.parametrize("by_sentinel", [False, True])
def test_what_stands_at_its_barrier_waits_again_when_nothing_may_start(
    steps: int, by_sentinel: bool
) -> None:
    world = World(limit=1)
    world.ask(SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={}))
    for _ in range(steps):
        world.deliver()
    told = bool(world.launcher.runs)
    if by_sentinel:
        world.turn(FenceSeen(present=True))
    else:
        world.ask(HoldAdmission())
    world.settle()
    job = world.broker.state.jobs["j-1"]
    assert bool(world.launcher.runs) == told
    assert job.state == ("running" if told else "queued")
    assert len(world.registry.state.rows) == int(told)
    if by_sentinel:
        world.turn(FenceSeen(present=False))
    else:
        world.ask(HoldAdmission(held=False))
    world.settle()
    assert job.state == "running"
    assert sum(world.launcher.runs.values()) == 1
    assert job.attempts_used == 1


def cut_after(world: World, kind: type) -> None:
    """The power goes: of the newest batch, what follows its first record of a kind is lost."""
    kinds = [type(decode_event(body)) for body in world.disk]
    last = len(kinds) - 1 - kinds[::-1].index(kind)
    del world.disk[last + 1 :]
    world.to_launcher.clear()
    world.crash_broker()


def busy_world() -> World:
    """One job runs, one waits."""
    world = World(limit=1)
    for tag in ("runs", "waits"):
        world.ask(SubmitJob(peer="p", tag=tag, command=("true",), cwd="/", environment={}))
    world.settle()
    return world


def test_a_stop_that_a_crash_cut_in_two_is_gone_through_with() -> None:
    world = busy_world()
    world.ask(StopRun(grace_seconds=0))
    cut_after(world, AdmissionClosed)
    job = world.broker.state.jobs["j-2"]
    assert (job.state, job.reject_code) == ("rejected", "admission_closed")
    world.settle()
    assert world.broker.state.jobs["j-1"].state == "cancelled"
    assert world.broker.stopped


def test_a_freeze_of_all_that_a_crash_cut_in_two_is_gone_through_with() -> None:
    world = busy_world()
    world.ask(FreezeGeneration())
    cut_after(world, AdmissionClosed)
    job = world.broker.state.jobs["j-2"]
    assert (job.state, job.reject_code) == ("rejected", "generation_closing")
    assert world.phase(0) == "frozen"
    world.finish("j-1.1")
    world.settle()
    assert world.phase(0) == "closed"


def test_a_job_that_waits_again_tells_why() -> None:
    world = World(limit=1)
    world.ask(SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={}))
    world.settle()
    assert world.ask(ShowJob(job="j-1")).job.note is None
    world.turn(FenceSeen(present=True))
    world.finish_one(75)
    world.settle()
    told = world.ask(ShowJob(job="j-1")).job
    assert (told.state, told.note) == ("queued", "it ended with exit 75, which asks for another")
    world.turn(FenceSeen(present=False))
    world.settle()
    told = world.ask(ShowJob(job="j-1")).job
    assert (told.state, told.note) == ("running", None)
