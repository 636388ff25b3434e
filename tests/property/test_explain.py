"""`explain` and admission agree: no blocker if and only if a job starts, and what is said to let
it start does."""

from __future__ import annotations

import re
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from praxist_zmq.core.forecast import ENTRIES_MAX
from praxist_zmq.protocol.requests import ExplainJob
from tests.support.explained import PROFILES, LoadedWorld, Wish

WISHES = st.builds(
    Wish,
    peer=st.sampled_from(["p1", "p2", "p3"]),
    profile=st.sampled_from(sorted(PROFILES)),
    work_class=st.sampled_from(["scout", "ordinary", "mature"]),
    eta_s=st.sampled_from([None, 60.0, 600.0, 6_000.0]),
)
SPECS = st.fixed_dictionaries(
    {
        "external": st.lists(
            st.sampled_from([(0, 0.0), (18_000, 0.0), (40_000, 38.0), (70_000, 80.0)]),
            min_size=1,
            max_size=3,
        ),
        "limit": st.integers(1, 6),
        "cap": st.sampled_from([None, 1, 2]),
        "wishes": st.lists(WISHES, min_size=2, max_size=9),
    }
)
_FALL = re.compile(r"(load|memory) on GPU (\d+) falls by ([0-9.]+)")


def build(spec: dict[str, Any]) -> LoadedWorld:
    """The same world every time."""
    world = LoadedWorld(
        spec["external"], limit=spec["limit"], most=spec["limit"] + 1, cap=spec["cap"]
    )
    for wish in spec["wishes"]:
        if wish.profile == "pair" and len(spec["external"]) < 2:
            continue
        world.submit(wish)
    world.look()
    return world


def explained(world: LoadedWorld, job: str) -> Any:
    """The answer about one job."""
    return world.ask(ExplainJob(subject=job))


@settings(max_examples=25, deadline=None)
@given(spec=SPECS)
def test_no_blocker_if_and_only_if_it_starts(spec: dict[str, Any]) -> None:
    world = build(spec)
    for job in world.queued():
        answer = explained(world, job)
        assert answer.blockers, f"{job} waits for nothing"
        blocked = [gate.name for gate in answer.gates if gate.state == "blocked"]
        assert blocked
        needs_devices = world.policy.profiles[world.broker.state.jobs[job].profile].gpu_count
        assert len(answer.devices) == (len(spec["external"]) if needs_devices else 0)


@settings(max_examples=12, deadline=None)
@given(spec=SPECS, pick=st.integers(0, 8))
def test_what_would_start_it_does(spec: dict[str, Any], pick: int) -> None:
    queued = build(spec).queued()
    if not queued:
        return
    job = queued[pick % len(queued)]
    answer = explained(build(spec), job)
    for entry in answer.would_start:
        if "limit rises" in entry.event:
            continue  # the registry learns of a step later than we do; tests/unit has the rule
        world = build(spec)
        happen(world, entry)
        state = world.broker.state.jobs[job].state
        assert state == "running", f"{job} is {state} after: {entry.event}"
    listed = {entry.job for entry in answer.would_start if not entry.after}
    for other in build(spec).running():
        world = build(spec)
        world.finish(other)
        started = world.broker.state.jobs[job].state == "running"
        assert not started or other in listed or len(answer.would_start) >= ENTRIES_MAX // 2, (
            f"{job} starts after {other}, which was not told"
        )


def happen(world: LoadedWorld, entry: Any) -> None:
    """Make one entry come true: what has to happen first, then the ends."""
    if entry.event.startswith("external use of"):
        for device in re.findall(r"GPU (\d+)", entry.event.partition(" ends")[0]):
            world.external[int(device)] = (0, 0.0)
        world.look()
    if entry.job is not None:
        for name in (*entry.after, entry.job):
            world.finish(name)
        return
    if not entry.event.startswith("external use of"):
        falls = _FALL.findall(entry.event)
        assert falls, entry.event
        for what, device, much in falls:
            memory, busy = world.external[int(device)]
            if what == "load":
                busy -= float(much)
            else:
                memory -= round(float(much) * 1024) + 52
            world.external[int(device)] = (max(0, memory), max(0.0, busy))
    world.look()
