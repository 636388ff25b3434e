"""A peer at its cap: its other jobs are set aside, and come back whenever it has room again.

Whatever becomes of the one that came back (it is withdrawn, before or after it was planned),
the next one must follow: nothing else would ever look at it.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from praxist_zmq.core.admission import BlockerTable
from praxist_zmq.protocol.requests import CancelJobs, SubmitJob
from tests.support.explained import LoadedWorld, Wish


def _state(world: LoadedWorld, job: str) -> str:
    return world.broker.state.jobs[job].state


def _unexplained(world: LoadedWorld) -> list[str]:
    """Jobs that wait though nothing stands against them."""
    table = BlockerTable(world.broker.state, world.broker.soft)
    return [name for name in world.queued() if not table.of(world.broker.state.jobs[name])]


def test_the_next_one_comes_back_when_the_one_before_it_is_withdrawn() -> None:
    world = LoadedWorld([(0, 0.0)], cap=1)
    running = world.submit(Wish("p", "cpu"))
    other = world.submit(Wish("q", "alone"))
    second, third = (world.submit(Wish("p", "alone")) for _ in range(2))
    world.finish(running)
    world.ask(CancelJobs(jobs=(second,)))
    world.finish(other)
    assert _state(world, third) == "running"


def test_the_next_one_comes_back_when_a_plan_is_withdrawn() -> None:
    world = LoadedWorld([(0, 0.0)], cap=1)
    first, second = (_submit_only(world, "p") for _ in range(2))
    assert [plan.job for plan in world.broker.soft.plans.values()] == [first]
    world.ask(CancelJobs(jobs=(first,)))
    world.settle()
    world.look()
    assert _state(world, first) == "cancelled"
    assert _state(world, second) == "running"


def _submit_only(world: LoadedWorld, peer: str) -> str:
    """Queue a CPU job, and deliver nothing yet."""
    number = world.broker.state.last_job_number + 1
    answer = world.ask(
        SubmitJob(
            peer=peer,
            tag=f"tag-{number}",
            command=("true",),
            cwd="/",
            environment={},
            profile="cpu",
        )
    )
    name: str = answer.job.job
    return name


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), cap=st.integers(1, 2))
def test_no_job_waits_without_a_reason(seed: int, cap: int) -> None:
    rng = random.Random(seed)
    world = LoadedWorld([(0, 0.0)], cap=cap)
    for _ in range(50):
        running = [n for n, job in world.broker.state.jobs.items() if job.state == "running"]
        act = rng.random()
        if act < 0.45:
            world.submit(Wish(rng.choice("ppq"), rng.choice(["cpu", "alone"])))
        elif act < 0.6 and world.queued():
            world.ask(CancelJobs(jobs=(rng.choice(world.queued()[:3]),)))
        elif act < 0.7:
            world.ask(CancelJobs(jobs=(_submit_only(world, "p"),)))
        elif running:
            world.finish(rng.choice(running))
        world.settle()
        assert _unexplained(world) == []
    world.look()
    while any(job.state == "running" for job in world.broker.state.jobs.values()):
        for name, job in world.broker.state.jobs.items():
            if job.state == "running":
                world.finish(name)
                break
    assert world.queued() == []
