"""What the broker does about what the host's claim registry says, or does not say."""

from __future__ import annotations

from collections import deque
from typing import Any

from praxist_zmq.core.admission import SILENCE_MAX_MS
from praxist_zmq.core.claim import ClaimMachine
from praxist_zmq.core.claim_commands import ProcessesProvedAbsent, RegistryStarted
from praxist_zmq.core.claim_state import Watch
from praxist_zmq.core.commands import RegistryConnected, RegistryLost, RegistrySaid
from praxist_zmq.core.decision import Stamp
from praxist_zmq.core.plan import DENIED_PAUSE_MS
from praxist_zmq.protocol.claims import (
    Denied,
    DeregisterRun,
    HostView,
    Registered,
    ReportLoad,
    Reserve,
)
from praxist_zmq.protocol.requests import CancelJobs, ExplainJob, GetDevices, GetStatus, SubmitJob
from tests.support.broker_world import BOOT, RUN_KEY, World

EMPTY = HostView(version=1, runs=(), allocations=())


def submit(world: World, tag: str, profile: str | None = None) -> None:
    """One more job."""
    world.ask(
        SubmitJob(
            peer="p", tag=tag, command=("true",), cwd="/", environment={}, profile=profile
        )
    )  # fmt: skip


def blockers(world: World, job: str) -> list[str]:
    """The codes of what a job waits for."""
    return [blocker.code for blocker in world.ask(ExplainJob(subject=job)).blockers]


def world_of_an_earlier_run(profile: str | None) -> World:
    """The run directory is new; j-1.1 of the one before still runs."""
    world = World(devices=2, limit=2)
    submit(world, "old", profile)
    world.settle()
    world.lose_run_directory()
    world.settle()
    return world


def deny(world: World, code: str) -> int:
    """The registry refuses all reservations that wait. How many there were."""
    asked = [(name, r) for name, r in world.to_registry if isinstance(r, Reserve)]
    world.to_registry = deque(s for s in world.to_registry if not isinstance(s[1], Reserve))
    while world.to_registry:
        world.registry_step()
    while world.to_broker:
        world.turn(world.to_broker.popleft())
    for request_id, request in asked:
        reply = Denied(attempt=request.attempt, code=code, detail="no", view=None)
        world.turn(RegistrySaid(request_id, reply))
    return len(asked)


def test_what_the_registry_denies_rests_until_its_view_changes() -> None:
    world = world_of_an_earlier_run(None)
    submit(world, "new")
    world.settle()  # comes to rest: it is not asked again and again
    explained = world.ask(ExplainJob(subject="j-1"))
    assert [blocker.code for blocker in explained.blockers] == ["registry_refused"]
    assert "j-1.1" in explained.verdict
    assert [gate.name for gate in explained.gates if gate.state == "blocked"] == ["registry"]
    assert world.broker.wake_at_ms() is not None
    submit(world, "other")
    world.settle()
    assert world.broker.state.jobs["j-2"].state == "running", "the others go on"
    (row,) = [r for r in world.registry.state.of_run(RUN_KEY) if r.attempt == "j-1.1"]
    assert row.bound is not None
    world.registry_turn(ProcessesProvedAbsent((Watch(RUN_KEY, "j-1.1", row.bound),)))
    world.settle()
    assert world.broker.state.jobs["j-1"].state == "running"


def test_a_device_that_an_earlier_run_holds_starves_no_free_one() -> None:
    world = world_of_an_earlier_run("gpu")
    submit(world, "new", "gpu")
    submit(world, "other", "gpu")
    world.settle()
    assert world.broker.state.jobs["j-2"].device_uuids == ("GPU-1",)
    assert blockers(world, "j-1")[-1] == "registry_refused"
    held, _ = world.ask(GetDevices()).devices
    assert held.runs == ("run",)


def test_a_denied_job_is_asked_for_again_after_a_while_and_costs_no_memory() -> None:
    world = World()
    world.settle()
    submit(world, "t")
    for _ in range(50):
        assert deny(world, "internal") == 1
        assert deny(world, "internal") == 0
        assert blockers(world, "j-1") == ["registry_refused"]
        world.pass_time(DENIED_PAUSE_MS)
    assert sum(len(heap) for heap in world.broker.soft.queue.lanes.values()) <= 1
    world.settle()
    assert world.broker.state.jobs["j-1"].state == "running"


def test_a_full_registry_holds_every_job_back_with_its_word() -> None:
    world = World()
    world.settle()
    for tag in "abc":
        submit(world, tag)
    assert deny(world, "busy") == 2
    assert deny(world, "busy") == 0
    assert blockers(world, "j-1") == ["host_limit"]
    assert blockers(world, "j-3")[0] == "host_limit"
    world.pass_time(DENIED_PAUSE_MS)
    assert deny(world, "busy") == 2


