"""Which envelopes share a device: declared sums, foreign use, sizes, unknown figures, the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from praxist_zmq.core.claim_commands import BrokersGone
from praxist_zmq.core.claim_state import Watch
from praxist_zmq.protocol.claims import Denied, Envelope, Granted
from tests.support.claim_desk import Desk
from tests.support.claims import exclusive, facts, reserve, run_key, run_row

GIB = 1024


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    for name in ("a", "b"):
        desk.register(name, limit=100)
    yield desk
    desk.check()


def demand(pct: float, memory_mib: int = 100, *devices: str) -> Envelope:
    """A shared demand, by default of one device."""
    return Envelope(
        device_uuids=devices or ("gpu0",),
        exclusive=False,
        memory_mib=memory_mib,
        utilization_pct=pct,
    )


def test_utilisation_is_summed_over_all_runs(desk: Desk) -> None:
    assert isinstance(desk.ask(reserve("a", "j-1.1", demand(45.0))), Granted)
    assert isinstance(desk.ask(reserve("b", "j-1.1", demand(45.0))), Granted)
    denied = desk.ask(reserve("a", "j-2.1", demand(45.0)))
    assert denied.code == "conflict"
    assert "gpu0 is short of 35 % utilisation: 90 % declared" in denied.detail
    assert isinstance(desk.ask(reserve("a", "j-3.1", demand(10.0))), Granted)
    desk.release("j-1.1")
    assert isinstance(desk.ask(reserve("b", "j-2.1", demand(45.0))), Granted)


@pytest.mark.parametrize("parts", [3, 6, 7, 9, 11])
def test_equal_parts_of_a_device_fill_it_exactly(desk: Desk, parts: int) -> None:
    for number in range(parts):
        asked = reserve("a", f"j-{number + 1}.1", demand(100 / parts, 1))
        assert isinstance(desk.ask(asked), Granted)
    assert desk.ask(reserve("b", "j-1.1", demand(0.001, 1))).code == "conflict"


def test_foreign_utilisation_counts(desk: Desk) -> None:
    busy = facts("gpu0", foreign_pct=56.0)
    denied = desk.ask(reserve("a", "j-1.1", demand(45.0), seen=busy))
    assert (denied.code, denied.attempt) == ("conflict", "j-1.1")
    assert "56 % foreign" in denied.detail
    assert isinstance(
        desk.ask(reserve("a", "j-2.1", demand(45.0), seen=facts("gpu0", foreign_pct=55.0))),
        Granted,
    )


def test_foreign_memory_leaves_room_for_what_fits_only(desk: Desk) -> None:
    seen = facts("gpu0", memory_mib=48 * GIB, foreign_mib=18 * GIB)
    denied = desk.ask(reserve("a", "j-1.1", demand(10.0, 32 * GIB), seen=seen))
    assert denied.code == "conflict"
    assert f"short of {50 * GIB - 48 * GIB * 95 // 100} MiB memory" in denied.detail
    assert isinstance(desk.ask(reserve("a", "j-2.1", demand(10.0, 25 * GIB), seen=seen)), Granted)


def test_memory_is_summed_up_to_95_percent(desk: Desk) -> None:
    seen = facts("gpu0", memory_mib=1000)
    assert isinstance(desk.ask(reserve("a", "j-1.1", demand(1.0, 500), seen=seen)), Granted)
    assert desk.ask(reserve("b", "j-1.1", demand(1.0, 451), seen=seen)).code == "conflict"
    assert isinstance(desk.ask(reserve("b", "j-2.1", demand(1.0, 450), seen=seen)), Granted)


def test_no_run_can_enlarge_a_device(desk: Desk) -> None:
    small, large = facts("gpu0", memory_mib=1000), facts("gpu0", memory_mib=100_000)
    desk.ask(reserve("a", "j-1.1", demand(1.0, 500), seen=small))
    assert "1000 MiB" in desk.ask(reserve("b", "j-1.1", demand(1.0, 600), seen=large)).detail
    desk.release("j-1.1")
    assert isinstance(desk.ask(reserve("b", "j-2.1", demand(1.0, 600), seen=large)), Granted)


@pytest.mark.parametrize(
    ("unknown", "word"),
    [
        ({"memory_mib": None}, "its memory"),
        ({"foreign_mib": None}, "foreign memory"),
        ({"foreign_pct": None}, "foreign utilisation"),
    ],
)
def test_an_unknown_figure_lets_a_device_take_one_row(
    desk: Desk, unknown: dict[str, Any], word: str
) -> None:
    seen = facts("gpu0", **unknown)
    assert isinstance(desk.ask(reserve("a", "j-1.1", demand(10.0), seen=seen)), Granted)
    denied = desk.ask(reserve("b", "j-1.1", demand(10.0), seen=seen))
    assert denied.code == "conflict"
    assert f"{word} is unknown" in denied.detail


def test_a_fresh_plan_without_facts_knows_nothing(desk: Desk) -> None:
    assert isinstance(desk.ask(reserve("a", "j-1.1", demand(10.0), seen=())), Granted)
    assert desk.ask(reserve("b", "j-1.1", demand(10.0), seen=())).code == "conflict"
    assert isinstance(desk.ask(reserve("b", "j-2.1", demand(10.0))), Granted)


def test_a_size_that_another_row_knows_is_known(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", demand(10.0, 500), seen=facts("gpu0", memory_mib=1000)))
    blind = facts("gpu0", memory_mib=None)
    assert desk.ask(reserve("b", "j-1.1", demand(10.0, 451), seen=blind)).code == "conflict"
    assert isinstance(desk.ask(reserve("b", "j-2.1", demand(10.0, 450), seen=blind)), Granted)


def test_facts_must_be_of_the_devices_in_order(desk: Desk) -> None:
    asked = demand(1.0, 1, "gpu0", "gpu1")
    for seen in (facts("gpu1", "gpu0"), facts("gpu0"), facts("gpu0", "gpu1", "gpu2")):
        assert desk.ask(reserve("a", "j-1.1", asked, seen=seen)).code == "malformed_request"


def test_every_device_of_an_envelope_must_have_room(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", demand(60.0, 1, "gpu1")))
    denied = desk.ask(reserve("b", "j-1.1", demand(50.0, 1, "gpu0", "gpu1")))
    assert denied.code == "conflict"
    assert "gpu1" in denied.detail
    assert isinstance(desk.ask(reserve("b", "j-2.1", demand(40.0, 1, "gpu0", "gpu1"))), Granted)


def claim_again(desk: Desk, envelope: Envelope, name: str = "a") -> Any:
    """A broker that lists its attempt and finds that the registry does not hold it."""
    desk.register(name, epoch=2, attempts=("j-1.1",), limit=100)
    return desk.ask(reserve(name, "j-1.1", envelope, epoch=2, seen=()))


def test_a_claim_again_is_held_to_declared_sums_only(desk: Desk) -> None:
    desk.ask(reserve("b", "j-1.1", demand(50.0, 500), seen=facts("gpu0", memory_mib=1000)))
    assert claim_again(desk, demand(50.0, 451)).code == "conflict"
    assert claim_again(desk, demand(50.1, 450)).code == "conflict"
    assert claim_again(desk, exclusive("gpu0")).code == "conflict"
    assert isinstance(claim_again(desk, demand(50.0, 450)), Granted)


def test_a_claim_again_joins_a_device_of_unknown_size(desk: Desk) -> None:
    desk.ask(reserve("b", "j-1.1", demand(50.0, 500), seen=()))
    assert isinstance(claim_again(desk, demand(50.0, 500_000)), Granted)


def test_a_claim_again_never_joins_an_exclusive_row(desk: Desk) -> None:
    desk.ask(reserve("b", "j-1.1", exclusive("gpu0")))
    assert "shares it with nobody" in claim_again(desk, demand(1.0, 1)).detail


def test_all_runs_share_the_largest_limit(desk: Desk) -> None:
    desk.register("a", limit=1)
    desk.register("b", limit=3)
    for number in range(1, 4):
        assert isinstance(
            desk.ask(reserve("ab"[number % 2], f"j-{number}.1", exclusive())), Granted
        )
    denied = desk.ask(reserve("b", "j-9.1", exclusive()))
    assert denied.code == "host_limit"
    assert denied.detail.startswith("3 allocations on this host; its limit, ")
    assert denied.view.limit == 3
    desk.report("a", limit=4)
    assert isinstance(desk.ask(reserve("b", "j-9.1", exclusive())), Granted)


def test_two_runs_of_limit_two_hold_two(desk: Desk) -> None:
    desk.register("a", limit=2)
    desk.register("b", limit=2)
    asked = [reserve(name, f"j-{n}.1", exclusive()) for n in (1, 2) for name in "ab"]
    assert sum(isinstance(desk.ask(request), Granted) for request in asked) == 2


def test_rows_of_a_dead_run_count_against_the_limit(desk: Desk) -> None:
    desk.register("a", limit=1)
    desk.register("b", limit=1)
    desk.ask(reserve("b", "j-1.1", exclusive()))
    desk.fact(BrokersGone((Watch(run_key("b"), None, run_row("b").broker),)))
    assert desk.ask(reserve("a", "j-1.1", exclusive())).code == "host_limit"


def test_a_claim_again_is_not_refused_for_the_limit(desk: Desk) -> None:
    desk.register("a", limit=1)
    desk.register("b", limit=1)
    assert isinstance(desk.ask(reserve("b", "j-1.1", exclusive())), Granted)
    desk.register("a", epoch=2, attempts=("j-1.1",), limit=1)
    again = reserve("a", "j-1.1", exclusive(), epoch=2)
    assert isinstance(desk.ask(again), Granted)
    assert desk.ask(reserve("a", "j-2.1", exclusive(), epoch=2)).code == "host_limit"


def test_a_change_of_the_host_limit_is_told(desk: Desk) -> None:
    desk.settle()
    desk.report("a", limit=101)
    pushed = desk.settle()
    told = {(send.address, send.message.limit) for send in pushed}
    assert told == {(b"a", 101), (b"b", 101)}
    desk.report("b", limit=50)
    assert desk.settle() == []


def test_a_reserve_costs_the_same_with_many_rows(desk: Desk) -> None:
    desk.register("a", limit=10_000)
    for number in range(1, 2_001):
        granted = desk.ask(reserve("a", f"j-{number}.1", demand(0.01, 1)))
        assert isinstance(granted, Granted)
    load = desk.machine.state.loads["gpu0"]
    assert (load.rows, load.memory_mib, load.utilization_units) == (2_000, 2_000, 20 * 10**9)
    for number in range(1, 2_001):
        desk.release(f"j-{number}.1")
    assert desk.machine.state.loads == {}


def test_denied_words_name_who_is_in_the_way(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", demand(10.0)))
    desk.ask(reserve("a", "j-2.1", demand(10.0)))
    denied = desk.ask(reserve("b", "j-1.1", exclusive("gpu0")))
    assert isinstance(denied, Denied)
    assert denied.detail == "device gpu0 is held by 2 allocations; this one needs it alone"
