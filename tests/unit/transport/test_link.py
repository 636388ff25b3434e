"""The private link in a poll loop: batches both ways, secrets, reconnection, nothing replayed."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from praxist_zmq.host.clock import SystemClock
from praxist_zmq.transport import parts as parts_module
from praxist_zmq.transport.hop import HopServer
from praxist_zmq.transport.link import LinkClient
from praxist_zmq.transport.parts import pack, unpack
from praxist_zmq.transport.poller import Poller
from tests.support.wait import wait_until

SECRET = b"s" * 32


class Link:
    """A server that comes and goes, and a client that a poller wakes."""

    def __init__(self, sockets: Path) -> None:
        self.path = sockets / "core.sock"
        self.server: HopServer | None = None
        self.client = LinkClient(self.path, SECRET, SystemClock().mono_ms)
        self.poller = Poller()
        self.poller.register(self.client)

    def serve(self) -> HopServer:
        """Let the server be there, and the client be told of it."""
        self.server = HopServer(self.path, SECRET)
        self.poller.register(self.server)
        while True:
            ready = self.poller.wait(60_000)
            assert ready, "nobody was woken"
            if self.server in ready:
                assert self.server.drain() == []
            if self.client in ready and self.client.take().anew:
                return self.server

    def leave(self) -> None:
        """The server goes, and the client sees it."""
        assert self.server is not None
        self.poller.unregister(self.server)
        self.server.close()
        self.server = None
        assert self.client in self.poller.wait(60_000)
        assert self.client.take() == (False, [])

    def close(self) -> None:
        """Both ends."""
        self.client.close()
        if self.server is not None:
            self.server.close()


@pytest.fixture
def link(sockets: Path) -> Iterator[Link]:
    made = Link(sockets)
    yield made
    made.close()
    assert list(sockets.iterdir()) == []


def test_batches_pass_both_ways_and_wake_a_poller(link: Link) -> None:
    server = link.serve()
    assert link.client.send(b"requests", [b"route", b"0:1", b"", b"body"])
    assert link.poller.wait(60_000) == {server}
    (message,) = server.drain()
    assert (message.channel, message.parts) == (b"requests", [b"route", b"0:1", b"", b"body"])
    assert server.send(message.address, b"replies", [b"route", b"answer"])
    assert link.poller.wait(60_000) == {link.client}
    assert link.client.take() == (False, [(b"replies", [b"route", b"answer"])])
    assert link.poller.wait(0) == set(), "after a look it sleeps"


def test_sends_while_disconnected_are_dropped_not_replayed_and_it_connects_again(
    link: Link,
) -> None:
    assert not link.client.send(b"report", [b"lost"])
    for number in range(2):
        server = link.serve()
        assert link.client.send(b"report", [b"%d" % number])
        assert link.poller.wait(60_000) == {server}
        assert [message.parts for message in server.drain()] == [[b"%d" % number]]
        link.leave()
        assert not link.client.send(b"report", [b"lost"])
    assert link.client.counters["dropped"] == 3


def test_its_descriptor_wakes_an_epoll_too(link: Link) -> None:
    poll = select.epoll()
    poll.register(link.client.fileno(), select.EPOLLIN)
    server = link.serve()
    for address in server.addresses():
        server.send(address, b"order", [b"2"])
    assert poll.poll(60)
    assert link.client.take().messages == [(b"order", [b"2"])]
    poll.close()


def test_bytes_without_end_from_a_process_of_ours_are_kept_nowhere(link: Link) -> None:
    """A stranger that can connect: what it sends is bounded before it showed the secret."""
    server = link.serve()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(link.path))
        stranger.setblocking(False)
        for _ in range(2_000):
            with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                stranger.send(b"\xff" * 65_536)
            server.drain()
    assert server.counters["refused"] == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024
    assert link.client.send(b"report", [b"still here"])
    (message,) = wait_until(server.drain, "the message of ours")
    assert message.parts == [b"still here"]


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_packed_parts_come_back_and_a_cut_is_refused(parts: list[bytes]) -> None:
    frame = pack(parts)
    assert unpack(frame) == parts
    for cut in range(1, len(frame)):
        found = unpack(frame[:cut])
        assert found is None or found == parts[: len(found)]
    assert unpack(frame + b"\xff") is None
    assert unpack(b"\xff\xff\xff\xff") is None


def test_more_than_fits_goes_in_several_messages_of_whole_groups(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = link.serve()
    monkeypatch.setattr(parts_module, "MESSAGE_BYTES", 10)
    parts = [b"%d" % n * 3 for n in range(9)]
    assert link.client.send(b"requests", parts, group=3)
    got: list[list[bytes]] = []
    while sum(map(len, got)) < len(parts):
        got += [message.parts for message in server.drain()]
    assert got == [parts[0:3], parts[3:6], parts[6:9]]
