"""Before GO the devices of an attempt are looked at once more: others may have taken the room."""

from __future__ import annotations

from praxist_zmq.core.admission import BlockerTable
from praxist_zmq.core.placement import SAMPLE_AGE_MAX_MS
from praxist_zmq.protocol.requests import CancelJobs, SubmitJob
from tests.support.explained import LoadedWorld, Wish

TAKEN = (70_000, 90.0)


def _state(world: LoadedWorld, job: str) -> str:
    return world.broker.state.jobs[job].state


def _codes(world: LoadedWorld, job: str) -> set[str]:
    table = BlockerTable(world.broker.state, world.broker.soft)
    return {blocker.code for blocker in table.of(world.broker.state.jobs[job])}


def test_room_that_was_taken_since_the_last_sample_is_not_used() -> None:
    world = LoadedWorld([(0, 0.0)])
    world.look()
    world.external[0] = TAKEN
    world.now_ms += 600
    job = world.submit(Wish("p", "small"))
    assert _state(world, job) == "queued"
    assert "gpu_memory_short" in _codes(world, job)
    assert world.launcher.runs == {}
    world.external[0] = (0, 0.0)
    world.look()
    assert _state(world, job) == "running"
    assert world.broker.state.jobs[job].attempts_used == 1


def test_a_device_that_was_just_read_is_not_waited_for() -> None:
    world = LoadedWorld([(0, 0.0)])
    world.look()
    world.sampling = False
    job = world.submit(Wish("p", "small"))
    assert _state(world, job) == "running"
    assert world.launcher.runs == {f"{job}.1": 1}


def test_a_sampler_that_is_gone_holds_an_attempt_only_for_some_seconds() -> None:
    world = LoadedWorld([(0, 0.0)])
    world.look()
    world.now_ms += 600
    world.sampling = False
    job = world.submit(Wish("p", "small"))
    assert list(world.broker.soft.go_held) == [f"{job}.1"]
    world.pass_time(SAMPLE_AGE_MAX_MS)
    world.settle()
    assert world.launcher.runs == {f"{job}.1": 1}
    assert not world.broker.soft.sample_wanted


def test_what_waits_at_its_barrier_is_looked_at_again_by_the_next_broker() -> None:
    world = LoadedWorld([(0, 0.0)])
    world.look()
    world.now_ms += 600
    world.sampling = False
    world.submit(Wish("p", "small"))
    assert world.launcher.runs == {}
    world.external[0] = TAKEN
    world.sampling = True
    world.crash_broker()
    world.settle()
    assert world.launcher.runs == {}
    assert world.queued() == ["j-1"]


def test_a_plan_that_is_withdrawn_leaves_no_look_behind() -> None:
    world = LoadedWorld([(0, 0.0)])
    world.look()
    world.now_ms += 600
    world.sampling = False
    request = SubmitJob(
        peer="p", tag="t", command=("true",), cwd="/", environment={}, profile="small"
    )
    job = world.ask(request).job.job
    assert world.broker.soft.unlooked
    world.ask(CancelJobs(jobs=(job,)))
    world.settle()
    assert not world.broker.soft.unlooked
    assert not world.broker.soft.go_held
