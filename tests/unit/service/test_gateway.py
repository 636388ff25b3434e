"""The gateway process between real clients and a fake broker."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.host.clock import SystemClock
from praxist_zmq.transport.publication import Subscriber
from praxist_zmq.transport.request import Connection, Requester
from tests.support.gateways import FakeBroker, Json, Site, pong_or, site
from tests.support.wait import wait_until

BODY = b'{"request_id":"request-1","request":{"kind":"get_status"}}'
CLOCK = SystemClock().mono_ms


def done(request: Json) -> Json:
    return {"kind": "done"}


@pytest.fixture
def place() -> Iterator[Site]:
    with site() as made:
        yield made


def ask(place: Site, timeout_s: float = 8) -> Json:
    requester = Requester(place.front, CLOCK)
    try:
        return requester.request(BODY, "request-1", timeout_s)
    finally:
        requester.close()


def test_a_request_passes_with_its_senders_credentials(place: Site) -> None:
    broker = place.broker(pong_or(done))
    place.start_gateway()
    assert ask(place) == {"kind": "done"}
    assert broker.users == [f"{os.geteuid()}:{os.getpid()}".encode()]


@pytest.mark.parametrize("told", ["end of file", "signal"])
def test_the_sockets_are_private_and_removed_in_order(place: Site, told: str) -> None:
    pid = place.start_gateway()
    for path in (place.front, place.events):
        assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600
    if told == "signal":
        os.kill(pid, signal.SIGTERM)
        assert place.gateway.wait(60) == 0
    else:
        assert place.end_gateway() == 0
    assert not place.front.exists()
    assert not place.events.exists()


def test_without_a_broker_each_request_is_told_to_come_again(place: Site) -> None:
    place.start_gateway()
    client = Connection(place.front)
    try:
        wait_until(lambda: client.monitor.update() or client.monitor.connected, "connection")
        client.send(BODY)
        reply = wait_until(client.receive, "refusal")[0]
        assert b'"scheduler_restarting"' in reply
        assert b'"request-1"' in reply
    finally:
        client.close()


def test_a_request_survives_brokers_that_die(place: Site) -> None:
    first = place.broker(lambda request: None)
    place.start_gateway()
    requester = Requester(place.front, CLOCK)
    brokers: list[FakeBroker] = []

    def swap() -> str:
        wait_until(lambda: first.requests, "first broker has it")
        first.close()
        brokers.append(place.broker(pong_or(done, epoch=2)))
        return ""

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        assert requester.request(BODY, "request-1", 8) == {"kind": "done"}
        assert requester.connections == 1
    finally:
        thread.join()
        requester.close()
    assert brokers[0].requests[-1]["request_id"] == "request-1"


def test_a_gateway_that_is_killed_is_replaced_under_a_waiting_client(place: Site) -> None:
    broker = place.broker(pong_or(lambda request: done(request) if place.restarted else None))
    place.restarted = False
    place.start_gateway()
    requester = Requester(place.front, CLOCK)

    def restart() -> None:
        wait_until(lambda: broker.requests, "request")
        place.gateway.kill()
        place.gateway.wait()
        place.restarted = True
        place.start_gateway()

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        assert requester.request(BODY, "request-1", 9) == {"kind": "done"}
    finally:
        thread.join()
        requester.close()


def test_publications_pass(place: Site) -> None:
    broker = place.broker(pong_or(done))
    place.start_gateway()
    ask(place)
    subscriber = Subscriber(place.events, [b"events"])
    try:

        def publish() -> list[tuple[bytes, bytes]]:
            broker.publish(b"events", b"{}")
            return subscriber.drain()

        assert wait_until(publish, "publication")[0] == (b"events", b"{}")
    finally:
        subscriber.close()


def test_the_broker_is_told_whether_anybody_listens(place: Site) -> None:
    broker = place.broker(pong_or(done))
    place.start_gateway()
    ask(place)
    assert not broker.audience
    subscriber = Subscriber(place.events, [b"events"])
    try:
        wait_until(lambda: broker.audience, "the first listener is told of")
    finally:
        subscriber.close()
    wait_until(lambda: not broker.audience, "the last listener's end is told of")


def test_it_starts_where_a_dead_gateway_left_its_sockets(place: Site, tmp_path: Path) -> None:
    place.broker(pong_or(done))
    place.start_gateway()
    place.gateway.kill()
    place.gateway.wait()
    assert place.front.exists()
    place.start_gateway()
    assert ask(place) == {"kind": "done"}
