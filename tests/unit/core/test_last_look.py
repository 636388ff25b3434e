"""Before GO the host and an attempt's devices are looked at once more: others may have taken the
room, and pressure may have risen."""

from __future__ import annotations

import pytest

from praxist_zmq.core.admission import BlockerTable
from praxist_zmq.core.placement import SAMPLE_AGE_MAX_MS
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from praxist_zmq.protocol.reports import HostSampled
from praxist_zmq.protocol.requests import CancelJobs, SubmitJob
from tests.support.broker_world import World
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


# -- the host's pressure -----------------------------------------------------------------------


class Pressed(World):
    """A run whose host's pressure the test sets."""

    def __init__(self, limit: int = 12) -> None:
        self.pressure: dict[str, float | None] = {}
        on_device = Profile(accelerator="gpu", gpu_count=1, pressure_domains=("memory", "io"))
        super().__init__(
            2,
            contract=SchedulerPolicy(
                max_concurrent_experiments=limit,
                min_concurrent_experiments=limit,
                initial_concurrent_experiments=limit,
                default_profile="cpu",
                profiles={
                    "cpu": Profile(pressure_domains=("cpu", "memory", "io")),
                    "free": Profile(pressure_domains=()),
                    "gpu": on_device,
                },
            ),
        )

    def sample(self) -> HostSampled:
        return super().sample().model_copy(update=self.pressure)

    def submit(self, profile: str = "cpu") -> str:
        number = self.broker.state.last_job_number + 1
        request = SubmitJob(
            peer="p", tag=f"t-{number}", command=("true",), cwd="/", environment={}, profile=profile
        )
        answer = self.ask(request)
        self.settle()
        name: str = answer.job.job
        return name


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("domain", ["memory", "io"])
def test_pressure_that_rose_since_the_last_sample_holds_every_launch(
    profile: str, domain: str
) -> None:
    world = Pressed()
    world.turn(world.sample())
    world.pressure = {f"{domain}_pct": 99.0}
    world.now_ms += 200
    jobs = [world.submit(profile) for _ in range(12)]
    assert world.launcher.runs == {}
    state = world.broker.state
    assert {state.jobs[job].state for job in jobs} == {"queued"}
    world.pressure = {}
    world.pass_time(1_001)
    world.settle()
    assert world.launcher.runs


def test_a_profile_that_declares_no_pressure_waits_for_no_look() -> None:
    world = Pressed()
    world.turn(world.sample())
    world.pressure = {"memory_pct": 99.0}
    world.now_ms += 200
    world.sampling = False
    job = world.submit("free")
    assert world.launcher.runs == {f"{job}.1": 1}


def test_a_job_that_is_turned_away_at_its_barrier_never_fails_for_that() -> None:
    world = Pressed(limit=1)
    others = [world.submit("free")]
    job = world.submit()
    for _ in range(6):
        world.pressure = {}
        world.pass_time(1_001)
        world.pressure = {"cpu_pct": 99.0}
        world.now_ms += 300
        world.finish(f"{others[-1]}.1")
        world.settle()
        others.append(world.submit("free"))
    found = world.broker.state.jobs[job]
    assert world.launcher.runs == {f"{other}.1": 1 for other in others}
    assert (found.state, found.withdrawn_in_a_row, found.requeue_reason) == (
        "queued",
        0,
        "room_gone",
    )
    assert found.attempt_counter == 6
    world.pressure = {}
    world.finish(f"{others[-1]}.1")
    world.pass_time(1_001)
    world.settle()
    assert found.state == "running"


def test_a_sampler_that_is_gone_holds_what_declares_pressure_for_some_seconds_at_most() -> None:
    world = Pressed()
    world.turn(world.sample())
    world.now_ms += 600
    world.sampling = False
    job = world.submit()
    assert list(world.broker.soft.go_held) == [f"{job}.1"]
    world.pass_time(SAMPLE_AGE_MAX_MS)
    world.settle()
    assert world.launcher.runs == {f"{job}.1": 1}
