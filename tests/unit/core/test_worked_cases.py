"""Worked cases of admission, each as it is told in the reference (A1-A47) or the public faults.

Parsing, leases and the bundled harness are tried where they are made; A1, A2, A4, A7, A8, A11, A12,
A18-A20, A36 and A41-A47 are not here.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from praxist_zmq.core.queue import Queue
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from praxist_zmq.protocol.replies import Explanation
from praxist_zmq.protocol.requests import ExplainJob
from tests.support.host_world import Device, Foreigner, Host, HostRun, Use

GIB = 1024


def gpu(
    memory: float | None = None,
    busy: float | None = None,
    count: int = 1,
    domains: tuple[Any, ...] = (),
) -> Profile:
    """A profile of so many devices, by default without pressure domains."""
    return Profile(
        accelerator="gpu",
        gpu_count=count,
        gpu_memory_gb=memory,
        gpu_utilization_pct=busy,
        pressure_domains=domains,
    )


PROFILES = {
    "cpu": Profile(pressure_domains=()),
    "cpu_cpu": Profile(pressure_domains=("cpu",)),
    "cpu_memory": Profile(pressure_domains=("memory",)),
    "cpu_io": Profile(pressure_domains=("io",)),
    "half": gpu(20, 45),
    "g32": gpu(32, 50),
    "g25": gpu(25, 50),
    "big": gpu(60, 90),
    "unknown": gpu(),
    "pair": gpu(20, 90, 2),
    "small": gpu(4, 40),
}


def contract(limit: int = 16, **changes: Any) -> SchedulerPolicy:
    """A fixed limit, unless told otherwise."""
    return SchedulerPolicy(
        **{
            "max_concurrent_experiments": limit,
            "min_concurrent_experiments": limit,
            "initial_concurrent_experiments": limit,
            "default_profile": "cpu",
            "profiles": PROFILES,
            **changes,
        }
    )


def one_run(*sizes_gib: int, **changes: Any) -> tuple[Host, HostRun]:
    """A host with devices of these sizes and one run."""
    host = Host([Device(n, size * GIB) for n, size in enumerate(sizes_gib)])
    run = host.add("run", contract(**changes))
    host.rest()
    return host, run


def submit(run: HostRun, profile: str, count: int = 1, **more: Any) -> list[str]:
    """So many jobs of a profile; their names."""
    names = []
    for _ in range(count):
        run.requests += 1
        names.append(run.submit(f"t-{run.requests}", profile, **more).job.job)
    return names


def state(run: HostRun, job: str) -> str:
    return run.broker.state.jobs[job].state


def codes(run: HostRun, job: str) -> set[str]:
    return {blocker.code for blocker in explain(run, job).blockers}


def explain(run: HostRun, job: str) -> Explanation:
    told = run.ask(ExplainJob(subject=job))
    assert isinstance(told, Explanation)
    return told


def devices_of(run: HostRun, job: str) -> tuple[str, ...]:
    attempt = run.broker.state.live_attempt(run.broker.state.jobs[job])
    return attempt.device_uuids if attempt is not None else ()


@pytest.fixture(autouse=True)
def nothing_over_promised(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Every host of a case is judged by the oracle too."""
    hosts: list[Host] = []
    made = Host.__init__

    def make(self: Host, devices: list[Device]) -> None:
        made(self, devices)
        hosts.append(self)

    monkeypatch.setattr(Host, "__init__", make)
    yield
    assert [host.faults for host in hosts if host.faults] == []


# -- the original's allocator cases ----------------------------------------------------------


def test_a6_unknown_demand_is_refused_on_a_busy_device() -> None:
    host, run = one_run(80)
    host.devices[0].foreigners = [Foreigner(7, 300, 0.0)]
    host.round()
    (job,) = submit(run, "unknown")
    host.rest()
    assert codes(run, job) == {"gpu_needs_exclusive"}


