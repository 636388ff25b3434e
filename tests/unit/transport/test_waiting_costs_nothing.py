"""A client that waits while no scheduler is there sleeps."""

from __future__ import annotations

import time

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.transport.poller import Poller
from praxist_zmq.transport.request import Requester


def test_a_client_sleeps_while_the_scheduler_is_away() -> None:
    def find() -> str:
        raise PraxistError("scheduler_restarting", "away")

    looks = 0

    def clock() -> int:
        nonlocal looks
        looks += 1
        return time.monotonic_ns() // 1_000_000

    requester = Requester(find, clock)
    started = time.monotonic()
    with pytest.raises(PraxistError):
        requester.request(b"{}", "r", timeout_s=1.0, patience_s=60)
    assert time.monotonic() - started > 0.9
    assert looks < 100, "it looked at the clock without a pause"


def test_a_poller_of_nothing_waits_as_long_as_it_was_told() -> None:
    started = time.monotonic()
    assert Poller().wait(50) == set()
    assert time.monotonic() - started > 0.04
