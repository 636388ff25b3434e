"""Fair between runs: who waits is let in before who holds more, and limits rise one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from praxist_zmq.core.claim import ClaimMachine
from praxist_zmq.core.claim_commands import BrokersGone, BrokerUnreachable
from praxist_zmq.core.claim_fair import (
    GUEST_REPORT_MS,
    GUEST_WANTED_DEVICES_MAX,
    WANT_MS,
    Raises,
)
from praxist_zmq.core.claim_state import Watch
from praxist_zmq.protocol.claims import (
    DeregisterRun,
    Envelope,
    Granted,
    RaiseLimit,
    ReportLoad,
    ViewHost,
    Want,
)
from tests.support.claim_desk import Desk
from tests.support.claims import exclusive, facts, reserve, run_key, run_row, shared

SLOT = Want(slot=True)


def device(*names: str) -> Want:
    """A want of devices alone."""
    return Want(slot=False, envelope=exclusive(*names))


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    for name in ("a", "b", "c"):
        desk.register(name, limit=4)
    yield desk
    desk.check()


def take(desk: Desk, name: str, number: int, *devices: str, mono_ms: int = 0) -> str:
    """The code of the refusal, or `granted`."""
    asked = reserve(name, f"j-{number}.1", exclusive(*devices))
    reply = desk.ask(asked, mono_ms=mono_ms)
    return "granted" if isinstance(reply, Granted) else str(reply.code)


def test_a_freed_slot_goes_to_the_run_that_has_fewest(desk: Desk) -> None:
    assert [take(desk, "a", n) for n in (1, 2, 3, 4)] == ["granted"] * 4
    desk.report("b", SLOT)
    desk.release("j-1.1")
    reply = desk.ask(reserve("a", "j-5.1", exclusive()))
    assert reply.code == "fair_share"
    assert reply.detail == (
        "1 that hold less, or as much and were served longer ago, wait for a slot (b), "
        "and 0 of 4 would be left; this run holds 3"
    )
    assert take(desk, "b", 1) == "granted"


def test_as_many_slots_are_left_as_runs_wait(desk: Desk) -> None:
    assert [take(desk, "a", n) for n in (1, 2)] == ["granted"] * 2
    desk.report("b", SLOT)
    assert take(desk, "a", 3) == "granted"
    desk.release("j-3.1")
    desk.report("c", SLOT)
    assert take(desk, "a", 4) == "fair_share"


def test_nothing_is_refused_in_favour_of_who_holds_as_many(desk: Desk) -> None:
    for name in "ab":
        assert [take(desk, name, n) for n in (1, 2)] == ["granted"] * 2
    desk.report("b", SLOT)
    desk.release("j-1.1")
    assert take(desk, "a", 3) == "granted", "b holds 2, and a has 1"


def test_equals_are_served_in_the_order_they_ask(desk: Desk) -> None:
    assert [take(desk, "a", n) for n in (1, 2, 3, 4)] == ["granted"] * 4
    desk.report("b", SLOT)
    desk.report("c", SLOT)
    desk.release("j-1.1")
    assert take(desk, "c", 1) == "granted"
    assert take(desk, "b", 1) == "host_limit"


def test_a_wanted_device_drains_for_who_waits(desk: Desk) -> None:
    assert [take(desk, "a", n, f"gpu{n}") for n in (1, 2)] == ["granted"] * 2
    desk.report("b", device("gpu1", "gpu2"))
    desk.release("j-1.1")
    reply = desk.ask(reserve("a", "j-3.1", exclusive("gpu1")))
    assert reply.code == "fair_share"
    assert take(desk, "a", 4, "gpu3") == "granted", "b does not want that one"
    assert "b waits for device gpu1 and holds 0 with devices" in reply.detail
    desk.release("j-2.1")
    assert take(desk, "b", 1, "gpu1", "gpu2") == "granted"


def test_only_rows_with_devices_count_for_devices(desk: Desk) -> None:
    assert [take(desk, "b", n) for n in (1, 2)] == ["granted"] * 2
    assert take(desk, "a", 1, "gpu0") == "granted"
    desk.report("b", device("gpu1"))
    assert take(desk, "a", 2, "gpu1") == "fair_share", "a holds a device, b holds none"


def test_beside_what_is_wanted_others_may_use_what_is_left(desk: Desk) -> None:
    def part(pct: float) -> Envelope:
        return Envelope(device_uuids=("gpu0",), exclusive=False, memory_mib=10, utilization_pct=pct)

    assert isinstance(desk.ask(reserve("a", "j-1.1", part(40.0))), Granted)
    desk.report("b", Want(slot=False, envelope=part(45.0)))
    assert desk.ask(reserve("a", "j-2.1", part(15.1))).code == "fair_share"
    assert isinstance(desk.ask(reserve("a", "j-3.1", part(15.0))), Granted)


def test_an_unknown_device_is_not_shared_with_who_waits(desk: Desk) -> None:
    assert take(desk, "a", 1, "gpu9") == "granted"
    desk.report("b", Want(slot=False, envelope=shared("gpu0")))
    blind = facts("gpu0", foreign_pct=None)
    assert desk.ask(reserve("a", "j-2.1", shared("gpu0"), seen=blind)).code == "fair_share"
    assert isinstance(desk.ask(reserve("a", "j-3.1", shared("gpu0"))), Granted)


def test_what_runs_already_is_claimed_again_whoever_waits(desk: Desk) -> None:
    desk.register("a", epoch=2, attempts=("j-1.1", "j-2.1"), limit=4)
    desk.report("b", Want(slot=True, envelope=exclusive("gpu1")))
    for number in (1, 2):
        again = reserve("a", f"j-{number}.1", exclusive(f"gpu{number}"), epoch=2, seen=())
        assert isinstance(desk.ask(again), Granted)


def test_a_want_is_over_six_seconds_after_the_last_report(desk: Desk) -> None:
    assert [take(desk, "a", n) for n in (1, 2, 3)] == ["granted"] * 3
    desk.settle()
    desk.report("b", SLOT, mono_ms=1_000)
    assert desk.machine.wake_at_ms() == 1_000 + WANT_MS
    assert take(desk, "a", 4, mono_ms=999 + WANT_MS) == "fair_share"
    desk.report("b", SLOT, mono_ms=2_000)
    assert take(desk, "a", 4, mono_ms=1_999 + WANT_MS) == "fair_share"
    assert take(desk, "a", 4, mono_ms=2_000 + WANT_MS) == "granted"
    desk.settle(2_000 + WANT_MS)
    assert desk.machine.wake_at_ms() is None
    assert desk.ask(ViewHost()).wants == ()


def test_who_is_gone_wants_nothing(desk: Desk) -> None:
    for gone in (
        DeregisterRun(registration=1, run_key=run_key("b"), epoch=1),
        BrokersGone((Watch(run_key("b"), None, run_row("b").broker),)),
        BrokerUnreachable(b"b"),
    ):
        desk.register("b", limit=4)
        desk.report("b", SLOT)
        assert len(desk.ask(ViewHost()).wants) == 1
        desk.ask(gone) if isinstance(gone, DeregisterRun) else desk.fact(gone)
        assert desk.ask(ViewHost()).wants == ()


def test_a_want_is_shown_with_what_counts_against_it(desk: Desk) -> None:
    take(desk, "b", 1)
    take(desk, "b", 2, "gpu0")
    desk.report("b", Want(slot=True, envelope=exclusive("gpu1")))
    slot, devices = desk.ask(ViewHost()).wants
    assert (slot.held, slot.want.slot, slot.want.envelope) == (2, True, None)
    assert (devices.held, devices.want.slot, devices.want.envelope) == (1, False, exclusive("gpu1"))


def test_others_are_told_when_a_want_changes_and_only_then(desk: Desk) -> None:
    desk.settle()
    version = desk.machine.state.version
    desk.report("b", SLOT)
    pushed = desk.settle()
    assert {send.address for send in pushed} == {b"a", b"c"}
    assert len(pushed[0].message.wants) == 1
    for mono_ms in (10, 20, 30):
        desk.report("b", SLOT, mono_ms=mono_ms)
        assert desk.settle(mono_ms) == []
    desk.report("b", device("gpu0"), mono_ms=40)
    assert len(desk.settle(40)) == 2
    desk.report("b", Want(slot=False), mono_ms=50)
    assert len(desk.settle(50)) == 2
    assert desk.settle(50 + WANT_MS) == []
    assert desk.machine.state.version == version


def test_a_registry_that_starts_again_learns_wants_anew(desk: Desk) -> None:
    desk.report("b", SLOT)
    desk.machine = ClaimMachine(desk.machine.snapshot())
    assert desk.ask(ViewHost()).wants == ()
    desk.report("b", SLOT)
    assert len(desk.ask(ViewHost()).wants) == 1


def raise_limit(desk: Desk, name: str, mono_ms: int) -> str:
    """The code of the refusal, or `granted`."""
    asked = RaiseLimit(registration=1, run_key=run_key(name), epoch=1, interval_ms=20_000)
    reply = desk.ask(asked, mono_ms=mono_ms)
    return "granted" if isinstance(reply, Granted) else str(reply.code)


def test_one_limit_rises_an_interval_and_the_longest_refused_goes_first(desk: Desk) -> None:
    assert raise_limit(desk, "a", 0) == "granted"
    assert raise_limit(desk, "b", 1_000) == "not_now"
    assert raise_limit(desk, "c", 2_000) == "not_now"
    assert raise_limit(desk, "a", 20_000) == "not_now", "b waits since 1 s"
    assert raise_limit(desk, "c", 20_500) == "not_now"
    assert raise_limit(desk, "b", 21_000) == "granted"
    assert raise_limit(desk, "c", 40_999) == "not_now"
    assert raise_limit(desk, "a", 41_000) == "not_now"
    assert raise_limit(desk, "c", 41_001) == "granted"


def test_one_run_alone_rises_as_it_likes(desk: Desk) -> None:
    assert [raise_limit(desk, "a", at) for at in (0, 5, 20_000)] == ["granted"] * 3


def test_who_asks_no_more_is_not_waited_for(desk: Desk) -> None:
    assert raise_limit(desk, "a", 0) == "granted"
    assert raise_limit(desk, "b", 1_000) == "not_now"
    assert raise_limit(desk, "c", 2_000) == "not_now"
    assert raise_limit(desk, "c", 41_000) == "not_now"
    assert raise_limit(desk, "c", 41_001) == "granted", "b asked last two intervals ago"
    assert raise_limit(desk, "b", 42_000) == "not_now"
    desk.ask(DeregisterRun(registration=1, run_key=run_key("b"), epoch=1))
    assert raise_limit(desk, "a", 61_001) == "granted"


def test_no_interval_keeps_the_others_from_rising() -> None:
    raises = Raises()
    assert raises.ask("hog", 1, 0) is None
    assert raises.ask("b", 20_000, 100) is not None
    assert raises.ask("hog", 1, 1_001) is not None, "b waits"
    assert raises.ask("b", 20_000, 20_000) is None
    raises = Raises()
    assert raises.ask("a", 20_000, 0) is None
    assert raises.ask("endless", 10**15, 1) is not None
    assert raises.ask("endless", 10**15, 600_000) is None


def test_what_another_user_wants_is_bounded_in_size_and_in_number() -> None:
    """Each view shows it to everybody, and each plan is held against it."""
    desk = Desk(uid=1000)
    desk.register("ours")
    names = [f"theirs-{number}" for number in range(20)]
    for name in names:
        desk.register(name, uid=1001)
    many = exclusive(*(f"gpu{number}" for number in range(50)))

    def report(name: str, want: Want, mono_ms: int = 0, uid: int = 1001) -> Any:
        return desk.ask(
            ReportLoad(
                registration=1, run_key=run_key(name), epoch=1, running=0, queued=0, limit=8,
                want=want,
            ),
            uid=uid, mono_ms=mono_ms,
        )  # fmt: skip

    for name in names:
        assert report(name, Want(slot=False, envelope=many)).kind == "granted"
    assert len(desk.ask(ViewHost()).wants) == GUEST_WANTED_DEVICES_MAX // 50
    assert report("ours", Want(slot=True, envelope=many), uid=1000).kind == "granted"
    assert report(names[0], Want(slot=True)).code == "not_now"
    assert report(names[0], Want(slot=True), mono_ms=GUEST_REPORT_MS).kind == "granted"
    # Nothing is wanted that the user has no room for; the slot still is.
    report(names[9], Want(slot=True, envelope=exclusive(*"abc")), mono_ms=GUEST_REPORT_MS)
    report(names[8], Want(slot=True, envelope=many), mono_ms=GUEST_REPORT_MS)
    report(names[7], Want(slot=True, envelope=many), mono_ms=GUEST_REPORT_MS)
    told = [want for want in desk.ask(ViewHost()).wants if want.run_key == run_key(names[7])]
    assert [(want.want.slot, want.want.envelope) for want in told] == [(True, None)]
    desk.check()
