"""The page an operator reads first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from praxist_zmq.core import broker_snapshot
from praxist_zmq.core.broker import Broker
from praxist_zmq.core.queries import status
from praxist_zmq.core.soft import EVENTS_KEPT
from praxist_zmq.core.turn import Turn
from praxist_zmq.core.views import cancelled_words
from praxist_zmq.protocol.events import AdmissionOpened
from praxist_zmq.protocol.replies import DevicesReply
from praxist_zmq.protocol.requests import (
    CancelJobs,
    ExplainJob,
    GetDevices,
    GetPolicy,
    GetStatus,
    HoldAdmission,
    ReadEvents,
    StopRun,
    SubmitJob,
)
from tests.support.broker_world import BOOT, World
from tests.support.explained import LoadedWorld, Wish


def test_a_hold_that_nobody_released_is_told() -> None:
    world = World()
    world.settle()
    assert world.ask(GetStatus()).health == "healthy"
    world.ask(HoldAdmission())
    status = world.ask(GetStatus())
    assert status.health == "troubled"
    assert "held" in status.warnings[0]


def test_simulated_devices_are_told_as_such_before_any_sample() -> None:
    world = World()
    world.broker.soft.sample, world.broker.soft.simulated = None, True
    assert world.ask(GetStatus()).simulated
    assert world.ask(GetDevices()) == DevicesReply(devices=(), simulated=True)


def test_the_contract_in_force_is_told_and_survives_a_restart() -> None:
    world = World(limit=3)
    assert world.ask(GetPolicy()).policy == world.policy
    world.crash_broker()
    world.start_broker()
    reply = world.ask(GetPolicy())
    assert (reply.policy, reply.is_default) == (world.policy, False)


def test_jobs_of_a_peer_at_its_cap_are_counted_as_such() -> None:
    world = LoadedWorld([(0, 0.0)], cap=1)
    for peer in ("p1", "p1", "p1", "p2", "p2"):
        world.submit(Wish(peer, "cpu"))
    world.look()
    assert world.ask(GetStatus()).queue_blocked_reasons == {"per_peer_capacity": 3}
    world.broker.state.limit = 2  # what holds everybody is told first
    assert world.ask(GetStatus()).queue_blocked_reasons == {"concurrency_limit": 3}
    world.broker.state.limit = 8
    world.ask(CancelJobs(jobs=tuple(world.queued()), reason="no"))
    world.look()
    assert world.ask(GetStatus()).queue_blocked_reasons == {}
    assert not world.broker.soft.queue.peer_sizes


class Looked(tuple[int, Any]):
    """An entry of the history that counts who takes it apart."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        Looked.looks += 1
        return super().__iter__()


def test_a_page_of_events_looks_at_nothing_that_its_reader_has_seen() -> None:
    world = World()
    event = AdmissionOpened(at_ms=0, reason="x")
    numbers = [n for n in range(1, EVENTS_KEPT) if n % 7]  # records that nobody could read
    world.broker.soft.history = deque(Looked((n, event)) for n in numbers)
    for after in (numbers[-3], numbers[-4] + 1, 0):
        Looked.looks = 0
        page = world.ask(ReadEvents(after_sequence=after, limit=10))
        expected = [n for n in numbers if n > after][:10]
        assert [line.sequence for line in page.events] == expected
        assert Looked.looks <= 10


def test_what_a_start_says_of_the_generation_is_shown_and_kept() -> None:
    world = World()

    def begin(generation: int, cohort_size: int | None, deadline_at_ms: int | None) -> int:
        decision = world.broker.begin(
            world.stamp(), run_id="run", boot_id=BOOT, version="test", policy=world.policy,
            generation=generation, reopen=False, cohort_size=cohort_size,
            deadline_at_ms=deadline_at_ms,
        )  # fmt: skip
        world.broker = Broker(broker_snapshot.load(broker_snapshot.dump(world.broker.state)))
        return sum(event.kind == "policy_adopted" for event in decision.events)  # type: ignore[attr-defined]

    def shown() -> tuple[object, ...]:
        turn = Turn(world.broker.state, world.broker.soft, world.stamp())
        generation = status(turn).generation
        return generation["number"], generation["cohort_size"], generation["deadline"]

    assert shown() == (0, None, None)
    assert begin(1, 8, 1_800_000_000_000) == 1
    told = (1, 8, "2027-01-15T08:00:00.000Z")
    assert shown() == told
    assert begin(1, None, None) == 0, "a start that is told nothing keeps it"
    assert shown() == told
    assert begin(1, 9, None) == 1
    assert shown() == (1, 9, told[2])
    assert begin(2, None, None) == 1
    assert shown() == (2, None, None)


def test_a_stopped_run_tells_its_generation_as_it_is() -> None:
    world = World()
    world.settle()
    assert world.ask(GetStatus()).generation["admission_closed"] is None
    world.ask(StopRun(grace_seconds=1.0))
    told = world.ask(GetStatus()).generation
    assert (told["state"], told["admission_closed"]) == ("open", "the run was stopped")


def test_a_cancellation_is_told_once() -> None:
    world = World()
    for tag, reason in (("a", "cancelled"), ("b", "superseded")):
        job = world.ask(
            SubmitJob(peer="p", tag=tag, command=("x",), cwd="/", environment={})
        ).job.job
        world.ask(CancelJobs(jobs=(job,), reason=reason))
    told = [world.ask(ExplainJob(subject=f"tag:{tag}")).verdict for tag in ("a", "b")]
    assert told == ["cancelled (before it started)", "cancelled: superseded (before it started)"]
    assert cancelled_words("cancelled") == cancelled_words("") == "cancelled"
    assert cancelled_words("superseded") == "cancelled: superseded"
