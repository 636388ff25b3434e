"""What a broken connection delivers late changes nothing at the claim registry."""

from __future__ import annotations

from typing import Any

import pytest

from praxist_zmq.protocol.claims import Granted, OfRun, RegisterRun, Release, ReportLoad
from tests.support.claim_desk import A, Desk
from tests.support.claims import claim_lease, exclusive, reserve, run_key, run_row


@pytest.fixture
def desk() -> Any:
    desk = Desk()
    desk.register("a")
    desk.register("b")
    yield desk
    desk.check()


def test_late_copies_of_granted_requests_change_nothing(desk: Desk) -> None:
    first = RegisterRun(registration=1, run=run_row("a", epoch=2), attempts=())
    desk.ask(first, "register-1")
    take = reserve("a", "j-1.1", exclusive("gpu0"), epoch=2)
    desk.ask(take, "reserve-1")
    desk.ask(first, "register-1")
    assert desk.held() == {(A, "j-1.1")}, "a late registration released a newer row"
    desk.release("j-1.1", epoch=2, request_id="release-1")
    assert desk.ask(take, "reserve-1").code == "conflict"
    assert desk.held() == set(), "a late reserve took a device for an attempt that is over"
    assert isinstance(desk.ask(take, "reserve-2"), Granted)
    assert isinstance(desk.release("j-1.1", epoch=2, request_id="release-1"), Granted)
    assert desk.held() == {(A, "j-1.1")}, "a late release freed a newer hold"


def test_a_late_copy_of_a_denied_request_holds_nothing(desk: Desk) -> None:
    """Its run has made another plan since, and would never give the room back."""
    desk.ask(reserve("b", "j-1.1", exclusive("gpu0"), epoch=1))
    take = reserve("a", "j-1.1", exclusive("gpu0"))
    assert desk.ask(take, "reserve-1").code == "conflict"
    offer = claim_lease("a", 1, exclusive("gpu0"))
    assert desk.ask(offer, "lease-1").code == "conflict"
    desk.ask(Release(registration=1, run_key=run_key("b"), epoch=1, attempt="j-1.1"))
    denied = desk.ask(take, "reserve-1")
    assert denied.code == "conflict"
    assert not denied.view.allocations, "with what is so now"
    assert desk.ask(offer, "lease-1").code == "conflict"
    assert desk.held() == set()
    assert isinstance(desk.ask(take, "reserve-2"), Granted)


def test_what_waited_in_a_lost_connection_changes_nothing(desk: Desk) -> None:
    """Its broker lost the link, forgot what it had asked, and registered on another one. None of
    the request ids was seen before (`bin/simulate --seed 52154`)."""

    def anew(registration: int, *attempts: str) -> RegisterRun:
        return RegisterRun(run=run_row("a"), registration=registration, attempts=attempts)

    def under(registration: int, request: OfRun) -> OfRun:
        return request.model_copy(update={"registration": registration})

    desk.ask(anew(1))
    desk.ask(anew(3), address=b"a3")
    desk.settle()
    for late in (
        reserve("a", "j-1.1", exclusive("gpu0")),
        claim_lease("a", 1, exclusive("gpu0")),
        ReportLoad(registration=1, run_key=A, epoch=1, running=7, queued=7, limit=7),
    ):
        assert desk.ask(under(2, late), address=b"a2").code == "stale_epoch"
    assert desk.held() == set()
    assert desk.settle() == [], "and no news of it"
    take = under(3, reserve("a", "j-1.1", exclusive("gpu0")))
    assert isinstance(desk.ask(take, address=b"a3"), Granted)
    late = desk.ask(
        under(2, Release(registration=1, run_key=A, epoch=1, attempt="j-1.1")), address=b"a2"
    )
    assert late.code == "stale_epoch"
    assert desk.ask(anew(2), address=b"a2").code == "stale_epoch"
    assert desk.held() == {(A, "j-1.1")}, "freed by a release, or a list, of long ago"
    desk.ask(reserve("b", "j-1.1", exclusive("gpu1")), address=b"b")
    told = {push.address for push in desk.settle()}
    assert told == {b"a3", b"b"}, "the broker listens where it registered last"
    desk.register("a", epoch=2, attempts=("j-1.1",))
    assert desk.held() >= {(A, "j-1.1")}, "the next broker counts from the beginning"
