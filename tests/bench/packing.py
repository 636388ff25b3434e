"""How well experiments are packed on devices, and what a decision costs with many of them.

Simulated traces with known demands go through the real broker and registry machines, with a clock
that jumps from end to end. Beside it the same trace on whole devices, first come first served, and
the lower bound that no schedule beats: the work in utilisation, the work in memory, what can run
side by side on a device at all, and the longest experiment. Use is the work that was done over what
the devices offered until the end.
"""

from __future__ import annotations

import heapq
import itertools
import random
import statistics
import time
from dataclasses import dataclass

from praxist_zmq.core.demand import memory_limit_mib
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from praxist_zmq.protocol.requests import SubmitJob
from tests.bench.figures import Figure, quantile, spread
from tests.bench.place import Place
from tests.support.broker_world import World

DEVICES = 4
MEMORY_GIB = 80
LIMIT = 10_000
MANY_DEVICES = 64
QUEUED = 10_000
TURNS = 200
PRICE_STEPS = 3_000


@dataclass(frozen=True, slots=True)
class Experiment:
    """One job of a trace. Demand is of each device."""

    tag: str
    profile: str
    seconds: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A list of experiments that all wait at the beginning, in order."""

    name: str
    profiles: dict[str, Profile]
    experiments: list[Experiment]


def packed(place: Place, *, quick: bool) -> list[Figure]:
    """Makespan and use of each trace, then the cost of decisions."""
    count = 600 if quick else 1_500
    found: list[Figure] = []
    for trace in (_alike(count), _mixed(count), _with_pairs(count)):
        bound = lower_bound(trace, DEVICES)
        ours = makespan(trace, DEVICES)
        whole = whole_devices(trace, DEVICES)
        found += [
            Figure("packing", f"{trace.name}: share of the lower bound", bound, "s", ours,
                   "our makespan", 0.9, detail={"makespan_s": ours, "whole_devices_s": whole}),
            Figure("packing", f"{trace.name}: makespan on whole devices", whole, "s", ours,
                   "our makespan"),
            Figure("packing", f"{trace.name}: use of the devices", 100 * use(trace, ours), "%",
                   100 * use(trace, whole), "on whole devices"),
        ]  # fmt: skip
    return [*found, _decision()]


# -- traces ---------------------------------------------------------------------------------


def _gpu(memory_gb: float, utilization_pct: float, count: int = 1) -> Profile:
    return Profile(
        accelerator="gpu",
        gpu_count=count,
        gpu_memory_gb=memory_gb,
        gpu_utilization_pct=utilization_pct,
        pressure_domains=(),
    )


def _draw(name: str, profiles: dict[str, Profile], count: int, seed: int) -> Trace:
    chance = random.Random(seed)
    names = list(profiles)
    experiments = [
        Experiment(
            f"{name}-{n}",
            chance.choice(names),
            int(min(3600, max(30, chance.lognormvariate(5.5, 0.7)))),
        )
        for n in range(count)
    ]
    return Trace(name, profiles, experiments)


def _alike(count: int) -> Trace:
    return _draw("half and quarter", {"half": _gpu(30, 50), "quarter": _gpu(18, 25)}, count, 1)


def _mixed(count: int) -> Trace:
    profiles = {
        "tiny": _gpu(4, 10), "small": _gpu(8, 20), "lean": _gpu(30, 15), "busy": _gpu(6, 40),
        "half": _gpu(35, 45), "big": _gpu(60, 80),
    }  # fmt: skip
    return _draw("six kinds", profiles, count, 2)


def _with_pairs(count: int) -> Trace:
    profiles = {
        "small": _gpu(8, 20), "lean": _gpu(20, 30), "half": _gpu(30, 45), "pair": _gpu(40, 60, 2),
    }  # fmt: skip
    return _draw("with pairs", profiles, count, 3)


# -- bounds and the plain way -----------------------------------------------------------------


def lower_bound(trace: Trace, devices: int) -> float:
    """Seconds that every schedule needs: by the sums, by what fits side by side, by the longest."""
    busy = memory = 0.0
    limit = memory_limit_mib(MEMORY_GIB * 1024)
    for experiment in trace.experiments:
        profile = trace.profiles[experiment.profile]
        work = experiment.seconds * profile.gpu_count
        busy += work * (profile.gpu_utilization_pct or 100.0) / 100.0
        memory += work * (profile.gpu_memory_gb or MEMORY_GIB) * 1024 / limit
    longest = max(experiment.seconds for experiment in trace.experiments)
    return max(busy / devices, memory / devices, _side_by_side(trace) / devices, float(longest))


def _fit(counts: tuple[int, ...], profiles: list[Profile], limit_mib: int) -> bool:
    """Whether so many of each profile run side by side on one device."""
    pairs = list(zip(counts, profiles, strict=True))
    busy = sum(n * (profile.gpu_utilization_pct or 100.0) for n, profile in pairs)
    memory = sum(n * (profile.gpu_memory_gb or MEMORY_GIB) * 1024 for n, profile in pairs)
    return busy <= 100.0 and memory <= limit_mib


def _fillings(trace: Trace) -> list[tuple[int, ...]]:
    """Every way to fill one device to the brim: how many of each profile run side by side."""
    profiles = list(trace.profiles.values())
    limit = memory_limit_mib(MEMORY_GIB * 1024)
    ranges = [range(int(100 // (profile.gpu_utilization_pct or 100.0)) + 1) for profile in profiles]
    possible = [counts for counts in itertools.product(*ranges) if _fit(counts, profiles, limit)]
    return [
        one
        for one in possible
        if not any(
            other != one and all(a <= b for a, b in zip(one, other, strict=True))
            for other in possible
        )
    ]


def _side_by_side(trace: Trace) -> float:
    """Device seconds that all experiments need at least. Any price a second for each profile, by
    which no filling of a device earns more than one a second, bounds them from below: what all the
    work would earn. Prices rise for what the best fillings so far leave uncovered."""
    fillings = _fillings(trace)
    work = [
        float(sum(e.seconds * p.gpu_count for e in trace.experiments if e.profile == name))
        for name, p in trace.profiles.items()
    ]
    covered = [1e-9] * len(work)
    best = 0.0
    for _ in range(PRICE_STEPS):
        need = [
            seconds / done if seconds else 0.0 for seconds, done in zip(work, covered, strict=True)
        ]
        largest = max(need)
        prices = [(n / largest) ** 8 / w if w else 0.0 for n, w in zip(need, work, strict=True)]
        earned = [sum(p * n for p, n in zip(prices, filling, strict=True)) for filling in fillings]
        top = max(range(len(fillings)), key=earned.__getitem__)
        best = max(best, sum(p * w for p, w in zip(prices, work, strict=True)) / earned[top])
        covered = [done + n for done, n in zip(covered, fillings[top], strict=True)]
    return best


def use(trace: Trace, makespan_s: float) -> float:
    """Utilisation that was declared and done, over what the devices offered."""
    done = sum(
        e.seconds
        * trace.profiles[e.profile].gpu_count
        * (trace.profiles[e.profile].gpu_utilization_pct or 100.0)
        / 100.0
        for e in trace.experiments
    )
    return done / (DEVICES * makespan_s)


def whole_devices(trace: Trace, devices: int) -> float:
    """Makespan when every experiment takes whole devices, first come first served."""
    free_at = [0.0] * devices
    started_s = end_s = 0.0
    for experiment in trace.experiments:
        count = trace.profiles[experiment.profile].gpu_count
        free_at.sort()
        started_s = max(started_s, free_at[count - 1])
        for n in range(count):
            free_at[n] = started_s + experiment.seconds
        end_s = max(end_s, started_s + experiment.seconds)
    return end_s


# -- ours -------------------------------------------------------------------------------------


def _world(trace: Trace, devices: int) -> World:
    world = World(devices=devices, limit=1)
    world.policy = SchedulerPolicy(
        max_concurrent_experiments=LIMIT,
        min_concurrent_experiments=LIMIT,
        initial_concurrent_experiments=LIMIT,
        default_profile=next(iter(trace.profiles)),
        profiles=trace.profiles,
    )
    world.start_broker()
    world.settle()
    return world


def _submit(world: World, experiment: Experiment) -> None:
    world.ask(
        SubmitJob(
            tag=experiment.tag, peer="bench", command=("/bin/true",), cwd="/", environment={},
            profile=experiment.profile, eta_seconds=float(experiment.seconds),
        )
    )  # fmt: skip


def makespan(trace: Trace, devices: int) -> float:
    """Seconds from the first submission to the last end."""
    world = _world(trace, devices)
    seconds = {experiment.tag: experiment.seconds for experiment in trace.experiments}
    for experiment in trace.experiments:
        _submit(world, experiment)
    began_ms = world.now_ms
    ends: list[tuple[int, str]] = []
    known: set[str] = set()
    while True:
        world.settle()
        for name, attempt in world.launcher.attempts.items():
            if attempt.phase == "running" and name not in known:
                known.add(name)
                job = world.broker.state.jobs[world.broker.state.attempts[name].job]
                heapq.heappush(ends, (world.now_ms + 1000 * seconds[job.tag], name))
        if not ends:
            break
        at_ms, name = heapq.heappop(ends)
        world.now_ms = max(world.now_ms, at_ms)
        world.finish(name)
    left = world.broker.state.counts["queued"]
    if left:
        raise RuntimeError(f"{left} experiments never started")
    return (world.now_ms - began_ms) / 1000


def _decision() -> Figure:
    """The turn in which a job ends, with 10,000 queued and 64 devices full of shared work."""
    trace = _mixed(1)
    world = _world(trace, MANY_DEVICES)
    chance = random.Random(4)
    names = list(trace.profiles)
    for n in range(QUEUED + 6 * MANY_DEVICES):
        _submit(world, Experiment(f"many-{n}", chance.choice(names), 600))
        world.replies.clear()
    world.settle()
    taken = []
    for _ in range(TURNS):
        world.now_ms += 50
        world.finish_one()
        report = world.to_broker.popleft()
        began = time.perf_counter()
        world.turn(report)
        taken.append(time.perf_counter() - began)
        world.settle()
    return Figure(
        "packing", f"a job ends, {QUEUED:,} queued, {MANY_DEVICES} devices",
        1000 * statistics.median(taken), "ms", None, "", 1.0, "value", "most",
        {"ms": spread([1000 * t for t in taken]), "p99_ms": 1000 * quantile(taken, 0.99)},
    )  # fmt: skip
