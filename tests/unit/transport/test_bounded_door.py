"""The registry's door: ZeroMQ's own peers are served, and nobody fills its memory."""

from __future__ import annotations

import contextlib
import os
import resource
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from praxist_zmq.protocol.envelope import PREAMBLE
from praxist_zmq.transport import bounded_door, stream
from praxist_zmq.transport.bounded_door import BoundedDoor
from praxist_zmq.transport.front import Incoming
from praxist_zmq.transport.poller import Poller
from praxist_zmq.transport.request import Connection
from praxist_zmq.transport.zmtp import GREETING, Broken, Reader, message
from tests.support import zmtp
from tests.support.wait import wait_until

LARGE = 300_000


@pytest.fixture
def door(sockets: Path) -> Iterator[BoundedDoor]:
    made = BoundedDoor(sockets / "d")
    yield made
    made.close()
    assert list(sockets.iterdir()) == []


@pytest.fixture
def peer(door: BoundedDoor, sockets: Path) -> Iterator[Connection]:
    """A client by ZeroMQ."""
    made = Connection(sockets / "d")
    wait_until(lambda: door.drain() or made.send(b"first"), "the connection")
    wait_until(door.drain, "the first request")
    yield made
    made.close()


def raw(door: BoundedDoor, sockets: Path, kind: bytes = b"DEALER") -> zmtp.RawPeer:
    """A peer by hand; its handshake is over."""
    made = zmtp.RawPeer(sockets / "d")
    made.send(zmtp.GREETING + zmtp.ready(kind))
    door.drain()
    door.drain()
    return made


def flood(door: BoundedDoor, peer: zmtp.RawPeer, piece: bytes, times: int) -> None:
    """Send as much as is taken."""
    peer.socket.setblocking(False)
    for _ in range(times):
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            peer.socket.send(piece)
        assert door.drain() == []


def test_peers_of_zeromq_are_known_by_the_kernel_and_answered(
    door: BoundedDoor, peer: Connection
) -> None:
    poller = Poller()
    poller.register(door)
    for body in (b"{}", b"x" * LARGE):
        assert peer.send(body)
        request: list[Incoming] = []
        while not request:
            assert poller.wait(60_000) == {door}
            request = door.drain()
        assert (request[0].uid, request[0].pid) == (os.geteuid(), os.getpid())
        assert request[0].body == body
        assert door.send(request[0].routing_id, body[::-1])
        assert wait_until(lambda: door.drain() or peer.receive(), "the answer") == [body[::-1]]
    assert poller.wait(0) == set(), "it sleeps when nobody asks"
    assert not door.send(b"99", b"nobody has that id")
    assert door.counters["dropped_peer_gone"] == 1


@pytest.mark.parametrize(
    "piece",
    [
        zmtp.frame(PREAMBLE, more=True) * 500,
        zmtp.frame(b"x" * 200, more=True) * 500,
        b"\x03" + struct.pack(">Q", 2**40) + b"x" * 65_536,
        b"\x04\xff" + b"x" * 255,
        b"\xff" * 65_536,
    ],
    ids=["parts", "small parts", "a huge frame", "commands", "junk"],
)
def test_what_never_ends_closes_its_connection_and_is_kept_nowhere(
    door: BoundedDoor, peer: Connection, sockets: Path, piece: bytes
) -> None:
    rude = raw(door, sockets)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    flood(door, rude, piece, 500)
    assert door.counters["refused_messages"] == 1
    assert rude.closed()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024
    assert peer.send(b"{}")
    assert wait_until(door.drain, "a request of another")[0].body == b"{}"


def test_what_a_user_leaves_unfinished_on_many_connections_is_bounded_together(
    door: BoundedDoor, peer: Connection, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_door, "USER_BYTES_MAX", 1_000_000)
    begun = zmtp.frame(PREAMBLE, more=True) + b"\x02" + struct.pack(">Q", LARGE) + b"x" * 60_000
    peers = []
    for _ in range(20):
        peers.append(raw(door, sockets))
        flood(door, peers[-1], begun, 1)
        flood(door, peers[-1], b"x" * 60_000, 3)
    assert door.counters["refused_messages"] >= 10
    assert peer.send(b"{}")
    assert wait_until(door.drain, "a request of another")[0].body == b"{}"
    for made in peers:
        made.close()


def test_a_peer_that_reads_nothing_loses_answers_and_no_more_waits_than_may(
    door: BoundedDoor, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_door, "USER_BYTES_MAX", 1_000_000)
    monkeypatch.setattr(stream, "WAITING_BYTES_MAX", 1_000_000)
    lazy = raw(door, sockets)
    lazy.send(zmtp.frame(PREAMBLE, more=True) + zmtp.frame(b"{}"))
    request = wait_until(door.drain, "its request")[0]
    sent = [door.send(request.routing_id, b"x" * 100_000) for _ in range(100)]
    assert sent.count(True) < 20
    assert door.counters["dropped_slow_peer"] == sent.count(False)
    lazy.close()


def test_silent_connections_give_way_and_a_user_has_so_many(
    door: BoundedDoor, peer: Connection, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_door, "CONNECTIONS_A_USER", 4)
    silent = [zmtp.RawPeer(sockets / "d") for _ in range(6)]
    for _ in silent:
        door.drain()
    assert silent[0].closed(), "the eldest gave way"
    assert peer.send(b"{}")
    assert wait_until(door.drain, "a request of one that is ready")[0].body == b"{}"
    for made in silent:
        made.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        zmtp.GREETING + zmtp.ready(b"SUB"),
        zmtp.GREETING + zmtp.frame(PREAMBLE, more=True) + zmtp.frame(b"{}"),
        zmtp.GREETING[:12] + b"CURVE".ljust(20, b"\0") + b"\0" * 32,
    ],
    ids=["no ZMTP", "another socket", "no handshake", "another mechanism"],
)
def test_whoever_is_no_peer_of_ours_is_closed(
    door: BoundedDoor, sockets: Path, sent: bytes
) -> None:
    stranger = zmtp.RawPeer(sockets / "d")
    stranger.send(sent)
    door.drain()
    assert door.drain() == []
    assert stranger.closed()
    assert door.counters["refused_messages"] == 1


@given(st.lists(st.binary(max_size=300), max_size=6), st.data())
def test_messages_come_whole_however_the_bytes_are_cut(
    bodies: list[bytes], data: st.DataObject
) -> None:
    sent = GREETING + zmtp.READY + b"".join(message((PREAMBLE, body)) for body in bodies)
    reader, found = Reader(2, 1_000), []
    at = 0
    while at < len(sent):
        size = data.draw(st.integers(1, 200))
        found += reader.take(sent[at : at + size])
        at += size
    assert found == [(PREAMBLE, body) for body in bodies]
    assert reader.kept == 0


@given(st.binary(max_size=400))
def test_junk_is_refused_or_waited_for_and_never_more(junk: bytes) -> None:
    reader = Reader(2, 1_000)
    with contextlib.suppress(Broken):
        list(reader.take(GREETING + zmtp.READY))
        for parts in reader.take(junk):
            assert len(parts) <= 2
    assert reader.kept <= len(junk)
