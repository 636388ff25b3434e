"""Devices that another host scope holds are nobody's at the claim registry, and told."""

from __future__ import annotations

from typing import Any

import pytest

from praxist_zmq.core.claim_commands import DevicesElsewhere
from praxist_zmq.protocol.claims import DeviceElsewhere, Granted
from tests.support.claim_desk import A, Desk
from tests.support.claims import claim_lease, exclusive, reserve

OTHER = DeviceElsewhere(uuid="gpu0", pid=4711, user="dana", scope="/srv/two")
WORDS = "device gpu0 is held by another host scope: process 4711 of user dana, /srv/two"


@pytest.fixture
def desk() -> Any:
    desk = Desk()
    desk.register("a")
    desk.register("b")
    yield desk
    desk.check()


def test_nothing_is_placed_or_offered_there_until_it_is_free(desk: Desk) -> None:
    desk.fact(DevicesElsewhere((OTHER,)))
    denied = desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    assert (denied.code, denied.detail) == ("conflict", WORDS)
    assert denied.view.elsewhere == (OTHER,), "so that the run plans elsewhere"
    assert desk.ask(claim_lease("a", 1, exclusive("gpu0"))).detail == WORDS
    assert isinstance(desk.ask(reserve("a", "j-2.1", exclusive("gpu1"))), Granted)
    desk.settle()
    desk.fact(DevicesElsewhere(()))
    told = desk.settle()
    assert {send.message.elsewhere for send in told} == {()}, "everybody who waits is told"
    assert isinstance(desk.ask(reserve("a", "j-1.1", exclusive("gpu0"))), Granted)


def test_what_was_reserved_is_not_bound_where_another_scope_took_the_device(desk: Desk) -> None:
    """While no registry was there. GO follows the grant, so nothing of it has run."""
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.fact(DevicesElsewhere((OTHER,)))
    denied = desk.bind("j-1.1")
    assert (denied.code, denied.detail) == ("conflict", WORDS)
    assert desk.held() == {(A, "j-1.1")}, "until its run gives it back"


def test_what_runs_already_keeps_its_row(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.bind("j-1.1")
    desk.fact(DevicesElsewhere((OTHER,)))
    assert isinstance(desk.bind("j-1.1"), Granted)
