"""A storm of quick 75s: what is paused for it, what is not, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from praxist_zmq.core import storm
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from praxist_zmq.protocol.requests import CancelJobs, ExplainJob, GetStatus, SubmitJob
from tests.support.broker_world import World

GPU = Profile(
    accelerator="gpu", gpu_count=1, gpu_memory_gb=10.0, gpu_utilization_pct=20.0,
    pressure_domains=(),
)  # fmt: skip


class StormyWorld(World):
    """Two CPU profiles and two that share devices; as many retries as a test wants."""

    def __init__(self, *, limit: int = 1, devices: int = 0, retries: int = 1) -> None:
        super().__init__(
            devices=devices,
            contract=SchedulerPolicy(
                max_concurrent_experiments=limit,
                min_concurrent_experiments=limit,
                initial_concurrent_experiments=limit,
                infrastructure_retries=retries,
                infrastructure_retry_pause_seconds=0,
                default_profile="cpu",
                profiles={
                    "cpu": Profile(pressure_domains=()),
                    "other": Profile(pressure_domains=()),
                    "gpu": GPU,
                    "gpu2": GPU,
                },
            ),
        )
        self.settle()

    def submit(self, tag: str, profile: str = "cpu") -> str:
        reply = self.ask(
            SubmitJob(
                peer="p", tag=tag, command=("true",), cwd="/", environment={}, profile=profile
            )
        )
        self.settle()
        job: str = reply.job.job
        return job

    def running(self, profile: str | None = None) -> list[str]:
        jobs = self.broker.state.jobs
        return [
            attempt
            for attempt, held in self.broker.state.attempts.items()
            if profile in (None, jobs[held.job].profile)
        ]

    def end_all(self, code: int = 75, profile: str | None = None) -> int:
        """Everything that runs ends; how many those were."""
        names = self.running(profile)
        for name in names:
            self.finish(name, code)
        self.settle()
        return len(names)

    def pass_over(self, milliseconds: int) -> None:
        self.pass_time(milliseconds)
        self.settle()

    def alarms(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.ask(GetStatus()).alarms
        return found

    def explained(self, subject: str) -> Any:
        return self.ask(ExplainJob(subject=subject))

    def codes(self, job: str) -> list[str]:
        return [blocker.code for blocker in self.explained(job).blockers]


def stormy(**options: Any) -> StormyWorld:
    """Six jobs of one profile, of which as many as are needed have ended at once with 75."""
    world = StormyWorld(**options)
    for number in range(6):
        world.submit(f"t{number}")
    for _ in range(storm.STORM_ENDS):
        assert world.end_all() == 1
    return world


def test_a_storm_pauses_its_profile_raises_one_alarm_and_says_so_everywhere() -> None:
    world = stormy()
    assert world.running() == []
    jobs = world.broker.state.jobs
    failed = [job.job for job in jobs.values() if job.state == "failed"]
    assert failed == ["j-1", "j-2"], "the others kept their retries"
    waiting = world.explained("j-3")
    assert waiting.verdict.startswith("waits: profile cpu rests: 5 attempts in a row ended with 75")
    assert [gate.state for gate in waiting.gates if gate.name == "pause"] == ["blocked"]
    assert [entry.event for entry in waiting.would_start] == ["the rest of profile cpu is over"]
    assert waiting.start_estimate.likely_s == pytest.approx(storm.PAUSE_MS / 1000, abs=1)
    assert world.explained("j-6").job.queue_blocked_reason == "resource_pressure_or_capacity"
    (alarm,) = world.alarms()
    assert alarm.startswith("PLACEMENT PAUSED  profile cpu: 5 attempts in a row")
    assert "one is tried again in 30 s" in alarm
    broker = world.broker
    due_ms = storm.due_ms(broker.state, broker.soft)
    assert due_ms == next(iter(broker.soft.storms.rests.values())).until_ms, "it wakes for it"
    assert world.ask(GetStatus()).counters["storms"] == 1
    assert "placement_paused" in world.codes("profile:cpu")


def test_other_profiles_go_on() -> None:
    world = stormy()
    other = world.submit("o", "other")
    assert world.running() == [f"{other}.1"]


def test_after_the_rest_one_attempt_tries_and_the_next_rest_is_longer() -> None:
    world = StormyWorld(limit=4, retries=9)
    for number in range(4):
        world.submit(f"t{number}")
    assert world.end_all() == 4
    assert world.end_all() == 4
    assert world.running() == [], "eight attempts that were under way at once, and no more"
    pause_ms = storm.PAUSE_MS
    for _ in range(7):
        world.pass_over(pause_ms - 1_000)
        assert world.running() == []
        world.pass_over(1_500)
        (trial,) = world.running()
        assert f"{trial} tries it now" in world.alarms()[0]
        assert trial in world.explained("j-2").would_start[0].event
        world.finish(trial, 75)
        world.settle()
        pause_ms = min(storm.PAUSE_MAX_MS, 2 * pause_ms)
    assert pause_ms == storm.PAUSE_MAX_MS


@pytest.mark.parametrize("code", [0, 1])
def test_a_trial_that_ends_otherwise_ends_the_rest(code: int) -> None:
    world = stormy()
    world.pass_over(storm.PAUSE_MS)
    assert world.end_all(code) == 1
    assert len(world.running()) == 1
    assert world.alarms() == ()


def test_a_trial_that_goes_on_ends_the_rest() -> None:
    world = StormyWorld(limit=2, retries=9)
    for number in range(4):
        world.submit(f"t{number}")
    for _ in range(3):
        world.end_all()
    assert world.running() == []
    world.pass_over(storm.PAUSE_MS)
    (trial,) = world.running()
    storms = world.broker.soft.storms
    due_ms = storm.due_ms(world.broker.state, world.broker.soft)
    assert due_ms == storms.begun[trial].at_ms + storm.QUICK_MS
    world.pass_over(storm.QUICK_MS)
    assert len(world.running()) == 2
    assert world.alarms() == ()


def test_a_trial_that_tells_nothing_leaves_the_next_to_try() -> None:
    world = stormy()
    world.pass_over(storm.PAUSE_MS)
    (trial,) = world.running()
    job = world.broker.state.attempts[trial].job
    world.ask(CancelJobs(jobs=(job,), reason="no", running=True))
    world.settle()
    (second,) = world.running()
    assert second != trial
    assert f"{second} tries it now" in world.alarms()[0]


def test_ends_that_are_slow_or_of_few_jobs_or_broken_by_another_are_no_storm() -> None:
    slow = StormyWorld(retries=20)
    for number in range(3):
        slow.submit(f"t{number}")
    for _ in range(8):
        slow.pass_over(storm.QUICK_MS)
        assert slow.end_all() == 1
    assert slow.alarms() == ()
    alone = StormyWorld(retries=20)
    alone.submit("t")
    for _ in range(12):
        assert alone.end_all() == 1, "one job that always ends so is its own fault"
    broken = StormyWorld(retries=20, limit=3)
    for number in range(8):
        broken.submit(f"t{number}")
    for _ in range(4):
        names = broken.running()
        for name, code in zip(names, (75, 75, 0), strict=False):
            broken.finish(name, code)
        broken.settle()
        assert len(names) == 3
    assert broken.alarms() == ()


def end_by_device(world: StormyWorld, codes: dict[str, int]) -> None:
    """Everything that runs ends as its device lets it."""
    for name in world.running():
        world.finish(name, codes[world.broker.state.attempts[name].device_uuids[0]])
    world.settle()


def test_a_device_at_fault_is_paused_and_the_profile_goes_on_elsewhere() -> None:
    world = StormyWorld(limit=2, devices=2, retries=9)
    for number in range(40):
        world.submit(f"t{number}", "gpu")
    for _ in range(20):
        end_by_device(world, {"GPU-0": 75, "GPU-1": 0})
        if world.alarms():
            break
    (alarm,) = world.alarms()
    assert alarm.startswith("PLACEMENT PAUSED  GPU 0: 5 attempts")
    where = {world.broker.state.attempts[name].device_uuids for name in world.running()}
    assert where == {("GPU-1",)}
    told = world.explained("profile:gpu2")
    assert "rests: 5 attempts in a row ended with 75" in told.devices[0].verdict
    assert told.devices[0].fits is False
    world.pass_over(storm.PAUSE_MS)
    for _ in range(3):
        end_by_device(world, {"GPU-0": 0, "GPU-1": 0})
    assert world.alarms() == ()
    assert world.broker.soft.storms.rests == {}


def test_a_profile_that_ends_so_on_every_device_is_paused_and_the_devices_are_not() -> None:
    world = StormyWorld(limit=1, devices=2, retries=1)
    for number in range(7):
        world.submit(f"t{number}", "gpu")
    for _ in range(storm.STORM_ENDS):
        assert world.end_all() == 1
    assert world.running() == []
    (alarm,) = world.alarms()
    assert alarm.startswith("PLACEMENT PAUSED  profile gpu: 5 attempts")
    assert "GPU 0" not in alarm
    assert world.submit("o", "gpu2")
    assert len(world.running("gpu2")) == 1


def test_the_only_device_is_paused_when_several_profiles_end_so_on_it() -> None:
    world = StormyWorld(limit=2, devices=1, retries=9)
    for number in range(3):
        world.submit(f"a{number}", "gpu")
        world.submit(f"b{number}", "gpu2")
    for _ in range(3):
        world.end_all()
    assert world.running() == []
    (alarm,) = world.alarms()
    assert "GPU 0: " in alarm
    told = world.explained("tag:b2")
    assert [blocker.code for blocker in told.blockers] == ["placement_paused"]
    assert told.blockers[0].detail.startswith("GPU 0 rests: ")
    cpu = world.submit("c", "cpu")
    assert world.running() == [f"{cpu}.1"]


def test_a_rest_that_nobody_tries_is_forgotten_and_raises_no_alarm() -> None:
    world = stormy()
    queued = tuple(job.job for job in world.broker.state.jobs.values() if job.state == "queued")
    world.ask(CancelJobs(jobs=queued, reason="no"))
    assert len(world.alarms()) == 1
    world.pass_over(storm.PAUSE_MS)
    assert world.alarms() == ()
    world.pass_over(storm.PAUSE_MAX_MS)
    assert world.broker.soft.storms.rests == {}


def test_a_new_broker_learns_it_again() -> None:
    world = stormy()
    assert len(world.alarms()) == 1
    world.crash_broker()
    world.settle()
    assert len(world.running()) == 1
    assert world.alarms() == ()
    for number in range(6):
        world.submit(f"again{number}")
    for _ in range(storm.STORM_ENDS):
        world.end_all()
    assert len(world.alarms()) == 1


def test_a_trial_of_a_resting_placement_costs_its_job_no_retry() -> None:
    world = stormy()
    world.pass_over(storm.PAUSE_MS)
    (trial,) = world.running()
    job = world.broker.state.jobs[trial.split(".")[0]]
    used = job.retries_used
    world.end_all()
    assert (job.state, job.retries_used) == ("queued", used), "what it met was no fault of its own"
    assert world.codes(job.job) == ["placement_paused"]


def test_a_job_that_always_ends_so_does_not_try_for_others_for_ever() -> None:
    world = stormy()
    for job in ("j-4", "j-5", "j-6"):
        world.ask(CancelJobs(jobs=(job,)))
    for _ in range(storm.FREE_TRIALS + 2):
        world.pass_over(storm.PAUSE_MAX_MS)
        world.end_all()
    assert world.broker.state.jobs["j-3"].state == "failed"


def test_different_jobs_that_fail_quickly_by_another_code_are_told_and_pause_nothing() -> None:
    world = StormyWorld()
    for number in range(storm.FAILING_JOBS):
        assert not world.alarms()
        world.submit(f"t{number}")
        world.end_all(1)
    (alarm,) = world.alarms()
    assert alarm == (
        "FAILING QUICKLY  profile cpu: 5 different jobs in a row failed in less than 10 s each; "
        "read one: praxist-zmq logs j-5"
    )
    world.submit("good")
    assert world.running(), "nothing is paused for it"
    world.end_all(0)
    assert not world.alarms()


def test_one_job_that_is_sent_again_and_again_is_no_alarm() -> None:
    world = StormyWorld()
    for number in range(2 * storm.FAILING_JOBS):
        world.ask(
            SubmitJob(
                peer="p", tag="t", command=("true",), cwd="/", environment={},
                retry_terminal=number > 0,
            )
        )  # fmt: skip
        world.settle()
        world.end_all(1)
    assert not world.alarms()
