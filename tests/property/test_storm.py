"""Whatever ends how: what rests starts nothing, says so, and is tried by one at a time."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from praxist_zmq.core import storm
from praxist_zmq.core.storm_memory import PlaceKey
from tests.unit.core.test_storm import StormyWorld

PROFILES = ("cpu", "other", "gpu", "gpu2")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(PROFILES)),
        st.tuples(
            st.just("end"), st.tuples(st.integers(0, 7), st.sampled_from((75, 75, 75, 0, 1)))
        ),
        st.tuples(st.just("storm"), st.sampled_from(PROFILES)),
        st.tuples(st.just("pass"), st.sampled_from((100, 2_000, 11_000, 31_000, 700_000))),
        st.tuples(st.just("crash"), st.none()),
    ),
    min_size=10,
    max_size=60,
)


def begun_at(world: StormyWorld) -> dict[str, tuple[PlaceKey, ...]]:
    """The placements of all that is under way, of which this broker knows the start."""
    return {name: begun.keys for name, begun in world.broker.soft.storms.begun.items()}


def act(world: StormyWorld, step: tuple[str, Any], number: int) -> None:
    """One step; the world comes to rest after it."""
    kind, value = step
    if kind == "submit":
        world.submit(f"t{number}", value)
    elif kind == "end":
        running = world.running()
        if running:
            world.finish(running[value[0] % len(running)], value[1])
            world.settle()
    elif kind == "storm":
        for again in range(storm.STORM_ENDS):
            world.submit(f"s{number}.{again}", value)
            world.end_all(75, value)
    elif kind == "pass":
        world.pass_over(value)
    else:
        world.crash_broker()
        world.settle()


@settings(max_examples=20, deadline=None)
@given(steps=STEPS, limit=st.integers(1, 4))
def test_what_rests_starts_nothing_and_says_so(steps: list[tuple[str, Any]], limit: int) -> None:
    world = StormyWorld(limit=limit, devices=2, retries=2)
    for number, step in enumerate(steps):
        before = begun_at(world)
        resting = {
            key: rest.until_ms
            for key, rest in world.broker.soft.storms.rests.items()
            if not rest.is_open
        }
        act(world, step, number)
        storms = world.broker.soft.storms
        if step[0] != "crash":
            for name, keys in begun_at(world).items():
                if name not in before:
                    for key in keys:
                        rest = storms.rests.get(key)
                        # It is what tries a rest that is over, or the rest began after it or ended.
                        early = resting.get(key, 0) > world.now_ms and rest is not None
                        assert not early, f"{name} began on {key}, which rests"
        for key, rest in storms.rests.items():
            if rest.trial is not None:
                assert key in storms.begun[rest.trial].keys
                assert not rest.is_open
        closed = [key for key, rest in storms.rests.items() if not rest.is_open]
        told = [text for text in world.alarms() if text.startswith("PLACEMENT PAUSED")]
        assert len(told) == (1 if closed else 0), "one alarm for all"
        for key in closed:
            if key.kind == "profile":
                assert "placement_paused" in world.codes(f"profile:{key.name}")
        for job in world.broker.state.jobs.values():
            if job.state == "queued":
                assert world.codes(job.job), f"{job.job} waits for nothing"


@settings(max_examples=25, deadline=None)
@given(steps=STEPS, limit=st.integers(1, 4))
def test_when_all_is_well_again_everything_ends(steps: list[tuple[str, Any]], limit: int) -> None:
    world = StormyWorld(limit=limit, devices=2, retries=2)
    for number, step in enumerate(steps):
        act(world, step, number)
    counts = world.broker.state.counts
    for _ in range(400):
        if not (counts["queued"] or counts["running"]):
            break
        world.end_all(0)
        world.pass_over(storm.PAUSE_MS)
    assert (counts["queued"], counts["running"]) == (0, 0)
    assert not [text for text in world.alarms() if "PLACEMENT PAUSED" in text]
