"""Who goes first and waits only for the next look at the host keeps the slot that it needs."""

from __future__ import annotations

from typing import Any

from praxist_zmq.core.admission import BlockerTable
from praxist_zmq.core.placement import SAMPLE_AGE_MAX_MS
from praxist_zmq.core.slots_kept import EMPTY_MS, PATIENCE_MS
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from praxist_zmq.protocol.reports import HostSampled
from praxist_zmq.protocol.requests import SubmitJob
from tests.support.broker_world import World
from tests.support.host_world import Device, Host

PROFILES = {
    "cpu": Profile(pressure_domains=()),
    "pressed": Profile(pressure_domains=("cpu",)),
    "gpu": Profile(
        accelerator="gpu",
        gpu_count=1,
        gpu_memory_gb=10,
        gpu_utilization_pct=40,
        pressure_domains=(),
    ),
    "alone": Profile(accelerator="gpu", gpu_count=1, pressure_domains=()),
}


def contract(limit: int, **more: Any) -> SchedulerPolicy:
    return SchedulerPolicy(
        max_concurrent_experiments=limit,
        min_concurrent_experiments=limit,
        initial_concurrent_experiments=limit,
        exploration_reserve=0,
        default_profile="cpu",
        profiles=PROFILES,
        **more,
    )


class Blind(World):
    """A run whose sampler is silent until the test looks."""

    def __init__(self, limit: int, devices: int = 1, **more: Any) -> None:
        super().__init__(devices, contract=contract(limit, **more))
        self.look()
        self.sampling = False

    def look(self) -> None:
        self.turn(self.sample())
        self.settle()

    def submit(self, profile: str, work_class: str = "ordinary", peer: str = "p") -> str:
        number = self.broker.state.last_job_number + 1
        answer = self.ask(
            SubmitJob(
                peer=peer, tag=f"t-{number}", command=("true",), cwd="/", environment={},
                profile=profile, work_class=work_class,  # type: ignore[arg-type]
            )
        )  # fmt: skip
        self.settle()
        name: str = answer.job.job
        return name

    def end(self, job: str) -> None:
        name = self.broker.state.jobs[job].attempt
        assert name is not None
        self.finish(name)
        self.settle()

    def running(self) -> set[str]:
        return {attempt.job for attempt in self.broker.state.attempts.values()}

    def why(self, job: str) -> list[str]:
        table = BlockerTable(self.broker.state, self.broker.soft)
        return [blocker.detail for blocker in table.of(self.broker.state.jobs[job])]


def test_a_job_of_a_lower_place_does_not_take_the_slot_of_one_that_waits_for_a_look() -> None:
    world = Blind(limit=1)
    first = world.submit("gpu")
    mature, scout = world.submit("gpu", "mature"), world.submit("cpu", "scout")
    world.end(first)
    assert world.running() == set()
    assert world.why(scout) == [
        f"the last free slot is kept for {mature}: goes first and waits only for the next sample "
        "of the host"
    ]
    world.look()
    assert world.running() == {mature}


def test_within_a_class_the_older_keeps_its_slot() -> None:
    world = Blind(limit=1)
    first = world.submit("alone")
    older, younger = world.submit("alone"), world.submit("cpu")
    world.end(first)
    assert world.running() == set()
    world.look()
    assert world.running() == {older}
    world.end(older)
    assert world.running() == {younger}


def test_a_slot_is_kept_for_each_that_may_start_and_no_more() -> None:
    world = Blind(limit=4, devices=2)
    before = [world.submit("alone"), world.submit("alone")]
    mature = [world.submit("alone", "mature") for _ in range(5)]
    for job in before:
        world.finish(world.broker.state.jobs[job].attempt or "")
    world.settle()
    scouts = [world.submit("cpu", "scout") for _ in range(4)]
    assert world.running() == {*scouts[:2]}
    world.look()
    assert world.running() == {*scouts[:2], *mature[:2]}


def test_nobody_keeps_a_slot_for_longer_than_a_sample_may_be_old() -> None:
    world = Blind(limit=1)
    first = world.submit("gpu")
    world.submit("gpu", "mature")
    scout = world.submit("cpu", "scout")
    world.end(first)
    due = world.broker.wake_at_ms()
    assert due is not None
    assert due - world.now_ms <= 1_000, "the broker wakes by itself"
    world.pass_time(SAMPLE_AGE_MAX_MS + 1)
    world.settle()
    assert world.running() == {scout}


