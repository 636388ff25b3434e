"""The one order of a turn: decided, on disk, sent; and what may wait a moment for company."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from praxist_zmq.core.decision import Decision, Send, Stamp
from praxist_zmq.protocol.events import AdmissionClosed
from praxist_zmq.protocol.replies import Done
from praxist_zmq.service.step import HOLD_MS, Step


@dataclass
class Diary:
    """A fake ledger and a fake way out that note what happened, in order."""

    entries: list[str] = field(default_factory=list)

    def commit(self, payloads: list[bytes]) -> int:
        self.entries.append(f"commit {len(payloads)}")
        return 0

    def send(self, outbox: list[Send]) -> None:
        if outbox:
            self.entries.append("send " + " ".join(send.to for send in outbox))


class Machine:
    """A fake machine: a command is (events, sends, lazy) or a fault."""

    recorded = 0

    def __init__(self) -> None:
        self.settled = Decision()

    def decide(self, command: Any, stamp: Stamp) -> Decision:
        if isinstance(command, Exception):
            raise command
        events, sends, lazy = command
        self.recorded += events
        return Decision(
            [AdmissionClosed(at_ms=0, reason="x")] * events,
            [Send(to, Done()) for to in sends],
            lazy,
        )

    def settle(self, stamp: Stamp) -> Decision:
        settled, self.settled = self.settled, Decision()
        return settled

    def apply(self, event: Any, sequence: int) -> None:
        raise AssertionError("a step replays nothing")

    def wake_at_ms(self) -> int | None:
        return None


def at(mono_ms: int) -> Stamp:
    return Stamp(at_ms=0, mono_ms=mono_ms)


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def step(machine: Machine, diary: Diary) -> Step:
    return Step(
        machine,
        diary,  # type: ignore[arg-type]
        diary.send,
        lambda command: Send("sorry", Done()),
    )


def test_one_sync_for_all_that_waits_and_nothing_leaves_before_it(step: Step, diary: Diary) -> None:
    step.turn([(1, ["a"], False), (2, ["b"], False)], at(0))
    assert diary.entries == ["commit 3", "send a b"]


def test_a_query_needs_no_sync(step: Step, diary: Diary) -> None:
    step.turn([(0, ["a"], False)], at(0))
    assert diary.entries == ["send a"]


def test_what_nobody_waits_for_shares_the_next_sync(step: Step, diary: Diary) -> None:
    step.turn([(1, ["late"], True)], at(0))
    assert diary.entries == []
    assert step.due_ms() == HOLD_MS
    step.turn([(1, ["a"], False)], at(1))
    assert diary.entries == ["commit 2", "send late a"]
    assert step.due_ms() is None


def test_it_waits_no_longer_than_the_bound(step: Step, diary: Diary) -> None:
    step.turn([(1, ["late"], True)], at(0))
    step.turn([(1, [], True)], at(HOLD_MS - 1))
    assert diary.entries == []
    step.turn([], at(HOLD_MS))
    assert diary.entries == ["commit 2", "send late"]


def test_an_answer_about_what_is_held_waits_for_its_sync(step: Step, diary: Diary) -> None:
    step.turn([(1, [], True)], at(0))
    step.turn([(0, ["answer"], False)], at(1))
    assert diary.entries == ["commit 1", "send answer"]


def test_the_end_makes_everything_durable(step: Step, diary: Diary) -> None:
    step.turn([(1, ["late"], True)], at(0))
    step.flush()
    assert diary.entries == ["commit 1", "send late"]


def test_a_fault_that_recorded_nothing_is_answered_and_the_rest_goes_on(
    step: Step, diary: Diary
) -> None:
    step.turn([ValueError("ours"), (1, ["a"], False)], at(0))
    assert diary.entries == ["commit 1", "send sorry a"]


EVENT = AdmissionClosed(at_ms=0, reason="y")


def test_answers_do_not_wait_for_what_follows_by_itself(
    step: Step, machine: Machine, diary: Diary
) -> None:
    machine.settled = Decision([EVENT], [Send("follows", Done())])
    step.turn([(1, ["a"], False)], at(0))
    assert diary.entries == ["commit 1", "send a", "commit 1", "send follows"]


def test_what_follows_from_what_is_held_waits_with_it(
    step: Step, machine: Machine, diary: Diary
) -> None:
    machine.settled = Decision([], [Send("follows", Done())])
    step.turn([(1, ["late"], True)], at(0))
    assert diary.entries == []
    machine.settled = Decision([EVENT], [Send("b", Done())])
    step.turn([], at(1))
    assert diary.entries == ["commit 2", "send late follows b"]


def test_others_are_roused_before_the_sync_and_only_for_one(machine: Machine, diary: Diary) -> None:
    def rouse(outbox: list[Send]) -> None:
        diary.entries.append("rouse for " + " ".join(send.to for send in outbox))

    step = Step(machine, diary, diary.send, rouse=rouse)  # type: ignore[arg-type]
    step.turn([(1, ["a", "b"], False)], at(0))
    step.turn([(0, ["a"], False)], at(1))
    assert diary.entries == ["rouse for a b", "commit 1", "send a b", "send a"]


def test_what_the_ledger_must_not_hold_is_kept_before_it_and_forgotten_after(
    machine: Machine, diary: Diary
) -> None:
    class Aside:
        def keep(self) -> None:
            diary.entries.append("keep")

        def forget(self) -> None:
            diary.entries.append("forget")

    step = Step(machine, diary, diary.send, aside=Aside())  # type: ignore[arg-type]
    step.turn([(1, ["a"], False)], at(0))
    assert diary.entries[:4] == ["keep", "commit 1", "send a", "forget"]
    diary.entries.clear()
    step.turn([(0, ["a"], False)], at(1))
    assert diary.entries[:2] == ["keep", "send a"], "also where nothing is recorded"
    diary.entries.clear()
    step.turn([(1, ["late"], True)], at(2))
    assert set(diary.entries) == {"keep"}, "the reason is not on disk yet"
