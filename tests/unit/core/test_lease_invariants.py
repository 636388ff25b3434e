"""The judges of leases and generations find each broken promise, and nothing in sound histories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from praxist_zmq.core import broker_snapshot
from praxist_zmq.core.invariants import check_at_rest, check_history, check_state
from praxist_zmq.protocol import events as ev
from praxist_zmq.protocol.codec import decode_event
from praxist_zmq.protocol.requests import (
    AssessGeneration,
    FreezeGeneration,
    OpenGeneration,
    PublishResult,
)
from tests.support.lease_world import LeaseWorld

History = list[Any]
Spoil = Callable[[History], History]


def world_with_a_used_lease() -> LeaseWorld:
    """p1's lease was consumed by j-1, which ran; p2's is out."""
    world = LeaseWorld(0, 3)
    lease = world.granted("p1")
    world.send("p1", "t1", lease.lease_id, work_class="mature")
    world.settle()
    world.granted("p2")
    return world


def history_of(world: LeaseWorld) -> History:
    return [decode_event(body) for body in world.disk]


def place(history: History, kind: type, number: int = 0) -> int:
    """Where the event is."""
    return [index for index, event in enumerate(history) if isinstance(event, kind)][number]


def again(kind: type, number: int = 0) -> Spoil:
    """The event comes once more, at the end."""
    return lambda history: [*history, history[place(history, kind, number)]]


def without(kind: type, number: int = 0) -> Spoil:
    """The event is missing."""

    def spoil(history: History) -> History:
        del history[place(history, kind, number)]
        return history

    return spoil


def changed(kind: type, number: int = 0, **values: Any) -> Spoil:
    """The event says something else."""

    def spoil(history: History) -> History:
        index = place(history, kind, number)
        history[index] = history[index].model_copy(update=values)
        return history

    return spoil


def before(kind: type, event: Any, number: int = 0) -> Spoil:
    """Another event comes just before."""

    def spoil(history: History) -> History:
        history.insert(place(history, kind, number), event)
        return history

    return spoil


FROZEN = ev.GenerationFrozen(at_ms=1, generation=0, reason="test", signal=False)
ASSESSED = ev.GenerationAssessed(at_ms=1, generation=0, reason="test")
CLOSED = ev.GenerationClosed(at_ms=1, generation=0)
ENDED = ev.AdmissionClosed(at_ms=1, reason="test")
STARTED = ev.BrokerStarted(at_ms=1, run_id="run", epoch=9, boot_id="b", version="1")
MOVED = ev.LimitChanged(at_ms=1, before=3, limit=1, reason="test")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (again(ev.LeaseGranted), "was granted before"),
        (changed(ev.LeaseGranted, 1, peer="p1"), None),
        (without(ev.LeaseGranted), "it had not begun"),
        (again(ev.LeaseEnded), "it had consumed"),
        (without(ev.LeaseEnded), "outlived j-1"),
        (before(ev.LeaseEnded, MOVED), "consumed apart from the submission of j-1"),
        (before(ev.LeaseEnded, STARTED), None),  # a batch cut short, made good by the next broker
        (changed(ev.LeaseEnded, job="j-2"), "consumed apart"),
        (changed(ev.LeaseEnded, outcome="declined"), "is declined and has the job j-1"),
        (changed(ev.JobQueued, lease_id="supply-7-f"), "which named supply-7-f"),
        (changed(ev.JobQueued, peer="p3"), "consumed by another peer's j-1"),
        (changed(ev.JobQueued, generation=4), "of another generation"),
        (changed(ev.JobQueued, profile="elsewhere"), "of profile elsewhere"),
        (changed(ev.JobQueued, work_class="ordinary"), "asked for mature work"),
        (before(ev.LeaseGranted, FROZEN, 1), "granted after its generation was frozen"),
        (before(ev.LeaseGranted, ASSESSED, 1), "is not for mature work"),
        (before(ev.LeaseGranted, ENDED, 1), "granted after admission was closed"),
        (before(ev.LeaseGranted, MOVED, 1), "1 out, 1 run, slots 1"),
        (before(ev.JobQueued, STARTED), "consumed after its broker was gone"),
        (before(ev.JobQueued, FROZEN), "queued after its generation was frozen"),
        (before(ev.AttemptAllocated, FROZEN), "given an allocation after its generation"),
        (before(ev.AttemptAllocated, ENDED), "given an allocation after admission was closed"),
        (before(ev.AttemptBound, FROZEN), "reached after the freeze"),
        (before(ev.AttemptLaunched, FROZEN), "granted after its generation was frozen"),
        (lambda history: [*history, CLOSED], "had not been frozen"),
        (lambda history: [*history, FROZEN, CLOSED], "j-1.1 holds an allocation"),
        (lambda history: [*history, FROZEN, ASSESSED], "was frozen and became assessment"),
    ],
)
def test_each_broken_promise_is_found(spoil: Spoil, words: str | None) -> None:
    history = history_of(world_with_a_used_lease())
    assert check_history(history) == []
    found = check_history(spoil(history))
    assert any(words in fault for fault in found) if words else not found, found


def test_two_live_leases_of_a_peer_are_found() -> None:
    world = LeaseWorld(0, 3)
    world.granted("p1")
    world.granted("p2")
    history = changed(ev.LeaseGranted, 1, peer="p1")(history_of(world))
    assert any("granted to p1, who has supply-1" in fault for fault in check_history(history))


def test_a_locator_that_counts_as_something_else_is_found() -> None:
    world = world_with_a_used_lease()
    used = world.broker.state.leases.consumed
    world.send("p1", "t2", next(iter(used)))
    history = history_of(world)
    assert check_history(history) == []
    spoiled = changed(ev.LeaseCounted, what="stale_submission")(history)
    assert any("counts as stale_submission" in fault for fault in check_history(spoiled))


def test_a_state_is_judged_by_itself() -> None:
    world = world_with_a_used_lease()
    state = world.broker.state
    assert check_at_rest(state) == []
    (live,) = state.leases.live.values()
    (used,) = state.leases.ended.values()
    live.state = "declined"
    state.leases.consumed.clear()
    state.leases.live[used.lease_id] = used
    used.peer = live.peer
    told = "\n".join(check_state(state))
    for words in (
        "has 2 live leases", "is live and has ended", "is live and declined",
        "the list of consumed ones says otherwise", "leases count as consumed", "were granted",
    ):  # fmt: skip
        assert words in told, told


def test_what_a_turn_must_have_put_right_is_judged_at_rest() -> None:
    world = world_with_a_used_lease()
    state = world.broker.state
    (lease,) = state.leases.live.values()
    found = state.generations[lease.generation]
    for phase, words in (("frozen", "its generation is frozen"), ("assessment", "asks for front")):
        found.phase = phase
        assert check_state(state) == []
        assert any(words in fault for fault in check_at_rest(state))
    found.phase, lease.priority, found.cohort_size = "open", "mature", 3
    found.results.clear()
    state.policy = state.policy.model_copy(update={"mature_supply_fraction": 0.0})
    assert any("wants 0 mature on their way" in fault for fault in check_at_rest(state))


def test_commitments_count_once_an_identity() -> None:
    world = LeaseWorld(0, 3)
    world.open(0, cohort_size=9)
    world.send("p1", "t1", work_class="mature")
    world.send("p1", "t2", work_class="mature")
    world.settle()
    world.finish_one(75)
    world.settle()
    assert check_at_rest(world.broker.state) == []
    world.ask(PublishResult(tag="t1", mature=True, generation=0))
    assert check_at_rest(world.broker.state) == []
    world.broker.state.mature_open[0].clear()
    assert any("counts 0 mature on their way, 1 are" in f for f in check_state(world.broker.state))


def test_a_snapshot_stands_for_what_was_before() -> None:
    """A compacted ledger is judged as well as a whole one."""
    world = world_with_a_used_lease()
    world.take_snapshot()
    assert world.snapshot is not None
    base, cut = broker_snapshot.load(world.snapshot), len(world.disk)
    late = history_of(world)
    assert check_history([], base) == []
    for event, words in (
        (late[place(late, ev.LeaseGranted)], "was granted before"),
        (late[place(late, ev.JobQueued)], "j-1 was queued twice"),
        (late[place(late, ev.AttemptAllocated)], "j-1.1 was allocated twice"),
        (late[place(late, ev.LeaseEnded)], "it had consumed"),
    ):
        assert any(words in fault for fault in check_history([event], base)), words
    world.finish_one(0)
    world.settle()
    world.ask(FreezeGeneration(generation=0))
    world.settle()
    assert check_history(history_of(world)[cut:], base) == []


def test_closed_it_stays_closed_also_when_its_signal_is_asked_for() -> None:
    world = LeaseWorld(0, 1)
    world.ask(FreezeGeneration(generation=0))
    world.settle()
    found = world.broker.state.generations[0]
    assert (found.phase, found.signal) == ("closed", False)
    world.ask(FreezeGeneration(generation=0, signal=True))
    world.settle()
    assert (found.phase, found.signal) == ("closed", True)
    kinds = [event.kind for event in history_of(world)]
    assert kinds.count("generation_closed") == 1
    world.ask(OpenGeneration(generation=0))
    world.ask(AssessGeneration(generation=0))
    assert check_history(history_of(world)) == []
    assert check_at_rest(world.broker.state) == []


def test_an_offer_that_the_host_grants_too_late_for_a_slot_is_given_back() -> None:
    """The limit fell, or work came, while the host was asked: work goes first."""
    world = LeaseWorld(0, 1)
    world.idle("p1")
    world.silent = True
    world.look(2)
    assert world.unanswered
    world.send("p2", "t1")
    world.silent = False
    world.to_registry.extend(world.unanswered)
    world.unanswered.clear()
    world.settle()
    assert not world.broker.state.leases.live
    assert world.broker.soft.leases.idle == {"p1": 0}, "the peer waits on"
    assert not world.rows, "and no room is held for it"
    assert check_history(history_of(world)) == []