def test_a_place_below_the_cap_of_a_peer_is_kept_too() -> None:
    world = Blind(limit=4, max_parallel_runs_per_peer=1)
    first = world.submit("alone", peer="a")
    mature = world.submit("alone", "mature", peer="a")
    scout, other = world.submit("cpu", "scout", peer="a"), world.submit("cpu", peer="b")
    world.end(first)
    assert world.running() == {other}
    assert "below the cap of a is kept for" in world.why(scout)[0]
    world.look()
    assert world.running() == {other, mature}


def test_who_waits_until_a_sample_shows_a_burst_keeps_its_slot() -> None:
    world = Blind(limit=2)
    world.sample = lambda: World.sample(world).model_copy(update={"cpus": 1.0})  # type: ignore[method-assign]
    world.look()
    first = world.submit("pressed")
    pressed, free = world.submit("pressed"), world.submit("cpu")
    assert world.running() == {first}
    assert "kept for" in world.why(free)[0]
    world.now_ms += 1_000
    world.look()
    assert world.running() == {first, pressed}


def test_devices_that_no_sample_has_told_of_yet_are_waited_for() -> None:
    world = Blind(limit=1)
    world.broker.soft.sample = None
    mature, scout = world.submit("gpu", "mature"), world.submit("cpu", "scout")
    assert world.running() == set()
    assert "kept for" in world.why(scout)[0]
    world.look()
    assert world.running() == {mature}


def test_who_waits_for_room_and_not_for_a_look_keeps_nobody_out() -> None:
    world = Blind(limit=3)
    held = world.submit("alone")
    other = world.submit("cpu")
    world.submit("alone", "mature")
    scout = world.submit("cpu", "scout")
    world.end(other)
    assert world.running() == {held, scout}


def test_a_slot_of_the_host_is_kept_while_another_run_waits_only_for_a_look() -> None:
    host = Host([Device(0, 81_920)])
    rich, poor = host.add("rich", contract(2)), host.add("poor", contract(2))
    for run in host.runs:
        run.sampling = False
    host.round()
    for number in range(2):
        rich.submit(f"r-{number}", "alone" if number == 0 else "cpu")
    host.round()
    poor.submit("p-1", "alone")
    for number in range(2, 9):
        rich.submit(f"r-{number}", "cpu")
    _rounds_without_a_look(host)
    rich.finish(0)
    _rounds_without_a_look(host)
    assert len(rich.running()) == 1, "the slot that was freed waits for the run that holds less"
    host.round()
    assert len(poor.running()) == 1


def _rounds_without_a_look(host: Host) -> None:
    """Two seconds in which everything is delivered and nothing sampled."""
    for _ in range(8):
        host.now_ms += 250
        for run in host.runs:
            run.turn()
        host.settle()


# -- the host's pressure -----------------------------------------------------------------------


class Pressing(Blind):
    """A run of one slot on a host that is busy while an attempt of it runs, or always."""

    def __init__(self, *, foreign: bool) -> None:
        self.foreign = foreign
        super().__init__(limit=1)

    def sample(self) -> HostSampled:
        busy = getattr(self, "foreign", False) or bool(self.broker.state.attempts)
        return super().sample().model_copy(update={"cpu_pct": 99.0 if busy else 5.0})

    def second(self, count: int = 1) -> None:
        """So many seconds, with a sample in each."""
        for _ in range(count):
            self.now_ms += 1_001
            self.look()


def _passed(world: Pressing) -> str:
    """A job that declares pressure, which newer ones have passed for a while."""
    running = world.submit("cpu")
    older = world.submit("pressed")
    for _ in range(2):
        newer = world.submit("cpu")
        world.second(10)
        world.end(running)
        assert world.running() == {newer}
        running = newer
    world.second(PATIENCE_MS // 1000)
    return older


def test_newer_work_does_not_pass_for_ever_what_its_own_pressure_holds() -> None:
    world = Pressing(foreign=False)
    older = _passed(world)
    newer = world.submit("cpu")
    (running,) = world.running()
    world.end(running)
    assert world.running() == set()
    assert world.why(newer) == [
        f"the last free slot is kept for {older}: goes first and waits only for the host's "
        "pressure to fall"
    ]
    world.second()
    assert world.running() == {older}


def test_pressure_from_elsewhere_keeps_a_slot_empty_for_some_seconds_only() -> None:
    world = Pressing(foreign=True)
    _passed(world)
    newer = world.submit("cpu")
    (running,) = world.running()
    world.end(running)
    assert world.running() == set()
    world.second(EMPTY_MS // 1000 + 2)
    assert world.running() == {newer}