@pytest.mark.parametrize("domain", ["cpu", "memory"])
def test_a9_pressure_at_99_refuses(domain: str) -> None:
    host, run = one_run()
    host.pressure[domain] = 99.0
    host.round()
    (job,) = submit(run, f"cpu_{domain}")
    host.rest()
    assert codes(run, job) == {f"pressure_{domain}"}


def test_a13_a_lost_row_is_claimed_again_for_the_same_device() -> None:
    host, run = one_run(80, 80)
    first, second = submit(run, "unknown", 2)
    host.rest()
    held = {job: devices_of(run, job) for job in (first, second)}
    host.registry.state.rows.clear()
    host.registry.state.by_run.clear()
    host.registry.state.loads.clear()
    host.registry.state.with_devices.clear()
    host.registry.state.devices_held = 0
    host.restart_registry()
    host.rest()
    rows = {row.attempt: row.envelope.device_uuids for row in host.registry.state.rows.values()}
    assert rows == {f"{job}.1": uuids for job, uuids in held.items()}


def test_a21_two_devices_three_jobs_go_a_b_a() -> None:
    host, run = one_run(80, 80)
    jobs = submit(run, "half", 3)
    host.rest()
    assert [devices_of(run, job) for job in jobs] == [("GPU-0",), ("GPU-1",), ("GPU-0",)]


def test_a23_what_settled_jobs_use_is_not_counted_twice() -> None:
    host, run = one_run(80)
    run.policy.profiles["third"] = gpu(20, 30)
    for job in submit(run, "third", 2):
        host.rest()
        host.uses["run", f"{job}.1"] = Use(1.0, 1.0)
    host.rest()
    (third,) = submit(run, "third")
    host.rest()
    assert state(run, third) == "running"


@pytest.mark.parametrize("mapped", [True, False])
def test_a24_a_settled_job_that_looks_idle_keeps_its_envelope(mapped: bool) -> None:
    host, run = one_run(80)
    submit(run, "big")
    host.devices[0].tells_processes = mapped
    host.rest()
    (job,) = submit(run, "g32")
    host.rest()
    assert {"gpu_memory_short", "gpu_compute_short"} <= codes(run, job)


def test_a26_foreign_load_and_a_settled_peak_refuse_together() -> None:
    host, run = one_run(80)
    submit(run, "half")
    host.devices[0].foreigners = [Foreigner(7, 30 * GIB, 20.0)]
    host.rest()
    (job,) = submit(run, "g32")
    host.rest()
    assert codes(run, job) == {"gpu_memory_short", "gpu_compute_short"}


def test_a27_a_process_that_cannot_be_mapped_is_foreign() -> None:
    host, run = one_run(80)
    submit(run, "half")
    host.rest()
    host.devices[0].foreigners = [Foreigner(7, 20 * GIB, 45.0, mapped=False)]
    host.round()
    (job,) = submit(run, "half")
    host.rest()
    assert codes(run, job) == {"gpu_compute_short"}


def test_a29_a_job_of_unknown_demand_keeps_the_device_and_cpu_work_goes_on() -> None:
    host, run = one_run(80)
    submit(run, "unknown")
    host.rest()
    gpu_job, cpu_job = submit(run, "small")[0], submit(run, "cpu")[0]
    host.rest()
    assert codes(run, gpu_job) == {"gpu_held_exclusive"}
    assert state(run, cpu_job) == "running"


def test_a30_a_busy_host_lowers_the_limit_by_one_step() -> None:
    host, run = one_run(
        max_concurrent_experiments=8,
        min_concurrent_experiments=1,
        initial_concurrent_experiments=4,
    )
    host.pressure["cpu"] = 99.0
    host.round()
    assert run.broker.state.limit == 3
    host.round()
    assert run.broker.state.limit == 3


def test_a31_two_runs_do_not_share_an_exclusive_device() -> None:
    host, first = one_run(80)
    second = host.add("other", contract())
    host.rest()
    submit(first, "unknown")
    host.rest()
    (job,) = submit(second, "unknown")
    host.rest()
    assert "gpu_held_exclusive" in codes(second, job)


