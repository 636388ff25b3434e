"""What waits for devices of which nothing is known: long enough, and not for ever."""

from __future__ import annotations

from typing import Any

from praxist_zmq.core.probe_grace import GRACE_MAX_S, due_ms, grace_ms
from praxist_zmq.core.state import Job
from praxist_zmq.protocol.policy import SchedulerPolicy
from praxist_zmq.protocol.reports import HostSampled
from praxist_zmq.protocol.requests import GetStatus, HoldAdmission, SubmitJob
from tests.support.broker_world import World, host_sample


class BlindWorld(World):
    """A world whose sampler says what the test says of the driver."""

    probe = "available"

    def sample(self) -> HostSampled:
        return host_sample(self.devices, self.probe, self.now_ms)

    def submit(self, tag: str, profile: str = "gpu") -> Any:
        return self.ask(
            SubmitJob(
                peer="p", tag=tag, command=("true",), cwd="/", environment={}, profile=profile
            )
        )

    def job(self, name: str) -> Job:
        return self.broker.state.jobs[name]

    def blind_for(self, seconds: int) -> None:
        """The driver tells nothing for so long, and the sampler says so once a second."""
        self.probe = "unknown"
        for _ in range(seconds):
            self.pass_time(1_000)
        self.settle()


def blind_world() -> BlindWorld:
    """Blind, with a GPU job and a CPU job submitted."""
    world = BlindWorld()
    world.blind_for(1)
    world.submit("t")
    world.submit("c", "cpu")
    world.settle()
    return world


def test_the_grace_follows_the_interval_within_bounds() -> None:
    """A minute of silence, of which the default interval is a third, costs nothing."""
    for interval_s, seconds in ((2, 12), (20, 120), (3_600, GRACE_MAX_S)):
        world = World(contract=SchedulerPolicy(adjustment_interval_seconds=interval_s))
        assert grace_ms(world.broker.state) == seconds * 1_000


def test_after_the_grace_it_is_rejected_and_cpu_work_goes_on() -> None:
    """S3: an unknown probe past the grace rejects the queued GPU job; status shows the probe."""
    world = blind_world()
    world.blind_for(115)
    due = due_ms(world.broker.state, world.broker.soft)
    assert due is not None
    assert 0 < due - world.now_ms <= 6_000, "it wakes for it"
    assert (world.job("j-1").state, world.job("j-2").state) == ("queued", "running")
    world.blind_for(6)
    assert (world.job("j-1").state, world.job("j-1").reject_code) == (
        "rejected",
        "accelerator_probe_unknown",
    )
    assert world.job("j-2").state == "running"
    assert world.ask(GetStatus()).accelerator_probe["state"] == "unknown"
    assert world.submit("late").job.job == "j-3"
    world.settle()
    assert world.job("j-3").state == "rejected", "the driver is no less unknown for it"


def test_the_same_request_is_a_new_job_once_the_devices_are_back() -> None:
    """S4, S5: nothing ran, so the tag is free; also after a restart."""
    for restart in (False, True):
        world = blind_world()
        world.blind_for(121)
        world.probe = "available"
        if restart:
            world.crash_broker()
        world.pass_time(1_000)
        again = world.submit("t")
        assert (again.verdict, again.new, again.job.job) == ("queued", True, "j-3")
        world.settle()
        assert world.job("j-3").state == "running"


def test_a_reading_in_between_starts_the_time_anew() -> None:
    world = blind_world()
    world.ask(HoldAdmission())
    world.blind_for(100)
    world.probe = "available"
    world.pass_time(1_000)
    world.blind_for(100)
    world.ask(HoldAdmission(held=False))
    assert world.job("j-1").state == "queued"


def test_no_sample_is_no_reading() -> None:
    """That our sampler is away, or the machine slept, rejects nothing."""
    world = blind_world()
    world.blind_for(60)
    world.sampling = False
    world.pass_time(3_600_000)
    assert world.job("j-1").state == "queued"


def test_what_ran_before_keeps_its_tag() -> None:
    """The tag is free only if nothing of it ran."""
    world = BlindWorld()
    world.submit("t")
    world.settle()
    world.probe = "unknown"
    world.pass_time(1_000)
    world.finish_one(75)
    world.settle()
    assert world.job("j-1").state == "queued"
    world.blind_for(121)
    assert world.job("j-1").state == "rejected"
    assert world.submit("t").code == "terminal_duplicate"
