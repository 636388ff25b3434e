"""What lies on disk of experiments that the ledger does not know is never run again by itself."""

from __future__ import annotations

from typing import Any

import pytest

from praxist_zmq.core.claim import ClaimMachine
from praxist_zmq.core.claim_commands import RegistryStarted
from praxist_zmq.core.commands import RemnantsSeen
from praxist_zmq.core.invariants import check_history, check_state
from praxist_zmq.protocol.codec import decode_event
from praxist_zmq.protocol.evidence import AttemptCard, ExitRecord, Remnant
from praxist_zmq.protocol.replies import Refusal
from praxist_zmq.protocol.requests import ExplainJob, GetStatus, RetryJob, SubmitJob
from tests.support.broker_world import BOOT, FakeAttempt, World, identity

JOB = SubmitJob(peer="p", tag="one", command=("true",), cwd="/", environment={})
SHIM = identity(77)


def lost(world: World, *kinds: str) -> None:
    """The records from the first of these kinds on are gone, as after a repair; so are the
    registry's, whose rows hold what they hold without us."""
    names = [f'"{kind}"'.encode() for kind in kinds]
    first = next(i for i, body in enumerate(world.disk) if any(name in body for name in names))
    del world.disk[first:]
    world.registry = ClaimMachine()
    world.registry.decide(RegistryStarted(BOOT), world.stamp())


def remnant(attempt: str = "j-1.1", **more: Any) -> Remnant:
    card = AttemptCard(attempt=attempt, tag="one", generation=0, device_uuids=("GPU-0",))
    facts = {"card": card, "tag": "one", "generation": 0, "went": True, "lives": False, **more}
    return Remnant(attempt=attempt, **facts)


def warned(world: World) -> str:
    return "\n".join(world.ask(GetStatus()).warnings)


@pytest.fixture
def world() -> World:
    """One job that runs; then the records of its attempt are lost."""
    world = World(limit=1)
    world.settle()
    world.ask(JOB)
    world.settle()
    assert world.launcher.runs == {"j-1.1": 1}
    lost(world, "attempt_allocated")
    return world


def sound(world: World) -> None:
    assert check_state(world.broker.state) == []
    assert check_history([decode_event(body) for body in world.disk]) == []


def test_an_attempt_whose_shim_is_known_is_adopted_with_its_devices_and_its_end(
    world: World,
) -> None:
    shim = world.launcher.attempts["j-1.1"].shim
    world.remnants = (remnant(shim=shim, lives=True),)
    world.crash_broker()
    attempt = world.broker.state.attempts["j-1.1"]
    assert (attempt.shim, attempt.device_uuids) == (shim, ("GPU-0",))
    world.settle()
    assert attempt.phase == "running"
    world.ask(JOB.model_copy(update={"tag": "two"}))
    world.settle()
    assert list(world.broker.state.attempts) == ["j-1.1"], "it counts against the limit, once"
    world.finish("j-1.1", 3)
    world.settle()
    job = world.broker.state.jobs["j-1"]
    assert (job.state, job.exit_code) == ("failed", 3)
    assert world.launcher.runs == {"j-1.1": 1, "j-2.1": 1}
    sound(world)


def test_one_of_which_nothing_can_be_told_holds_its_job_until_a_retry_by_hand(
    world: World,
) -> None:
    del world.launcher.attempts["j-1.1"]
    world.remnants = (remnant(),)
    world.crash_broker()
    world.settle()
    job = world.broker.state.jobs["j-1"]
    assert (job.state, job.reject_code) == ("rejected", "attempt_on_disk")
    assert "j-1.1 is on disk, not in the ledger" in warned(world)
    again = world.ask(JOB)
    assert isinstance(again, Refusal)
    assert again.code == "terminal_duplicate"
    assert world.launcher.runs == {"j-1.1": 1}
    world.ask(RetryJob(job="j-1", environment={}))
    world.settle()
    assert world.launcher.runs == {"j-1.1": 1, "j-1.2": 1}, "its number is not given again"
    assert job.retries_used == 0
    sound(world)


def test_only_the_last_of_several_counts_and_those_before_keep_their_numbers(world: World) -> None:
    shim = world.launcher.attempts.pop("j-1.1").shim
    last = FakeAttempt("j-1.3", shim)
    world.launcher.attempts["j-1.3"] = last
    world.launcher.end(last, "exited", exit_code=75)
    world.remnants = (remnant("j-1.1", shim=SHIM), remnant("j-1.3", shim=shim))
    world.crash_broker()
    world.settle()
    world.pass_time(60_000)
    world.settle()
    assert set(world.launcher.runs) == {"j-1.1", "j-1.4"}
    sound(world)


def test_a_job_that_the_ledger_lacks_holds_its_number_and_its_tag(world: World) -> None:
    lost(world, "job_queued")
    world.remnants = (remnant(lives=True, shim=SHIM),)
    world.crash_broker()
    refused = world.ask(JOB.model_copy(update={"retry_terminal": True}))
    assert refused.code == "tag_held", "a word is of use once it has ended"
    world.ask(JOB.model_copy(update={"tag": "two"}))
    world.settle()
    assert world.launcher.runs == {"j-1.1": 1}, "what lives has the run's one slot"
    ended = ExitRecord(
        attempt="j-1.1", shim=SHIM, outcome="exited", exit_code=4, signal=None, errno=None,
        detail="", ended_at_ms=1, wall_ms=1, user_ms=1, system_ms=1, max_rss_kib=1,
    )  # fmt: skip
    world.turn(RemnantsSeen((remnant(shim=SHIM, ended=ended),)))
    world.settle()
    assert world.launcher.runs == {"j-1.1": 1, "j-2.1": 1}
    refused = world.ask(JOB)
    assert refused.code == "tag_held"
    assert "ended with exit status 4" in refused.detail
    assert "ended with exit status 4" in warned(world)
    assert world.ask(JOB.model_copy(update={"retry_terminal": True})).verdict == "queued"
    sound(world)


def test_one_that_never_left_its_barrier_holds_no_tag(world: World) -> None:
    lost(world, "job_queued")
    world.remnants = (remnant(shim=SHIM, went=False),)
    world.crash_broker()
    assert world.ask(JOB).job.job == "j-2"


def test_a_launch_without_the_scheduler_holds_its_tag_and_a_slot_while_it_lives() -> None:
    world = World(limit=2)
    world.remnants = (Remnant(attempt=None, pid=9, tag="one", lives=True),)
    world.ask(JOB)
    world.crash_broker()
    world.settle()
    assert world.launcher.runs == {}
    assert "process 9, which was launched without the scheduler" in warned(world)
    for tag in ("two", "three"):
        world.ask(JOB.model_copy(update={"tag": tag}))
    world.settle()
    assert set(world.launcher.runs) == {"j-2.1"}
    held = world.ask(JOB)
    assert held.job.state == "queued"
    lone = world.ask(ExplainJob(subject="j-1"))
    assert any("its tag is held: process 9" in blocker.detail for blocker in lone.job.blockers)
    world.turn(RemnantsSeen(()))
    world.pass_time(2_000)
    world.settle()
    assert "process 9" not in warned(world)
    world.finish("j-2.1")
    world.settle()
    assert "j-1.1" in world.launcher.runs
    sound(world)


def test_a_launch_without_the_scheduler_refuses_its_tag_to_new_submissions() -> None:
    world = World()
    world.remnants = (Remnant(attempt=None, pid=9, tag="one", lives=True),)
    world.crash_broker()
    assert world.ask(JOB).code == "tag_held"
    world.turn(RemnantsSeen(()))
    assert world.ask(JOB).verdict in ("queued", "started")