def test_a32_a_low_limit_of_one_run_does_not_bind_another() -> None:
    host, _ = one_run(limit=1)
    high = host.add("high", contract(4))
    host.rest()
    jobs = submit(high, "cpu", 3)
    host.rest()
    assert {state(high, job) for job in jobs} == {"running"}


def test_a34_io_pressure_holds_only_those_who_declare_it() -> None:
    host, run = one_run()
    host.pressure["io"] = 60.0
    host.round()
    (disk,), (cpu,) = submit(run, "cpu_io"), submit(run, "cpu_cpu")
    host.rest()
    assert codes(run, disk) == {"pressure_io"}
    assert state(run, cpu) == "running"


def test_a35_between_the_marks_the_limit_stays() -> None:
    host, run = one_run(
        max_concurrent_experiments=8,
        min_concurrent_experiments=1,
        initial_concurrent_experiments=2,
        adjustment_interval_seconds=2,
    )
    host.pressure["cpu"] = 80.0
    submit(run, "cpu_cpu", 4)
    host.rest()
    assert run.broker.state.limit == 2
    assert len(run.running()) == 2


def test_a37_a_foreign_job_on_the_device_leaves_cpu_work_alone() -> None:
    host, run = one_run(80)
    host.devices[0].foreigners = [Foreigner(7, 70 * GIB, 100.0)]
    (held,), (cpu,) = submit(run, "half"), submit(run, "cpu")
    host.rest()
    assert codes(run, held) == {"gpu_memory_short", "gpu_compute_short"}
    assert state(run, cpu) == "running"


def test_a38_two_runs_race_for_two_slots() -> None:
    host, first = one_run(limit=2)
    second = host.add("other", contract(2))
    host.rest()
    for run in (first, second):
        submit(run, "cpu", 2)
    host.rest()
    assert sum(len(run.running()) for run in (first, second)) == 2


def test_a40_a_full_host_refuses_what_was_not_running() -> None:
    host, first = one_run(limit=1)
    submit(first, "cpu")
    second = host.add("other", contract(1))
    host.rest()
    (job,) = submit(second, "cpu")
    second.crash_broker()
    host.rest()
    assert codes(second, job) == {"host_limit"}


# -- one device, foreign load ----------------------------------------------------------------


def test_18_gib_foreign_on_48_gib_keeps_32_out_and_lets_25_in() -> None:
    host, run = one_run(48)
    host.devices[0].foreigners = [Foreigner(7, 18 * GIB, 0.0)]
    (big,) = submit(run, "g32")
    host.rest()
    (blocker,) = explain(run, big).blockers
    assert (blocker.code, blocker.need) == ("gpu_memory_short", 32 * GIB)
    assert blocker.free == 48 * GIB * 95 // 100 - 18 * GIB
    (fits,) = submit(run, "g25")
    host.rest()
    assert state(run, fits) == "running"


def test_a_small_idle_foreign_process_costs_only_exclusive_work() -> None:
    host, run = one_run(48)
    host.devices[0].foreigners = [Foreigner(7, 642, 0.0)]
    host.round()
    (alone,), shared = submit(run, "unknown"), submit(run, "half", 2)
    host.rest()
    assert codes(run, alone) >= {"gpu_needs_exclusive"}
    assert {state(run, job) for job in shared} == {"running"}


def test_sixteen_jobs_of_45_percent_run_two_at_a_time() -> None:
    host, run = one_run(80)
    submit(run, "half", 16)
    host.rest()
    ended = 0
    while run.running():
        assert len(run.running()) == min(2, 16 - ended)
        ended += run.finish()
        host.round()
    assert ended == 16


def test_what_a_job_takes_beyond_its_word_counts() -> None:
    host, run = one_run(80)
    (first,) = submit(run, "half")
    host.rest()
    host.uses["run", f"{first}.1"] = Use(2.0, 1.9)
    host.round()
    (job,) = submit(run, "half")
    host.rest()
    assert codes(run, job) == {"gpu_compute_short"}


