"""What is told of attempts that were looked for, are out of sight, or are kept by others."""

from __future__ import annotations

from typing import Any

import pytest

from praxist_zmq.core import leftovers
from praxist_zmq.core.commands import LauncherSaid
from praxist_zmq.core.proof import EVIDENCE
from praxist_zmq.protocol.codec import decode_event
from praxist_zmq.protocol.events import AttemptFound, AttemptPresumedDead
from praxist_zmq.protocol.reports import AttemptJudged, AttemptLingers, LivingProcess
from praxist_zmq.protocol.requests import (
    CancelJobs,
    ExplainJob,
    GetStatus,
    ListJobs,
    SubmitJob,
)
from tests.support.broker_world import World


def submit(tag: str) -> SubmitJob:
    return SubmitJob(peer="p", tag=tag, command=("true",), cwd="/", environment={}, profile="gpu")


@pytest.fixture
def world() -> World:
    world = World()
    world.settle()
    world.ask(submit("one"))
    world.settle()
    assert world.broker.state.attempts["j-1.1"].phase == "running"
    return world


def judged(found: Any, evidence: str) -> AttemptJudged:
    return AttemptJudged(attempt="j-1.1", found=found, evidence=evidence, detail=EVIDENCE[evidence])


def say(world: World, *reports: Any) -> None:
    for report in reports:
        world.turn(LauncherSaid(world.launcher_address, report))


def events(world: World, kind: type) -> list[Any]:
    return [event for body in world.disk if isinstance(event := decode_event(body), kind)]


def test_what_was_found_is_recorded_each_time_and_what_stays_hidden_once(world: World) -> None:
    say(world, judged("alive", "shim"), judged("alive", "shim"))
    say(world, judged("unseen", "lock_free"), judged("unseen", "lock_free"))
    world.settle()
    told = [(event.found, event.evidence) for event in events(world, AttemptFound)]
    assert told == [("alive", "shim"), ("alive", "shim"), ("unseen", "lock_free")]
    (job,) = world.ask(ListJobs(states=("running",))).jobs
    assert job.note.startswith("cannot be seen from here")
    assert "unkillable" not in job.note
    explained = world.ask(ExplainJob(subject="j-1"))
    assert any("retry j-1 --presume-dead" in option for option in explained.options)
    warnings = world.ask(GetStatus()).warnings
    assert any("j-1.1 holds its slot and 1 device" in warning for warning in warnings)


def test_only_what_is_out_of_sight_may_be_presumed_dead_and_by_no_peer(world: World) -> None:
    ask = CancelJobs(jobs=("j-1",), presume_dead=True, reason="its container is gone")
    (told,) = world.ask(ask).results
    assert (told.outcome, told.code) == ("refused", "not_cancellable")
    say(world, judged("alive", "lock"))
    (told,) = world.ask(ask).results
    assert told.outcome == "refused"
    assert EVIDENCE["lock"] in told.detail
    say(world, judged("unseen", "lock_free"))
    (told,) = world.ask(ask.model_copy(update={"peer": "p"})).results
    assert (told.outcome, told.code) == ("refused", "not_yours")
    assert not events(world, AttemptPresumedDead)
    (told,) = world.ask(ask).results
    assert told.outcome == "ending"
    (recorded,) = events(world, AttemptPresumedDead)
    assert recorded.reason == "its container is gone"
    # It is on record, so a launcher that comes later learns of it too.
    world.crash_broker()
    assert leftovers.adopt(world.broker.state.attempts["j-1.1"]).presumed_dead


def lingers(world: World, number: int = 1) -> AttemptLingers:
    sleep = LivingProcess(pid=77, name="sleep", started_at_mono_ms=world.now_ms)
    return AttemptLingers(
        attempt="j-1.1", processes=(sleep,) * bool(number), number=number, proved=True
    )


@pytest.mark.parametrize("waits", [False, True])
def test_a_leftover_is_warned_of_by_name_and_age(world: World, waits: bool) -> None:
    if waits:
        world.ask(submit("two"))
        world.ask(submit("three"))
        world.settle()
    say(world, lingers(world))
    told = world.ask(GetStatus()).warnings
    assert any("sleep (pid 77, " in warning for warning in told) == waits
    world.pass_time(leftovers.WARN_AFTER_MS)
    (warning,) = [w for w in world.ask(GetStatus()).warnings if "j-1.1" in w]
    assert "holds its slot and 1 device" in warning
    assert "sleep (pid 77, 30 s old)" in warning
    explained = world.ask(ExplainJob(subject="j-1"))
    assert "sleep (pid 77, 30 s old)" in explained.verdict
    assert any("cancel j-1 --yes" in option for option in explained.options)
    (result,) = world.ask(CancelJobs(jobs=("j-1",), running=True)).results
    assert "sleep (pid 77" in result.detail
    say(world, lingers(world, 0))
    assert not any("j-1.1" in warning for warning in world.ask(GetStatus()).warnings)
