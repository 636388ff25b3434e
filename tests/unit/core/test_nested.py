"""Who is inside an attempt: memory, the kernel's word and the launcher's look, or nobody."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from praxist_zmq.core import nested
from praxist_zmq.core.commands import ClientRequest, LauncherSaid
from praxist_zmq.protocol.orders import IdentifyCaller
from praxist_zmq.protocol.replies import AttemptValidated, ProgressNoted, Refusal
from praxist_zmq.protocol.reports import AttemptLeaderExited, CallerIdentified
from praxist_zmq.protocol.requests import ReportProgress, SubmitJob, ValidateAttempt
from tests.support.broker_world import World

DIRECTORY = "/run/dir/resource_scheduler/attempts/j-1.1"


def running_world() -> World:
    world = World()
    world.ask(SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={}))
    world.settle()
    return world


def claim(world: World, *, pid: int | None = 77, uid: int | None = None, **changed: Any) -> None:
    job = world.broker.state.jobs["j-1"]
    fields = {"attempt": "j-1.1", "attempt_directory": DIRECTORY, **changed}
    request = ValidateAttempt(**fields)
    digest = hashlib.sha256(b"").hexdigest()
    uid = job.uid if uid is None else uid
    world.turn(ClientRequest("me", "ask", digest, request, uid, pid))


def answer(world: World) -> AttemptValidated | None:
    found = world.replies.get("ask")
    return found[-1] if found else None


def look(world: World, *, inside: bool) -> None:
    (order,) = [o for o in world.to_launcher if isinstance(o, IdentifyCaller)]
    world.to_launcher.remove(order)
    assert (order.attempt, order.pid) == ("j-1.1", 77)
    report = CallerIdentified(
        attempt=order.attempt, inquiry=order.inquiry, inside=inside, detail="" if inside else "no"
    )
    world.turn(LauncherSaid("launcher", report))


@pytest.mark.parametrize("inside", [True, False])
def test_the_launcher_s_look_decides(inside: bool) -> None:
    world = running_world()
    claim(world)
    assert answer(world) is None
    look(world, inside=inside)
    told = answer(world)
    assert told is not None
    assert (told.inside, told.job) == (inside, "j-1" if inside else None)
    assert not world.broker.soft.inquiries


@pytest.mark.parametrize(
    "changed",
    [
        {"attempt": "j-1.2", "attempt_directory": DIRECTORY.replace("1.1", "1.2")},
        {"attempt_directory": "/elsewhere/resource_scheduler/attempts/j-1.1"},
        {"pid": 0},
        {"pid": None},
        {"uid": 4_000_000},
    ],
)
def test_what_memory_or_the_kernel_refutes_is_not_even_looked_at(changed: dict[str, Any]) -> None:
    world = running_world()
    claim(world, **changed)
    told = answer(world)
    assert told is not None
    assert not told.inside
    assert not [o for o in world.to_launcher if isinstance(o, IdentifyCaller)]


def test_an_attempt_that_ended_meanwhile_is_no_home() -> None:
    world = running_world()
    claim(world)
    pending = [o for o in world.to_launcher if isinstance(o, IdentifyCaller)]
    for order in pending:
        world.to_launcher.remove(order)
    world.finish_one(0)
    world.settle()
    world.to_launcher.extend(pending)
    look(world, inside=True)
    told = answer(world)
    assert told is not None
    assert (told.inside, told.reason) == (False, "that attempt has ended")


def test_without_an_answer_in_time_the_caller_is_outside() -> None:
    world = running_world()
    claim(world)
    world.to_launcher.clear()
    assert nested.due_ms(world.broker.soft) is not None
    world.pass_time(nested.ANSWER_WITHIN_MS + 1)
    told = answer(world)
    assert told is not None
    assert not told.inside
    assert "in time" in told.reason


def test_a_launcher_that_is_away_is_asked_when_it_is_back() -> None:
    world = running_world()
    world.broker.soft.launcher_ready = False
    claim(world)
    assert not [o for o in world.to_launcher if isinstance(o, IdentifyCaller)]
    world.broker.soft.launcher_ready = True
    world.turn()
    look(world, inside=True)
    told = answer(world)
    assert told is not None
    assert told.inside


def leader_exits(world: World) -> None:
    """The evaluator ends while a descendant of it lives on."""
    report = AttemptLeaderExited(attempt="j-1.1", exit_code=0, signal=None, survivors=(77,))
    world.turn(LauncherSaid("launcher", report))
    assert world.broker.state.attempts["j-1.1"].phase == "exited"


def test_what_outlives_its_evaluator_is_inside_as_long_as_it_holds_the_slot() -> None:
    world = running_world()
    leader_exits(world)
    claim(world)
    assert answer(world) is None
    look(world, inside=True)
    told = answer(world)
    assert told is not None
    assert (told.inside, told.job) == (True, "j-1")


@pytest.mark.parametrize("exited", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_progress_from_another_group_counts_when_the_launcher_sees_its_sender_inside(
    inside: bool, exited: bool
) -> None:
    world = running_world()
    if exited:
        leader_exits(world)
    request = ReportProgress(attempt="j-1.1", pgid=4242, done=1, total=2)

    def tell(name: str) -> Any:
        digest = hashlib.sha256(name.encode()).hexdigest()
        world.turn(ClientRequest("me", name, digest, request, 0, 77))
        return world.replies.get(name, [None])[-1]

    assert tell("first") is None
    look(world, inside=inside)
    told = world.replies["first"][-1]
    if not inside:
        assert isinstance(told, Refusal)
        assert told.code == "not_yours"
        return
    assert isinstance(told, ProgressNoted)
    assert told.taken
    again = tell("second")
    assert isinstance(again, ProgressNoted), "one that was seen inside is not looked at again"