def test_more_than_a_device_has_is_not_placed_on_it_although_its_use_is_unknown() -> None:
    host, run = one_run(24, 48)
    host.devices[0].tells_memory = False
    host.round()
    (job,) = submit(run, "g32")
    host.rest()
    assert devices_of(run, job) == ("GPU-1",)


def test_a_pair_is_alone_on_both_devices_or_on_none() -> None:
    host, run = one_run(80, 80, 80)
    run.policy.profiles["two"] = gpu(20, 40, 2)
    submit(run, "half")
    host.rest()
    host.devices[1].tells_utilization = False
    host.devices[2].state = "lost"
    host.round()
    (pair,) = submit(run, "two")
    host.rest()
    assert codes(run, pair) >= {"gpu_count_short", "gpu_needs_exclusive"}
    host.devices[2].state = "available"
    host.rest()
    assert devices_of(run, pair) == ("GPU-2", "GPU-0")


# -- devices that fail -----------------------------------------------------------------------


def test_one_lost_device_leaves_the_others() -> None:
    host, run = one_run(80, 80, 80, 80)
    jobs = submit(run, "unknown", 4)
    host.rest()
    assert {state(run, job) for job in jobs} == {"running"}
    host.devices[1].state = "lost"
    for _ in range(4):
        run.finish()
    host.rest()
    again = submit(run, "unknown", 4)
    host.rest()
    used = sorted(devices_of(run, job) for job in again)
    assert used == [(), ("GPU-0",), ("GPU-2",), ("GPU-3",)]
    assert "probe_unavailable" in codes(run, again[3])


def test_a_driver_that_is_away_for_a_minute_loses_no_job() -> None:
    host, run = one_run(80)
    host.probe = "unknown"
    host.round()
    jobs = submit(run, "half", 2)
    for _ in range(60):
        host.round(1_000)
    assert all(codes(run, job) == {"probe_unknown"} for job in jobs)
    host.probe = "available"
    host.rest()
    assert {state(run, job) for job in jobs} == {"running"}


@pytest.mark.parametrize("figures", [True, False])
def test_memory_that_stays_after_an_exit_is_not_given_away(figures: bool) -> None:
    host, run = one_run(48)
    host.devices[0].tells_figures = figures
    first, second = submit(run, "g32")[0], submit(run, "g32")[0]
    host.rest()
    host.uses["run", f"{first}.1"] = Use(1.0, 1.0)
    host.round()
    run.finish(lag_ms=3_000)
    for _ in range(3):
        host.round(800)
        assert state(run, second) == "queued"
    host.rest()
    assert state(run, second) == "running"


def test_what_runs_astray_counts_where_it_is() -> None:
    host, run = one_run(80, 80)
    (first,) = submit(run, "big")
    host.rest()
    assert devices_of(run, first) == ("GPU-0",)
    host.uses["run", f"{first}.1"] = Use(1.0, 1.0, astray="GPU-1")
    host.round()
    assert run.broker.state.jobs[first].binding_status == "conflict"
    (second,) = submit(run, "big")
    host.rest()
    assert codes(run, second) == {"gpu_memory_short", "gpu_compute_short"}


# -- pressure and limits ---------------------------------------------------------------------


def test_no_domains_means_none() -> None:
    host, run = one_run()
    host.pressure = {"cpu": 100.0, "memory": 100.0, "io": 100.0}
    host.round()
    (job,) = submit(run, "cpu")
    host.rest()
    assert state(run, job) == "running"


def test_a_burst_does_not_fill_all_slots_on_one_sample() -> None:
    host, run = one_run(limit=16)
    host.cpus, host.pressure["cpu"] = 2.0, 46.0
    host.round()
    run.sampling = False
    jobs = submit(run, "cpu_cpu", 8)
    host.settle()
    assert len(run.running()) == 1
    assert codes(run, jobs[1]) >= {"pressure_cpu"}
    run.sampling = True
    host.round()
    assert len(run.running()) == 2


