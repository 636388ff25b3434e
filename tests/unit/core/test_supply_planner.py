"""The supply process's machine: when it plans, how much, and whom it asks for what."""

from __future__ import annotations

from typing import Any

from praxist_zmq.core.supply import SupplyPlanner
from praxist_zmq.protocol.supply import IdlePeer, SupplyFacts, SupplyGeneration

IN_A_ROW = -2


def peers(*names: str, **facts: Any) -> tuple[IdlePeer, ...]:
    """Waiting peers of generation 0."""
    plain: dict[str, Any] = {"generation": 0, "cooling": (), "mature": False, **facts}
    return tuple(IdlePeer(peer=name, **plain) for name in names)


def facts(
    sample_ms: int, *, needed: int = 0, assessment: bool = False, **other: Any
) -> SupplyFacts:
    """Three free slots, six peers."""
    plain: dict[str, Any] = {
        "epoch": 1,
        "previous_ms": IN_A_ROW,
        "free_slots": 3,
        "profiles": ("cpu",),
        "idle_samples": 2,
        "generations": (SupplyGeneration(generation=0, assessment=assessment, needed=needed),),
        "idle": peers("a", "b", "c", "d", "e", "f"),
        **other,
    }
    return SupplyFacts(sample_ms=sample_ms, **plain)


def planned(*asked: SupplyFacts) -> list[tuple[str, str]]:
    """(peer, priority) of the last plan."""
    planner = SupplyPlanner()
    told_ms: dict[int, int] = {}
    for one in asked:
        if one.previous_ms == IN_A_ROW:
            one = one.model_copy(update={"previous_ms": told_ms.get(one.epoch, -1)})
        plan = planner.decide(one)
        told_ms[one.epoch] = max(told_ms.get(one.epoch, -1), one.sample_ms)
    assert plan.sample_ms == asked[-1].sample_ms
    return [(offer.peer, offer.priority) for offer in plan.offers]


def test_enough_good_samples_wake_as_many_peers_as_there_are_slots() -> None:
    followup = "frontier_followup"
    assert planned(facts(1)) == []
    assert planned(facts(1), facts(2)) == [("a", followup), ("b", followup), ("c", followup)]


def test_after_a_plan_the_count_starts_anew() -> None:
    assert planned(facts(1), facts(2), facts(3)) == []
    assert len(planned(facts(1), facts(2), facts(3), facts(4))) == 3


def test_only_new_samples_count_and_only_in_a_row() -> None:
    assert planned(facts(1), facts(1)) == []
    assert planned(facts(2), facts(1)) == []
    assert planned(facts(1), facts(2, free_slots=0), facts(3)) == []
    assert planned(facts(1), facts(2, profiles=()), facts(3)) == []


def test_samples_while_nobody_waited_break_the_row() -> None:
    assert planned(facts(1), facts(9, previous_ms=-1)) == []
    assert planned(facts(1), facts(9, previous_ms=8)) == [], "facts were lost on the way"
    assert len(planned(facts(1), facts(9, previous_ms=-1), facts(10))) == 3


def test_another_broker_starts_the_count_anew() -> None:
    assert planned(facts(9), facts(2, epoch=2)) == []
    assert len(planned(facts(9), facts(2, epoch=2), facts(3, epoch=2))) == 3


def test_mature_work_is_asked_for_until_enough_of_it_is() -> None:
    found = planned(facts(1), facts(2, needed=2))
    assert found == [("a", "mature"), ("b", "mature"), ("c", "frontier_followup")]
    assert planned(facts(1), facts(2, needed=1, assessment=True)) == [("a", "mature")]


def test_who_is_cooling_or_has_grown_waits_until_something_else_is_wanted() -> None:
    cooling = peers("a", cooling=("mature",)) + peers("b", cooling=("frontier_followup",))
    assert planned(facts(1), facts(2, needed=2, idle=cooling)) == [("b", "mature")]
    assert planned(facts(1), facts(2, idle=cooling)) == [("a", "frontier_followup")]
    grown = peers("a", mature=True) + peers("b")
    assert planned(facts(1), facts(2, needed=2, idle=grown)) == [("b", "mature")]
    grown = peers("b") + peers("a", mature=True)
    found = planned(facts(1), facts(2, needed=1, idle=grown))
    assert found == [("b", "mature"), ("a", "frontier_followup")], "what was needed is on its way"
    both = peers("a", cooling=("mature", "frontier_followup"))
    assert planned(facts(1), facts(2, needed=1, idle=both)) == []
    assert planned(facts(1), facts(2, idle=both)) == []


def test_peers_of_a_generation_that_takes_no_work_are_passed_over() -> None:
    assert planned(facts(1), facts(2, idle=peers("a", generation=7))) == []
