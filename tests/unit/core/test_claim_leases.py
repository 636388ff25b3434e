"""Leases at the registry: where one is granted, what takes it back, and who is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from praxist_zmq.core.claim import ClaimMachine
from praxist_zmq.core.claim_leases import LEASED_DEVICES_MAX, LEASES_MAX
from praxist_zmq.protocol.claims import DeregisterRun, Envelope, Granted, HostView, ViewHost, Want
from tests.support.claim_desk import Desk
from tests.support.claims import (
    claim_lease,
    exclusive,
    facts,
    lease_name,
    release_lease,
    reserve,
    run_key,
    shared,
    stamp,
)

NONE = exclusive()


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    for name in ("a", "b"):
        desk.register(name, limit=4)
    yield desk
    desk.check()


def claim(desk: Desk, name: str, number: int, envelope: Envelope = NONE, **more: Any) -> str:
    """The code of the refusal, or `granted`."""
    reply = desk.ask(claim_lease(name, number, envelope), address=name.encode(), **more)
    return "granted" if isinstance(reply, Granted) else str(reply.code)


def take(desk: Desk, name: str, number: int, envelope: Envelope = NONE, lease: int = 0) -> None:
    """Real work, which no lease refuses."""
    asked = reserve(name, f"j-{number}.1", envelope)
    if lease:
        asked = asked.model_copy(update={"lease_id": lease_name(lease)})
    reply = desk.ask(asked, address=name.encode())
    assert isinstance(reply, Granted), reply


def leases(desk: Desk) -> list[tuple[str, int]]:
    """Who holds which, oldest first."""
    names = {run_key(name): name for name in "abcdef"}
    view: HostView = desk.ask(ViewHost())
    return [(names[row.run_key], int(row.lease_id.split("-")[1])) for row in view.leases]


def told(desk: Desk, mono_ms: int = 0) -> dict[bytes, int]:
    """Who is pushed a view at the end of the turn, with how many leases."""
    sent: dict[bytes, int] = {}
    for send in desk.settle(mono_ms):
        assert isinstance(send.message, HostView)
        sent[send.address] = len(send.message.leases)
    return sent


def test_a_lease_takes_a_slot_of_its_run_and_of_the_host(desk: Desk) -> None:
    take(desk, "a", 1)
    assert [claim(desk, "a", n) for n in (1, 2, 3)] == ["granted"] * 3
    refused = desk.ask(claim_lease("a", 4, NONE))
    assert refused.code == "concurrency_limit"
    assert "1 allocations and 3 leases; its limit is 4" in refused.detail
    assert refused.view is not None
    assert len(refused.view.leases) == 3
    assert claim(desk, "b", 5) == "host_limit"


def test_two_runs_never_offer_one_device_twice(desk: Desk) -> None:
    assert claim(desk, "a", 1, exclusive("gpu0")) == "granted"
    reply = desk.ask(claim_lease("b", 2, shared("gpu0")))
    assert (reply.code, reply.detail[:28]) == ("conflict", "with what leases hold there,")
    assert claim(desk, "b", 2, exclusive("gpu1")) == "granted"
    assert leases(desk) == [("a", 1), ("b", 2)]


def test_an_offer_fits_beside_allocations_and_offers_by_the_same_sums(desk: Desk) -> None:
    half = Envelope(
        device_uuids=("gpu0",), exclusive=False, memory_mib=30_000, utilization_pct=10.0
    )
    take(desk, "a", 1, half)
    assert claim(desk, "b", 1, half) == "granted"
    assert claim(desk, "b", 2, half) == "conflict"
    assert claim(desk, "b", 3, shared("gpu0")) == "granted"
    assert claim(desk, "b", 4, exclusive("gpu0")) == "conflict"


def test_an_offer_needs_known_figures_to_share(desk: Desk) -> None:
    take(desk, "a", 1, shared("gpu0"))
    unknown = facts("gpu0", foreign_pct=None)
    assert desk.ask(claim_lease("b", 1, shared("gpu0"), seen=unknown)).code == "conflict"
    busy = facts("gpu1", foreign_pct=90.0)
    assert desk.ask(claim_lease("b", 1, shared("gpu1"), seen=busy)).code == "conflict"


@pytest.mark.parametrize("devices", [("gpu0", "gpu0"), ("gpu0",)])
def test_what_says_nothing_is_refused(desk: Desk, devices: tuple[str, ...]) -> None:
    asked = claim_lease("a", 1, shared(*devices), seen=facts("gpu1"))
    assert desk.ask(asked).code == "malformed_request"


def test_asking_again_changes_nothing(desk: Desk) -> None:
    asked, given_back = claim_lease("a", 1, exclusive("gpu0")), release_lease("a", 1)
    for request_id, request in (("claim-1", asked), ("release-1", given_back)):
        first = desk.ask(request, request_id)
        assert isinstance(first, Granted)
        told(desk)
        for again in (request_id, f"{request_id}-again"):
            assert desk.ask(request, again) == first
        assert told(desk) == {}, "nothing changed"
    assert desk.ask(asked, "claim-1").code == "conflict", "a late copy took it again"
    assert leases(desk) == []


def test_a_late_release_does_not_end_a_newer_hold(desk: Desk) -> None:
    claim(desk, "a", 1)
    desk.ask(release_lease("a", 1), "release-1")
    assert claim(desk, "a", 1) == "granted"
    assert isinstance(desk.ask(release_lease("a", 1), "release-1"), Granted)
    assert leases(desk) == [("a", 1)]


def test_one_name_is_one_envelope(desk: Desk) -> None:
    assert claim(desk, "a", 1, exclusive("gpu0")) == "granted"
    assert claim(desk, "a", 1, exclusive("gpu1")) == "conflict"
    assert claim(desk, "b", 1, exclusive("gpu1")) == "granted", "names are of one run"


def test_only_the_run_that_holds_it_gives_it_back(desk: Desk) -> None:
    claim(desk, "a", 1)
    assert isinstance(desk.ask(release_lease("b", 1)), Granted)
    assert leases(desk) == [("a", 1)]
    assert desk.ask(claim_lease("a", 2, NONE, epoch=9)).code == "unknown_run"
    assert desk.ask(claim_lease("a", 2, NONE), uid=1001).code == "not_yours"


def test_its_own_job_replaces_it_in_one_step(desk: Desk) -> None:
    claim(desk, "a", 1, exclusive("gpu0"))
    claim(desk, "a", 2, exclusive("gpu1"))
    take(desk, "a", 1, exclusive("gpu2"), lease=1)
    assert leases(desk) == [("a", 2)]


def test_a_denied_reservation_takes_nothing_back(desk: Desk) -> None:
    take(desk, "b", 1, exclusive("gpu0"))
    claim(desk, "a", 1, exclusive("gpu1"))
    asked = reserve("a", "j-1.1", exclusive("gpu0", "gpu1"))
    denied = desk.ask(asked.model_copy(update={"lease_id": lease_name(1)}))
    assert denied.code == "conflict"
    assert leases(desk) == [("a", 1)]


def test_real_work_ends_what_has_no_room_beside_it_and_no_more(desk: Desk) -> None:
    """W "foreign claim": the device goes to the job, and the offer is over."""
    claim(desk, "a", 1, exclusive("gpu0"))
    claim(desk, "a", 2, shared("gpu1"))
    claim(desk, "a", 3)
    take(desk, "b", 1, shared("gpu0", "gpu1"))
    assert leases(desk) == [("a", 2), ("a", 3)]
    assert told(desk) == {b"a": 2, b"b": 2}


def test_of_those_that_fit_only_apart_the_youngest_stays() -> None:
    desk = Desk()
    for name in ("a", "b"):
        desk.register(name, limit=8)
    part = Envelope(device_uuids=("gpu0",), exclusive=False, memory_mib=1, utilization_pct=30.0)
    assert [claim(desk, "a", n, part) for n in (1, 2, 3)] == ["granted"] * 3
    take(desk, "b", 1, part.model_copy(update={"utilization_pct": 40.0}))
    assert leases(desk) == [("a", 2), ("a", 3)]
    desk.check()


def test_above_its_limit_a_runs_oldest_offer_ends(desk: Desk) -> None:
    desk.register("c", limit=100)
    assert claim(desk, "b", 1) == "granted"
    assert [claim(desk, "a", n) for n in (2, 3, 4)] == ["granted"] * 3
    take(desk, "a", 1)
    assert leases(desk) == [("b", 1), ("a", 2), ("a", 3), ("a", 4)]
    told(desk)
    take(desk, "a", 2)
    assert leases(desk) == [("b", 1), ("a", 3), ("a", 4)]
    assert told(desk) == {b"a": 3, b"b": 3, b"c": 3}, "the run itself is told too"


def test_above_the_hosts_limit_the_oldest_offer_of_anybody_ends(desk: Desk) -> None:
    for number, name in enumerate("abab", start=1):
        assert claim(desk, name, number) == "granted"
    take(desk, "b", 1)
    assert leases(desk) == [("b", 2), ("a", 3), ("b", 4)]
    take(desk, "b", 2)
    assert leases(desk) == [("a", 3), ("b", 4)]


def test_with_spare_room_offers_stay(desk: Desk) -> None:
    claim(desk, "a", 1)
    claim(desk, "b", 2, shared("gpu0"))
    take(desk, "a", 1)
    take(desk, "b", 1, shared("gpu0"))
    assert leases(desk) == [("a", 1), ("b", 2)]


def test_a_full_host_of_offers_refuses_no_real_work(desk: Desk) -> None:
    assert [claim(desk, "a", n, exclusive(f"gpu{n}")) for n in (1, 2, 3, 4)] == ["granted"] * 4
    for number in (1, 2, 3, 4):
        take(desk, "b", number, exclusive(f"gpu{number}"))
    assert leases(desk) == []


def test_it_ends_by_itself(desk: Desk) -> None:
    assert claim(desk, "a", 1, mono_ms=1_000) == "granted"
    assert desk.machine.wake_at_ms() == 61_000
    told(desk, 60_999)
    assert desk.machine.wake_at_ms() == 61_000
    assert told(desk, 61_000) == {b"a": 0, b"b": 0}
    assert desk.machine.wake_at_ms() is None


def test_asking_again_gives_no_more_time(desk: Desk) -> None:
    claim(desk, "a", 1)
    claim(desk, "a", 1, mono_ms=30_000)
    told(desk, 60_000)
    assert leases(desk) == []


def test_one_that_is_over_is_in_nobodys_way(desk: Desk) -> None:
    claim(desk, "a", 1, exclusive("gpu0"))
    assert claim(desk, "b", 2, exclusive("gpu0"), mono_ms=60_000) == "granted"
    assert leases(desk) == [("b", 2)]


def test_it_ends_with_its_broker(desk: Desk) -> None:
    claim(desk, "a", 1)
    claim(desk, "b", 2)
    desk.broker_gone()
    assert leases(desk) == [("b", 2)]
    desk.ask(DeregisterRun(registration=1, run_key=run_key("b"), epoch=1), address=b"b")
    assert leases(desk) == []


def test_it_ends_when_another_broker_takes_over_and_not_when_the_same_comes_back(
    desk: Desk,
) -> None:
    claim(desk, "a", 1)
    desk.register("a", limit=4)
    assert leases(desk) == [("a", 1)]
    reply = desk.register("a", epoch=2, limit=4)
    assert reply.view.leases == ()


def test_a_registry_that_starts_again_has_none(desk: Desk) -> None:
    claim(desk, "a", 1, exclusive("gpu0"))
    again = ClaimMachine(desk.machine.snapshot())
    assert again.settle(stamp()).outbox == []
    desk.machine = again
    assert leases(desk) == []


def test_nothing_is_offered_where_a_job_waits(desk: Desk) -> None:
    desk.register("c", limit=2)
    for number in (1, 2):
        take(desk, "b", number, exclusive(f"gpu{number}"))
    desk.report("b", Want(slot=True, envelope=exclusive("gpu3")))
    assert claim(desk, "a", 1, exclusive("gpu3")) == "fair_share"
    assert claim(desk, "a", 1, exclusive("gpu4")) == "granted", "one slot is left for b"
    reply = desk.ask(claim_lease("c", 2, NONE))
    assert (reply.code, reply.detail) == ("fair_share", "1 wait for a slot (b); 0 would be left")
    desk.report("b")
    assert claim(desk, "c", 2, exclusive("gpu3")) == "granted"


def test_others_are_told_when_one_is_granted_and_given_back(desk: Desk) -> None:
    desk.settle()
    claim(desk, "a", 1)
    assert told(desk) == {b"b": 1}
    desk.ask(release_lease("a", 1))
    assert told(desk) == {b"b": 0}


def test_limits_are_told_as_busy() -> None:
    desk = Desk(uid=1000)
    desk.register("a", limit=10_000)
    desk.register("d", limit=10_000, uid=1001)
    guest = LEASES_MAX // 2
    many = exclusive(*(f"gpu{n}" for n in range(1_000)))
    assert claim(desk, "d", 1, many, uid=1001) == "granted"
    more = exclusive(*(f"other{n}" for n in range(100)))
    assert claim(desk, "d", 2, more, uid=1001) == "busy", LEASED_DEVICES_MAX
    for number in range(2, guest + 1):
        assert claim(desk, "d", number, uid=1001) == "granted"
    assert claim(desk, "d", guest + 1, uid=1001) == "busy"
    for number in range(guest):
        assert claim(desk, "a", number) == "granted"
    assert claim(desk, "a", guest) == "busy"
    take(desk, "a", 1)