@pytest.mark.parametrize("domain", ["cpu", "memory", "io"])
def test_every_domain_lowers_the_limit(domain: str) -> None:
    host, run = one_run(
        max_concurrent_experiments=4,
        min_concurrent_experiments=1,
        initial_concurrent_experiments=4,
        adjustment_interval_seconds=2,
    )
    host.pressure[domain] = 99.0
    for _ in range(12):
        host.round()
    assert run.broker.state.limit == 1


def test_the_limit_rises_once_an_interval_and_no_faster() -> None:
    host, run = one_run(
        max_concurrent_experiments=4,
        min_concurrent_experiments=1,
        initial_concurrent_experiments=1,
        adjustment_interval_seconds=10,
    )
    submit(run, "cpu", 8)
    host.settle()
    limits = []
    for _ in range(35):
        host.round(1_000)
        limits.append(run.broker.state.limit)
    assert limits[-1] == 4
    rises = [n for n, (a, b) in enumerate(itertools.pairwise(limits)) if b > a]
    assert all(later - earlier >= 9 for earlier, later in itertools.pairwise(rises))


def test_two_runs_do_not_rise_on_one_sample() -> None:
    host = Host([])
    moving = {
        "max_concurrent_experiments": 8,
        "min_concurrent_experiments": 1,
        "initial_concurrent_experiments": 1,
        "adjustment_interval_seconds": 10,
    }
    runs = [host.add(name, contract(**moving)) for name in ("a", "b")]
    host.rest()
    for run in runs:
        submit(run, "cpu", 8)
    before = sum(run.broker.state.limit for run in runs)
    for _ in range(20):
        host.round(500)
    assert sum(run.broker.state.limit for run in runs) - before <= 2


def test_a_run_that_climbed_uses_its_own_limit_beside_an_idle_run() -> None:
    host = Host([])
    moving = {
        "max_concurrent_experiments": 4,
        "min_concurrent_experiments": 1,
        "initial_concurrent_experiments": 1,
        "adjustment_interval_seconds": 2,
    }
    runs = [host.add(name, contract(**moving)) for name in ("a", "b")]
    host.rest()
    submit(runs[0], "cpu", 4)
    host.rest()
    assert len(runs[0].running()) == 4


def test_jobs_of_a_capped_peer_cost_nothing_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    head = Queue.head
    monkeypatch.setattr(Queue, "head", lambda *given: looks.append(1) or head(*given))

    def cost(queued: int) -> int:
        host, run = one_run(max_parallel_runs_per_peer=1)
        submit(run, "cpu", queued, peer="greedy")
        host.settle()
        looks.clear()
        for peer in ("p1", "p2", "p3"):
            (job,) = submit(run, "cpu", peer=peer)
            host.settle()
            assert state(run, job) == "running"
        return len(looks)

    assert cost(2_000) <= 2 * cost(20)


# -- order -----------------------------------------------------------------------------------


def stream(host: Host, run: HostRun, awaited: str, eta: float | None, rounds: int = 40) -> int:
    """Small jobs come and go, two at a time and never at once; how many passed the awaited one."""
    passed = 0
    for number in range(rounds):
        submit(run, "half", 2, eta_seconds=eta)
        host.round()
        if state(run, awaited) == "running":
            return passed
        running = run.running()
        run.finish(number % max(1, len(running)))
        passed += 1
        host.round()
    return passed


@pytest.mark.parametrize("eta", [None, 600.0, 1.0])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_stream_of_small_jobs_starves_no_pair(eta: float | None, lost: int) -> None:
    host, run = one_run(*[80] * (2 + lost))
    for device in host.devices[2:]:
        device.state = "lost"
    submit(run, "half", 4, eta_seconds=eta)
    host.round()
    (pair,) = submit(run, "pair")
    assert stream(host, run, pair, eta) <= 12


