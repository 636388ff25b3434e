"""Admission on every host that is found: no limit is passed, and every wait has a true reason.

The oracle adds up by itself (`tests.support.packing_oracle`). At every grant and every GO nothing
may be over-promised. Whenever the host is at rest, every waiting job has blockers that are true,
with the oracle's numbers, and one that the oracle could place waits only for another reason.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from tests.support.host_world import Device, Foreigner, Host, HostRun, Use
from tests.support.reasons import check_waits

PROFILES = {
    "cpu": Profile(),
    "free": Profile(pressure_domains=()),
    "disk": Profile(pressure_domains=("io",)),
    "small": Profile(accelerator="gpu", gpu_count=1, gpu_memory_gb=7.3, gpu_utilization_pct=30),
    "half": Profile(
        accelerator="gpu",
        gpu_count=1,
        gpu_memory_gb=20,
        gpu_utilization_pct=45,
        pressure_domains=(),
    ),
    "third": Profile(
        accelerator="gpu",
        gpu_count=1,
        gpu_memory_gb=4,
        gpu_utilization_pct=33.4,
        pressure_domains=(),
    ),
    "big": Profile(
        accelerator="gpu",
        gpu_count=1,
        gpu_memory_gb=40,
        gpu_utilization_pct=90,
        pressure_domains=("gpu",),
    ),
    "unknown": Profile(accelerator="gpu", gpu_count=1, pressure_domains=()),
    "unsure": Profile(accelerator="gpu", gpu_count=1, gpu_memory_gb=22, pressure_domains=()),
    "pair": Profile(
        accelerator="gpu",
        gpu_count=2,
        gpu_memory_gb=14,
        gpu_utilization_pct=55,
        pressure_domains=(),
    ),
    "trio": Profile(accelerator="gpu", gpu_count=3, pressure_domains=("io",)),
}
SIZES_MIB = (16_384, 24_576, 49_140, 81_559)

devices = st.lists(
    st.builds(
        Device,
        index=st.just(0),
        total_mib=st.sampled_from(SIZES_MIB),
        state=st.sampled_from(["available"] * 7 + ["lost", "unsupported", "unknown"]),
        tells_memory=st.sampled_from([True] * 6 + [False]),
        tells_total=st.sampled_from([True] * 8 + [False]),
        tells_utilization=st.sampled_from([True] * 6 + [False]),
        tells_processes=st.sampled_from([True] * 4 + [False]),
        tells_figures=st.sampled_from([True] * 3 + [False]),
    ),
    max_size=8,
)


etas = st.sampled_from([None, None, 5.0, 600.0])


@st.composite
def contracts(draw: st.DrawFn) -> SchedulerPolicy:
    """A run's contract: a fixed limit or one that moves, with or without a cap for each peer."""
    most = draw(st.sampled_from([4, 8, 16, 2, 1]))
    least = draw(st.sampled_from([most, most, 1]))
    return SchedulerPolicy(
        max_concurrent_experiments=most,
        min_concurrent_experiments=least,
        initial_concurrent_experiments=least,
        adjustment_interval_seconds=2,
        exploration_reserve=draw(st.integers(0, 2)),
        max_parallel_runs_per_peer=draw(st.sampled_from([None, None, 1, 2])),
        default_profile="cpu",
        profiles=PROFILES,
    )


