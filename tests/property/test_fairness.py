"""Over long random runs: nobody waits for ever, in a run or between runs."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
from hypothesis import given, settings

from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from tests.support.host_world import Device, Host, HostRun

SMALL = {
    f"s{busy}": Profile(
        accelerator="gpu",
        gpu_count=1,
        gpu_memory_gb=busy / 4,
        gpu_utilization_pct=busy,
        pressure_domains=(),
    )
    for busy in (20, 45, 70)
}
LARGE = {
    "pair": Profile(
        accelerator="gpu",
        gpu_count=2,
        gpu_memory_gb=30,
        gpu_utilization_pct=60,
        pressure_domains=(),
    ),
    "alone": Profile(accelerator="gpu", gpu_count=1, pressure_domains=()),
    "both": Profile(accelerator="gpu", gpu_count=2, pressure_domains=()),
}
SIZE_MIB = 49_140


def contract(limit: int) -> SchedulerPolicy:
    """A fixed limit."""
    return SchedulerPolicy(
        max_concurrent_experiments=limit,
        min_concurrent_experiments=limit,
        initial_concurrent_experiments=limit,
        default_profile="alone",
        profiles={**SMALL, **LARGE},
    )


def submit(run: HostRun, profile: str) -> str:
    run.requests += 1
    name: str = run.submit(f"t-{run.requests}", profile).job.job
    return name


@settings(max_examples=settings.default.max_examples // 2)
@given(
    lost=st.integers(0, 1),
    devices=st.integers(2, 4),
    limit=st.integers(3, 12),
    awaited=st.sampled_from(sorted(LARGE)),
    classes=st.randoms(use_true_random=False),
)
def test_what_waits_for_devices_starts_when_those_before_it_have_ended(
    lost: int, devices: int, limit: int, awaited: str, classes: Random
) -> None:
    """However many small jobs come after it; the oldest ends first. Those before it may each have
    to wait until a device has drained, too."""
    host = Host([Device(n, SIZE_MIB, "lost" if n < lost else "available") for n in range(devices)])
    if devices - lost < 2:
        awaited = "alone"
    run = host.add("run", contract(limit))
    host.rest()
    for _ in range(2 * devices):
        submit(run, classes.choice(sorted(SMALL)))
    host.rest()
    large = submit(run, awaited)
    for _ in range((2 * devices + 1) * limit):
        for _ in range(2):
            submit(run, classes.choice(sorted(SMALL)))
        host.round()
        if run.broker.state.jobs[large].state == "running":
            break
        run.finish()
        host.round()
    assert run.broker.state.jobs[large].state == "running"
    assert host.faults == []


@settings(max_examples=settings.default.max_examples // 3)
@given(
    runs=st.integers(2, 3),
    devices=st.integers(1, 3),
    limit=st.integers(2, 8),
    profile=st.sampled_from(sorted(SMALL)),
    order=st.randoms(use_true_random=False),
)
def test_every_run_goes_on_while_others_have_endless_work(
    runs: int, devices: int, limit: int, profile: str, order: Random
) -> None:
    """Each with work enough; ends at random: none is left behind."""
    host = Host([Device(n, SIZE_MIB) for n in range(devices)])
    every = [host.add(f"r{number}", contract(limit)) for number in range(runs)]
    host.rest()
    for run in every:
        for _ in range(60):
            submit(run, profile)
    ended = dict.fromkeys((run.name for run in every), 0)
    for _ in range(40):
        host.round()
        for run in order.sample(every, len(every)):
            ended[run.name] += run.finish(order.randrange(8))
    assert min(ended.values()) * 4 >= max(ended.values()), ended
    assert min(ended.values()) >= 5
    assert host.faults == []