def test_a_pair_is_not_starved_behind_what_foreign_load_keeps_out() -> None:
    host, run = one_run(48, 48)
    for device in host.devices:
        device.foreigners = [Foreigner(7 + device.index, 14 * GIB, 0.0)]
    host.round()
    submit(run, "g32")
    submit(run, "small", 4)
    host.round()
    run.policy.profiles["two"] = gpu(20, 90, 2)
    (pair,) = submit(run, "two")
    for number in range(20):
        submit(run, "small", 2)
        host.round()
        if state(run, pair) == "running":
            return
        run.finish(number % max(1, len(run.running())))
    assert state(run, pair) == "running"


def test_no_place_is_kept_for_a_peer_at_its_cap() -> None:
    host, run = one_run(80, 80, max_parallel_runs_per_peer=1)
    submit(run, "big", peer="other")
    host.rest()
    (pair,) = submit(run, "pair", peer="capped")
    host.rest()
    assert codes(run, pair) >= {"gpu_count_short"}
    submit(run, "cpu", peer="capped", work_class="mature")
    host.rest()
    (small,) = submit(run, "half", peer="third")
    host.rest()
    assert codes(run, pair) >= {"peer_cap"}
    assert state(run, small) == "running"


def test_a_kept_place_does_not_take_its_peer_over_the_cap() -> None:
    host, run = one_run(80, 80, max_parallel_runs_per_peer=1)
    submit(run, "big", peer="other")
    host.rest()
    (pair,) = submit(run, "pair", peer="capped")
    host.rest()
    submit(run, "cpu", peer="capped", work_class="mature")
    run.finish()
    while run.to_broker:
        run.deliver()
    host.now_ms += 10
    run.turn(run.sample())
    host.rest()
    assert "peer_cap" in codes(run, pair)
    assert len(run.running()) == 1


def test_a_short_job_passes_one_that_waits_for_two_devices() -> None:
    host, run = one_run(80, 80)
    submit(run, "big", eta_seconds=3_600)
    host.rest()
    (pair,) = submit(run, "pair", eta_seconds=600)
    (long,) = submit(run, "small", eta_seconds=36_000)
    (short,) = submit(run, "half", eta_seconds=1)
    host.rest()
    assert state(run, short) == "running"
    assert codes(run, pair) >= {"gpu_count_short"}
    assert "gpu_reserved" in codes(run, long)


def test_a_short_job_passes_the_head_of_its_own_lane() -> None:
    host, run = one_run(80, 80)
    submit(run, "big", eta_seconds=3_600)
    host.rest()
    submit(run, "pair", eta_seconds=600)
    (unknown,) = submit(run, "half")
    (short,) = submit(run, "half", eta_seconds=1)
    host.rest()
    assert state(run, short) == "running"
    assert "gpu_reserved" in codes(run, unknown)


# -- several runs ----------------------------------------------------------------------------


def test_two_runs_with_a_hundred_jobs_each_share_one_device() -> None:
    host = Host([Device(0, 80 * GIB)])
    runs = [host.add(name, contract()) for name in ("a", "b")]
    host.rest()
    for run in runs:
        submit(run, "half", 100)
    host.round()
    done = {run.name: 0 for run in runs}
    for _ in range(60):
        host.round()
        for run in runs:
            done[run.name] += run.finish()
    assert sum(done.values()) >= 90
    assert abs(done["a"] - done["b"]) <= 20


def test_a_run_with_all_slots_yields_freed_ones_to_one_that_waits() -> None:
    host, rich = one_run(limit=8)
    submit(rich, "cpu", 40)
    host.rest()
    assert len(rich.running()) == 8
    poor = host.add("poor", contract(8))
    host.rest()
    submit(poor, "cpu", 40)
    for _ in range(4):
        host.round()
        rich.finish()
    host.rest()
    assert (len(rich.running()), len(poor.running())) == (4, 4)