class Admission(RuleBasedStateMachine):
    """A host, its runs, and whatever happens to them."""

    @initialize(
        found=devices,
        chosen=st.lists(contracts(), min_size=1, max_size=3),
        work=st.lists(
            st.tuples(st.sampled_from(sorted(PROFILES)), st.integers(1, 6), etas), max_size=6
        ),
    )
    def begin(
        self, found: list[Device], chosen: list[SchedulerPolicy], work: list[tuple[str, int, Any]]
    ) -> None:
        for index, device in enumerate(found):
            device.index = index
        self.host = Host(found)
        for number, contract in enumerate(chosen):
            self.host.add(f"run{number}", contract)
        self.tags = 0
        self.pids = 50_000
        self.host.settle()
        for number, (profile, count, eta) in enumerate(work):
            self.submit(number, f"p{number % 4}", profile, "ordinary", eta, count)
        self.host.round()

    def run(self, number: int) -> HostRun:
        return self.host.runs[number % len(self.host.runs)]

    # -- work ------------------------------------------------------------------------------

    @rule(
        number=st.integers(0, 2),
        peer=st.sampled_from(["p1", "p2", "p3"]),
        profile=st.sampled_from(sorted(PROFILES)),
        work_class=st.sampled_from(["scout", "ordinary", "ordinary", "mature"]),
        eta=etas,
        count=st.integers(1, 4),
    )
    def submit(
        self, number: int, peer: str, profile: str, work_class: Any, eta: Any, count: int
    ) -> None:
        for _ in range(count):
            self.tags += 1
            self.run(number).submit(f"tag-{self.tags}", profile, peer, work_class, eta)

    @rule(
        number=st.integers(0, 2),
        which=st.integers(0, 7),
        code=st.sampled_from([0, 0, 1, 75]),
        lag_ms=st.sampled_from([0, 0, 3_000]),
    )
    def finish(self, number: int, which: int, code: int, lag_ms: int) -> None:
        self.run(number).finish(which, code, lag_ms)

    @rule(
        number=st.integers(0, 2),
        which=st.integers(0, 7),
        memory=st.sampled_from([0.0, 0.5, 1.0, 1.4]),
        busy=st.sampled_from([0.0, 0.5, 1.0, 1.4]),
        astray=st.sampled_from([None, None, None, "GPU-0", "GPU-1"]),
    )
    def work(self, number: int, which: int, memory: float, busy: float, astray: Any) -> None:
        run = self.run(number)
        running = run.running()
        if running:
            name = running[which % len(running)].name
            self.host.uses[run.name, name] = Use(memory, busy, astray)

    # -- the host --------------------------------------------------------------------------

    @precondition(lambda self: self.host.devices)
    @rule(
        which=st.integers(0, 7),
        memory=st.sampled_from([0, 200, 642, 18_432, 40_000]),
        busy=st.sampled_from([0.0, 3.0, 30.0, 99.0]),
        listed=st.booleans(),
        mapped=st.booleans(),
        figures=st.booleans(),
    )
    def foreigner(
        self, which: int, memory: int, busy: float, listed: bool, mapped: bool, figures: bool
    ) -> None:
        self.pids += 1
        device = self.host.devices[which % len(self.host.devices)]
        device.foreigners.append(Foreigner(self.pids, memory, busy, listed, mapped, figures))

    @precondition(lambda self: self.host.devices)
    @rule(which=st.integers(0, 7))
    def foreigners_leave(self, which: int) -> None:
        self.host.devices[which % len(self.host.devices)].foreigners.clear()

    @precondition(lambda self: self.host.devices)
    @rule(
        which=st.integers(0, 7),
        state=st.sampled_from(["available", "available", "lost", "unknown", "unsupported"]),
        memory=st.sampled_from([True, True, False]),
        busy=st.sampled_from([True, True, False]),
        processes=st.sampled_from([True, True, False]),
        figures=st.booleans(),
    )
    def driver_changes(
        self, which: int, state: str, memory: bool, busy: bool, processes: bool, figures: bool
    ) -> None:
        device = self.host.devices[which % len(self.host.devices)]
        device.state, device.tells_memory, device.tells_utilization = state, memory, busy
        device.tells_processes, device.tells_figures = processes, figures

    @rule(state=st.sampled_from(["available", "available", "available", "unknown"]))
    def driver_goes(self, state: str) -> None:
        self.host.probe = state

    @rule(
        cpu=st.sampled_from([1.0, 1.0, 80.0, 99.0, None]),
        memory=st.sampled_from([1.0, 1.0, 99.0]),
        io=st.sampled_from([0.0, 0.0, 50.0, None]),
        cpus=st.sampled_from([64.0, 2.0, None]),
    )
    def pressure(self, cpu: Any, memory: Any, io: Any, cpus: Any) -> None:
        self.host.pressure = {"cpu": cpu, "memory": memory, "io": io}
        self.host.cpus = cpus

    # -- time and faults -------------------------------------------------------------------

    @rule(number=st.integers(0, 2), steps=st.integers(1, 6))
    def deliver(self, number: int, steps: int) -> None:
        for _ in range(steps):
            self.run(number).deliver()

    @rule(number=st.integers(0, 2), passed=st.sampled_from([0, 100, 600, 2_000, 6_000]))
    def one_samples(self, number: int, passed: int) -> None:
        self.host.now_ms += passed
        run = self.run(number)
        run.turn(run.sample())

    @rule(passed=st.sampled_from([10, 600, 2_500, 7_000]))
    def nobody_samples(self, passed: int) -> None:
        self.host.now_ms += passed
        for run in self.host.runs:
            run.turn()

    @rule(count=st.integers(1, 3), finish=st.booleans())
    def goes_on(self, count: int, finish: bool) -> None:
        """Samples come; everything is delivered."""
        for _ in range(count):
            for run in self.host.runs if finish else ():
                run.finish()
            self.host.round()

    @rule(number=st.integers(0, 2))
    def broker_dies(self, number: int) -> None:
        self.run(number).crash_broker()

    @rule(number=st.integers(0, 2))
    def launcher_dies(self, number: int) -> None:
        self.run(number).crash_launcher()

    @rule()
    def registry_dies(self) -> None:
        self.host.restart_registry()

    @rule()
    def comes_to_rest(self) -> None:
        self.host.rest()
        self.host.faults += check_waits(self.host)

    # -- what must hold --------------------------------------------------------------------

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "host"):
            assert self.host.faults == []

    @invariant()
    def whatever_runs_is_held(self) -> None:
        if not hasattr(self, "host"):
            return
        for run in self.host.runs:
            assert len(run.broker.state.attempts) <= max(run.most_allowed, 1)
            for attempt in run.running():
                assert (run.run_key, attempt.name) in self.host.registry.state.rows

    def teardown(self) -> None:
        """Without faults, everything that can ever run does, and nothing is held in the end."""
        if not hasattr(self, "host") or self.host.faults:
            return
        self.host.rest()
        assert check_waits(self.host) == []


TestAdmission = Admission.TestCase
TestAdmission.settings = settings(
    settings.default, stateful_step_count=25, max_examples=settings.default.max_examples
)
