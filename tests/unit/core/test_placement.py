"""Which devices are given, and what is believed of them."""

from __future__ import annotations

from praxist_zmq.core.placement import SAMPLE_AGE_MAX_MS
from praxist_zmq.protocol.replies import Submitted
from praxist_zmq.protocol.requests import ExplainJob, GetDevices, GetStatus, SubmitJob
from tests.support.broker_world import World


def submit(world: World, tag: str, profile: str) -> Submitted:
    """One more job."""
    answer = world.ask(
        SubmitJob(
            peer="p", tag=tag, command=("true",), cwd="/", environment={}, profile=profile
        )
    )  # fmt: skip
    assert isinstance(answer, Submitted)
    return answer


def test_an_old_sample_is_not_believed_but_cpu_work_goes_on() -> None:
    world = World(devices=2, limit=4)
    world.settle()
    world.sampling = False
    world.pass_time(SAMPLE_AGE_MAX_MS)
    for tag, profile in (("g", "gpu"), ("c", "cpu")):
        submit(world, tag, profile)
    world.settle()
    assert world.broker.state.jobs["j-2"].state == "running"
    began, unknown = world.ask(ExplainJob(subject="j-1")).blockers
    assert began.code == "pressure_cpu"  # of what is not known one begins at a time
    assert unknown.code == "probe_unknown"
    assert "5 s" in unknown.detail
    assert {device.state for device in world.ask(GetDevices()).devices} == {"unknown"}
    status = world.ask(GetStatus())
    assert status.accelerator_probe["state"] == "unknown"
    assert status.health == "troubled"
    world.turn(world.sample())
    world.settle()
    assert world.broker.state.jobs["j-1"].state == "running"
    assert world.ask(GetStatus()).health == "healthy"


def test_an_old_sample_refuses_no_profile_for_good() -> None:
    world = World(devices=1)
    world.settle()
    world.sampling = False
    world.pass_time(SAMPLE_AGE_MAX_MS)
    assert submit(world, "t", "pair").verdict == "queued"