def test_a_job_that_is_held_back_can_be_cancelled() -> None:
    world = world_of_an_earlier_run(None)
    submit(world, "new")
    world.settle()
    (result,) = world.ask(CancelJobs(jobs=("j-1",))).results
    assert result.outcome == "cancelled"
    world.pass_time(DENIED_PAUSE_MS)
    world.settle()
    assert not world.broker.soft.held_back
    assert not world.broker.soft.queue
    status: Any = world.ask(GetStatus())
    assert status.queue_blocked_reasons == {}


def test_a_registry_that_hangs_is_the_reason_why_nothing_starts() -> None:
    world = World()
    world.settle()
    submit(world, "t")
    assert blockers(world, "j-1") == [], "it is being started"
    world.pass_time(SILENCE_MAX_MS)
    submit(world, "u")
    (blocker,) = world.ask(ExplainJob(subject="j-1")).blockers
    assert (blocker.code, "5 s" in blocker.detail) == ("recovery_pending", True)
    assert blockers(world, "j-2") == ["recovery_pending"]
    status = world.ask(GetStatus())
    assert status.health == "troubled"
    assert "registry" in status.warnings[0]
    world.settle()  # it answers again
    assert world.broker.state.jobs["j-1"].state == "running"
    assert world.ask(GetStatus()).health == "healthy"


def test_what_the_registry_said_of_an_attempt_is_told_until_the_attempt_ends() -> None:
    world = World()
    submit(world, "t")
    world.settle()
    assert world.broker.state.attempts["j-1.1"].phase == "running"
    world.turn(RegistryConnected())
    world.to_registry.clear()
    (request_id,) = world.broker.soft.registry_requests
    world.turn(RegistrySaid(request_id, Registered(registry_epoch=1, view=EMPTY)))
    for request_id, asked in list(world.broker.soft.registry_requests.items()):
        if asked.what in ("reserve_again", "bind"):
            world.turn(RegistrySaid(request_id, Denied(code="conflict", detail="taken")))
    world.to_registry.clear()
    assert "j-1.1" in world.ask(GetStatus()).warnings[0]
    world.finish_one()
    world.settle()
    assert world.ask(GetStatus()).warnings == ()
    assert not world.broker.soft.warnings


def test_a_denied_registration_is_tried_again() -> None:
    world = World()
    (request_id, _) = world.to_registry.popleft()
    denied = Denied(code="busy", detail="128 runs are registered; that is the limit")
    world.turn(RegistrySaid(request_id, denied))
    assert not world.to_registry
    assert "128 runs" in " ".join(world.ask(GetStatus()).warnings)
    due = world.broker.wake_at_ms()
    assert due is not None
    world.pass_time(due - world.now_ms)
    world.settle()
    assert world.broker.soft.registry_ready
    assert world.ask(GetStatus()).health == "healthy"


def test_a_broker_that_ends_in_order_leaves_the_registry_and_its_attempts_stay() -> None:
    world = World()
    submit(world, "t", "gpu")
    world.settle()
    (send,) = world.broker.end(world.stamp()).outbox
    assert isinstance(send.message, DeregisterRun)
    world.to_registry.append((send.request_id or "", send.message))
    world.registry_step()
    assert RUN_KEY not in world.registry.state.runs
    assert [row.attempt for row in world.registry.state.of_run(RUN_KEY)] == ["j-1.1"]


def test_a_broker_that_is_not_registered_has_nothing_to_leave() -> None:
    assert not World().broker.end(Stamp(at_ms=0, mono_ms=0)).outbox


def test_what_is_claimed_again_after_its_end_is_given_back() -> None:
    """A registry that lost its ledger; the request to hold the row anew finds its queue full, and
    is sent again when the release has already gone through."""
    world = World()
    submit(world, "a")
    world.settle()
    world.registry = ClaimMachine()
    world.registry.decide(RegistryStarted(BOOT), world.stamp())
    world.turn(RegistryLost(), RegistryConnected())
    world.registry_step()
    world.turn(world.to_broker.popleft())
    (again,) = [asked for asked in world.to_registry if isinstance(asked[1], Reserve)]
    world.to_registry.remove(again)
    world.finish_one()
    world.settle()
    assert not world.broker.state.attempts
    world.to_registry.append(again)
    world.settle()
    assert not world.registry.state.rows


def test_counts_that_came_too_soon_are_told_again() -> None:
    """A registry that stalls takes two reports of another user's run at once, and denies one."""
    world = World(limit=1)
    world.settle()
    for tag in ("a", "b"):
        submit(world, tag)
        world.settle()
        world.now_ms += 300
        world.turn()
    ((request_id, report),) = world.to_registry
    assert isinstance(report, ReportLoad)
    world.to_registry.clear()
    world.turn(RegistrySaid(request_id, Denied(code="not_now", detail="too soon")))
    assert not world.to_registry
    world.now_ms += 300
    world.turn()
    assert [request for _, request in world.to_registry] == [report]
    world.settle()
    world.now_ms += 300
    world.turn()
    assert not world.to_registry, "told once"
