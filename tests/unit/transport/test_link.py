"""The private link: batches both ways, secrets, reconnection, nothing replayed."""

from __future__ import annotations

import select
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from praxist_zmq.transport import parts as parts_module
from praxist_zmq.transport.link import LinkClient, LinkServer
from praxist_zmq.transport.parts import pack, unpack
from praxist_zmq.transport.poller import Poller
from tests.support.wait import wait_until

SECRET = b"s" * 32


def connected(client: LinkClient) -> None:
    wait_until(lambda: client.take().anew, "handshake")


def test_batches_pass_both_ways(sockets: Path) -> None:
    server, client = (
        LinkServer(sockets / "core.sock", SECRET),
        LinkClient(sockets / "core.sock", SECRET),
    )
    try:
        connected(client)
        assert client.send(b"requests", [b"route", b"0:1", b"", b"body"])
        message = wait_until(server.drain, "message")[0]
        assert (message.channel, message.parts) == (b"requests", [b"route", b"0:1", b"", b"body"])
        assert server.send(message.address, b"replies", [b"route", b"answer"])
        taken = wait_until(lambda: (now := client.take()).messages and now, "reply")
        assert taken == (False, [(b"replies", [b"route", b"answer"])])
    finally:
        client.close()
        server.close()
    assert list(sockets.iterdir()) == []


def test_wrong_secret_is_dropped_and_counted_on_both_ends(sockets: Path) -> None:
    server = LinkServer(sockets / "core.sock", SECRET)
    stranger = LinkClient(sockets / "core.sock", b"x" * 32)
    friend = LinkClient(sockets / "core.sock", SECRET)
    try:
        connected(stranger)
        connected(friend)
        assert stranger.send(b"order", [b"evil"])
        assert friend.send(b"report", [b"good"])
        messages = wait_until(server.drain, "the good one")
        assert [m.parts for m in messages] == [[b"good"]]
        wait_until(lambda: server.drain() == [] and server.counters["refused"] == 1, "refusal")
    finally:
        for end in (stranger, friend, server):
            end.close()


def test_sends_while_disconnected_are_dropped_not_replayed(sockets: Path) -> None:
    client = LinkClient(sockets / "core.sock", SECRET)
    server = LinkServer(sockets / "core.sock", SECRET)
    try:
        connected(client)
        server.close()
        wait_until(lambda: not client.send(b"report", [b"lost"]), "loss noticed")
        assert client.counters["dropped"] == 1
        server = LinkServer(sockets / "core.sock", SECRET)
        connected(client)
        assert client.send(b"report", [b"fresh"])
        messages = wait_until(server.drain, "fresh message")
        assert [m.parts for m in messages] == [[b"fresh"]]
    finally:
        client.close()
        server.close()


def test_a_connection_and_a_message_wake_poller_and_descriptor(sockets: Path) -> None:
    client = LinkClient(sockets / "core.sock", SECRET)
    poller = Poller()
    poller.register(client)
    poll = select.epoll()
    poll.register(client.fileno(), select.EPOLLIN)
    server = LinkServer(sockets / "core.sock", SECRET)
    try:
        wait_until(lambda: client in poller.wait(1_000) and client.take().anew, "handshake")
        assert client.send(b"report", [b"1"])
        message = wait_until(server.drain, "message")[0]
        client.take()
        server.send(message.address, b"order", [b"2"])
        assert poll.poll(5)
        order = wait_until(lambda: client.take().messages, "order")
        assert order == [(b"order", [b"2"])]
    finally:
        poll.close()
        client.close()
        server.close()


@pytest.mark.parametrize("nested", [False, True])
def test_a_connection_made_while_one_looks_wakes_again(
    sockets: Path, monkeypatch: pytest.MonkeyPatch, nested: bool
) -> None:
    client = LinkClient(sockets / "core.sock", SECRET)
    poller = Poller()
    # Through its descriptor or as the sockets that it is, as the launcher and the others wait.
    poller.register(client.fileno() if nested else client)
    begin, servers = client._reader.begin, []

    def meanwhile() -> object:
        if not servers:
            servers.append(LinkServer(sockets / "core.sock", SECRET))
            wait_until(lambda: client.send(b"report", [b"early"]), "the handshake")
        return begin()

    monkeypatch.setattr(client._reader, "begin", meanwhile)
    try:
        told = [client.take().anew]
        while not any(told):
            assert poller.wait(60_000), "a connection that nobody was told of"
            told.append(client.take().anew)
    finally:
        client.close()
        servers[0].close()


def test_after_a_look_a_poller_sleeps(sockets: Path) -> None:
    client = LinkClient(sockets / "core.sock", SECRET)
    poller = Poller()
    poller.register(client)
    try:
        for _ in range(2):
            server = LinkServer(sockets / "core.sock", SECRET)
            wait_until(lambda: client in poller.wait(1_000), "the connection made")
            wait_until(lambda: client.take().anew, "the connection told of")
            assert poller.wait(0) == set()
            server.close()
            wait_until(lambda: client in poller.wait(1_000), "the connection lost")
            assert client.take() == (False, [])
            # Attempts to connect again are events too; each is taken in once.
            wait_until(lambda: client.take() == (False, []) and not poller.wait(0), "rest")
    finally:
        client.close()


def test_sending_to_an_address_that_is_gone_answers_false(sockets: Path) -> None:
    server = LinkServer(sockets / "core.sock", SECRET)
    client = LinkClient(sockets / "core.sock", SECRET)
    try:
        connected(client)
        client.send(b"report", [b"1"])
        address = wait_until(server.drain, "message")[0].address
        client.close()
        wait_until(lambda: not server.send(address, b"order", [b"x"]), "unreachable")
        assert server.counters["dropped"] >= 1
    finally:
        server.close()


def test_what_is_sent_right_after_a_connection_is_not_dropped(sockets: Path) -> None:
    server = LinkServer(sockets / "core.sock", SECRET)
    got: list[bytes] = []
    try:
        for number in range(50):
            client = LinkClient(sockets / "core.sock", SECRET)
            try:
                while not client.take().anew:
                    client.send(b"report", [b"too early"])
                assert client.send(b"report", [b"%d" % number])
                while b"%d" % number not in got:
                    got += [part for message in server.drain() for part in message.parts]
            finally:
                client.close()
    finally:
        server.close()


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
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "MESSAGE_BYTES", 10)
    server = LinkServer(sockets / "core.sock", SECRET)
    client = LinkClient(sockets / "core.sock", SECRET)
    parts = [b"%d" % n * 3 for n in range(9)]
    try:
        connected(client)
        assert client.send(b"requests", parts, group=3)
        got: list[list[bytes]] = []
        while sum(map(len, got)) < len(parts):
            got += [message.parts for message in server.drain()]
        assert got == [parts[0:3], parts[3:6], parts[6:9]]
    finally:
        client.close()
        server.close()
