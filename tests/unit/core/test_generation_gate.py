"""Which work a generation takes, by its phase and by the time that it has left."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from praxist_zmq.protocol.replies import GenerationReply, Refusal, Submitted
from praxist_zmq.protocol.requests import (
    AssessGeneration,
    GetStatus,
    OpenGeneration,
    ShowGeneration,
    SubmitJob,
)
from tests.support.broker_world import World, policy

DAY_MS = 86_400_000


def submit(
    world: World, tag: str, work_class: Any = "ordinary", eta: float | None = None, **more: Any
) -> str:
    """`queued`, or the code of the refusal."""
    request = SubmitJob(
        peer="p1", tag=tag, command=("run",), cwd="/", environment={}, work_class=work_class,
        eta_seconds=eta, **more,
    )  # fmt: skip
    reply = world.ask(request)
    assert isinstance(reply, Submitted | Refusal)
    return reply.code if isinstance(reply, Refusal) else str(reply.verdict)


def opened(deadline_s: float | None, **more: Any) -> World:
    world = World(**more)
    reply = world.ask(OpenGeneration(generation=0, cohort_size=12, deadline_seconds=deadline_s))
    assert isinstance(reply, GenerationReply)
    return world


def test_before_assessment_a_declared_run_time_must_fit() -> None:
    world = opened(30)
    assert submit(world, "a", eta=20) == "queued"
    assert submit(world, "b", eta=31) == "insufficient_generation_time"
    assert submit(world, "unknown") == "queued"


def test_deadline_admission_can_be_switched_off() -> None:
    contract = policy().model_copy(update={"deadline_admission": False})
    assert submit(opened(30, contract=contract), "a", eta=86_400) == "queued"


def test_without_a_deadline_a_day_fits() -> None:
    world = opened(None)
    assert submit(world, "a", eta=86_400) == "queued"
    assert world.ask(AssessGeneration(generation=0)).generation.deadline is None
    assert submit(world, "b", "mature", eta=86_400) == "queued"


@pytest.mark.parametrize(
    ("work_class", "eta", "answer"),
    [
        ("scout", 5, "generation_assessment"),
        ("ordinary", 5, "generation_assessment"),
        ("mature", 5, "queued"),
        ("mature", 50, "queued"),
        ("mature", 60, "insufficient_generation_time"),
        ("mature", None, "insufficient_generation_time"),
    ],
)
def test_in_assessment_mature_work_must_be_likely_enough(
    work_class: str, eta: float | None, answer: str
) -> None:
    world = opened(30.1)
    world.ask(AssessGeneration(generation=0))
    assert submit(world, "a", work_class, eta) == answer


def test_an_undeclared_run_time_is_told_as_what_it_is() -> None:
    world = opened(30.1)
    world.ask(AssessGeneration(generation=0))
    request = SubmitJob(
        peer="p", tag="t", command=("r",), cwd="/", environment={}, work_class="mature"
    )
    refused = world.ask(request)
    assert "its run time is not declared" in refused.detail
    assert refused.help[0].startswith("declare its run time with --eta")


def test_a_generation_that_was_never_opened_is_refused() -> None:
    assert submit(World(), "a", generation=7) == "generation_unknown"


def test_the_peer_s_name_chooses_a_generation_that_was_opened() -> None:
    world = World()
    world.ask(OpenGeneration(generation=3))
    world.ask(OpenGeneration(generation=4))
    for number, peer in enumerate(("gen3_peer1", "gen9_peer1", "p1")):
        request = SubmitJob(peer=peer, tag=f"t{number}", command=("r",), cwd="/", environment={})
        assert world.ask(request).job.generation == (3, 4, 4)[number]


@pytest.mark.parametrize("step_ms", [DAY_MS, -DAY_MS])
def test_a_step_of_the_wall_clock_moves_no_deadline(step_ms: int) -> None:
    world = opened(3600)
    before = datetime.fromisoformat(world.ask(GetStatus()).generation["deadline"])
    world.wall_step_ms += step_ms
    world.pass_time(1_000)
    status = world.ask(GetStatus()).generation["deadline"]
    page = world.ask(ShowGeneration(generation=0)).generation.deadline
    for shown in (status, page):
        moved_s = (datetime.fromisoformat(shown) - before).total_seconds()
        assert abs(moved_s - step_ms / 1000) < 0.1, "as much is left as before"
    assert submit(world, "a", eta=3_500) == "queued"
    assert submit(world, "b", eta=3_700) == "insufficient_generation_time"
    world.pass_time(3_597_000)
    assert world.phase(0) == "open"
    world.pass_time(2_000)
    assert world.phase(0) in ("frozen", "closed")


def test_work_that_no_longer_fits_is_rejected_before_anything_is_reserved() -> None:
    world = opened(60, limit=1)
    assert submit(world, "a") == "queued"
    world.settle()
    assert submit(world, "b", eta=50) == "queued"
    world.pass_time(15_000)
    world.settle()
    world.to_registry.clear()
    world.finish_one()
    world.deliver()
    assert world.broker.state.jobs["j-2"].reject_code == "insufficient_generation_time"
    assert not any(what.endswith("reserve") for what, _ in world.to_registry)
