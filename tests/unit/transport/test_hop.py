"""The hop between gateway and broker: who gets in, whole packets, loss, bounds."""

from __future__ import annotations

import errno
import resource
import select
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from praxist_zmq.errors import PraxistError
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.transport import listener as listener_module
from praxist_zmq.transport import parts as parts_module
from praxist_zmq.transport import stream as stream_module
from praxist_zmq.transport.hop import HELLO, STRANGERS_MAX, HopClient, HopServer, LinkMessage
from praxist_zmq.transport.poller import Poller
from praxist_zmq.transport.stream import Malformed, Packet, Stream
from tests.support.wait import wait_until

SECRET = b"s" * 32
CLOCK = SystemClock().mono_ms


class Both:
    """A server and a client of it, turned by hand."""

    def __init__(self, sockets: Path) -> None:
        self.path = sockets / "hop.sock"
        self.server = HopServer(self.path, SECRET)
        self.client = HopClient(self.path, SECRET, CLOCK)
        self.asked: list[LinkMessage] = []
        self.answered: list[Packet] = []

    def connect(self) -> None:
        wait_until(lambda: self.turn() or self.client.connected_again(), "the welcome")

    def turn(self) -> None:
        self.client.retry()
        self.asked += self.server.drain()
        self.answered += self.client.drain()

    def address(self) -> bytes:
        assert self.client.send(b"audience", [])
        wait_until(lambda: self.turn() or self.asked, "a message")
        return self.asked.pop().address

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
def both(sockets: Path) -> Iterator[Both]:
    made = Both(sockets)
    yield made
    made.close()
    assert list(sockets.iterdir()) == []


def test_messages_pass_both_ways_and_wake_the_poller(both: Both) -> None:
    both.connect()
    assert not both.client.connected_again()
    poller = Poller()
    poller.register(both.server)
    poller.register(both.client)
    assert poller.wait(0) == set()
    assert both.client.send(b"requests", [b"route", b"0:1", b"", b"body"])
    assert poller.wait(5_000) == {both.server}
    both.turn()
    (message,) = both.asked
    assert (message.channel, message.parts) == (b"requests", [b"route", b"0:1", b"", b"body"])
    assert both.server.send(message.address, b"replies", [b"route", b"answer"])
    assert poller.wait(5_000) == {both.client}
    both.turn()
    assert both.answered == [(b"replies", [b"route", b"answer"])]
    assert poller.wait(0) == set()


def test_only_we_may_reach_its_file(both: Both) -> None:
    assert stat.S_IMODE(both.path.stat().st_mode) & 0o077 == 0


def test_what_lies_there_and_is_no_socket_of_ours_stays(sockets: Path) -> None:
    (sockets / "hop.sock").write_text("precious")
    with pytest.raises(PraxistError) as refused:
        HopServer(sockets / "hop.sock", SECRET)
    assert refused.value.code == "unsafe_path"
    assert (sockets / "hop.sock").read_text() == "precious"
    (sockets / "hop.sock").unlink()


def test_a_socket_that_a_dead_broker_left_is_replaced(sockets: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(sockets / "hop.sock"))
    made = Both(sockets)
    made.connect()
    made.close()


def test_a_wrong_secret_is_closed_and_counted(both: Both) -> None:
    stranger = HopClient(both.path, b"x" * 32, CLOCK)
    try:
        wait_until(lambda: both.turn() or both.server.counters["refused"], "the refusal")
        wait_until(lambda: stranger.drain() or stranger.retry_in_ms() is not None, "the loss")
        assert not stranger.connected
        assert not stranger.send(b"requests", [b"evil"])
        both.connect()
        assert both.client.send(b"requests", [b"good"])
        wait_until(lambda: both.turn() or both.asked, "the good one")
        assert [message.parts for message in both.asked] == [[b"good"]]
    finally:
        stranger.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x01\x00\x00\x00\x05",
        b"\x02\x00\x00\x00\x21h",
        b"\x08\x00\x00\x00\x05hello\xff\xff",
        b"\x00\x01\x00\x00" + b"\x05hello" + b"\xff" * 250,
    ],
    ids=["giant", "empty", "cut channel", "long channel", "cut part", "wrong part"],
)
def test_what_is_no_packet_is_closed_and_counted(both: Both, sent: bytes) -> None:
    both.connect()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(both.path))
        stranger.sendall(sent)
        wait_until(lambda: both.turn() or both.server.counters["refused"], "the refusal")
        stranger.settimeout(5)
        assert stranger.recv(1) == b""
    assert both.address()


def test_silent_strangers_cost_a_bounded_number_of_connections(both: Both) -> None:
    strangers = []
    try:
        for _ in range(3 * STRANGERS_MAX):
            strangers.append(socket.socket(socket.AF_UNIX))
            strangers[-1].connect(str(both.path))
            both.turn()
        both.connect()
        assert both.server.counters["refused"] >= STRANGERS_MAX
        strangers[0].settimeout(5)
        assert strangers[0].recv(1) == b""
    finally:
        for stranger in strangers:
            stranger.close()


def test_without_descriptors_a_newcomer_is_turned_away_and_the_rest_goes_on(both: Both) -> None:
    both.connect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX) as stranger:
        resource.setrlimit(resource.RLIMIT_NOFILE, (stranger.fileno() + 1, hard))
        try:
            stranger.connect(str(both.path))
            wait_until(lambda: both.turn() or both.server.counters["refused"], "it turned away")
            assert select.select([both.server], [], [], 0)[0] == []
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert stranger.recv(1) == b""
    assert both.address()


def test_nothing_is_kept_for_a_broker_that_is_away(both: Both) -> None:
    both.connect()
    both.server.close()
    wait_until(lambda: both.client.drain() or not both.client.connected, "the loss")
    assert not both.client.send(b"requests", [b"lost"])
    assert both.client.retry_in_ms() is not None
    both.server = HopServer(both.path, SECRET)
    both.connect()
    assert both.client.retry_in_ms() is None
    assert both.client.send(b"requests", [b"fresh"])
    wait_until(lambda: both.turn() or both.asked, "the fresh one")
    assert [message.parts for message in both.asked] == [[b"fresh"]]
    assert both.client.counters["dropped"] == 1


def test_the_pause_between_attempts_grows_to_its_bound(sockets: Path) -> None:
    now = 1_000
    client = HopClient(sockets / "hop.sock", SECRET, lambda: now)
    pauses = []
    for _ in range(8):
        pauses.append(client.retry_in_ms() or 0)
        now += pauses[-1]
        client.retry()
    client.close()
    assert pauses == [20, 40, 80, 160, 320, 400, 400, 400]


def test_an_end_that_is_gone_is_never_mistaken_for_the_next(both: Both) -> None:
    both.connect()
    address = both.address()
    both.client.close()
    wait_until(lambda: both.server.drain() or not both.server.send(address, b"replies", []), "loss")
    both.client = HopClient(both.path, SECRET, CLOCK)
    both.connect()
    assert both.address() != address
    assert not both.server.send(address, b"replies", [b"not for you"])
    assert both.server.counters["dropped"] >= 1


def test_what_is_not_read_waits_to_a_bound_and_then_comes_whole(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "WAITING_BYTES_MAX", 3_000_000)
    both.connect()
    address = both.address()
    sent = 0
    while both.server.send(address, b"replies", [b"%d" % sent, b"x" * 500_000]):
        sent += 1
    assert 5 <= sent <= 10
    wait_until(lambda: both.turn() or len(both.answered) == sent, "all of it")
    assert [parts[0] for _, parts in both.answered] == [b"%d" % n for n in range(sent)]
    assert all(parts[1] == b"x" * 500_000 for _, parts in both.answered)
    assert both.server.send(address, b"replies", [b"again"])


def test_more_than_fits_goes_in_several_packets_of_whole_groups(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "MESSAGE_BYTES", 10)
    both.connect()
    parts = [b"%d" % n * 3 for n in range(9)]
    assert both.client.send(b"requests", parts, group=3)
    wait_until(lambda: both.turn() or len(both.asked) == 3, "three packets")
    assert [message.parts for message in both.asked] == [parts[0:3], parts[3:6], parts[6:9]]


def test_what_the_other_end_would_refuse_is_not_sent_and_ends_no_connection(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "PACKET_BYTES_MAX", 1_000)
    both.connect()
    address = both.address()
    assert not both.server.send(address, b"replies", [b"r", b"x" * 1_000])
    assert both.server.counters["dropped"] == 1
    assert both.server.send(address, b"replies", [b"r", b"small"])
    wait_until(lambda: both.turn() or both.answered, "the next one")
    assert both.answered == [(b"replies", [b"r", b"small"])]


def test_a_failing_accept_is_not_taken_for_a_lack_of_descriptors(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "NO_DESCRIPTORS", (errno.ENFILE,))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(both.path))
        resource.setrlimit(resource.RLIMIT_NOFILE, (stranger.fileno() + 1, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                wait_until(both.turn, "an accept")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


PACKETS = st.lists(
    st.tuples(st.binary(max_size=32), st.lists(st.binary(max_size=300), max_size=6)), max_size=8
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(packets=PACKETS, cuts=st.lists(st.integers(1, 200), min_size=1, max_size=20))
def test_packets_come_whole_however_the_bytes_are_cut(
    packets: list[Packet], cuts: list[int]
) -> None:
    sending, taking = socket.socketpair()
    with sending, taking:
        out = Stream(sending, 1_000_000)
        assert all(out.send(channel, parts) for channel, parts in packets)
        raw = taking.recv(1_000_000, socket.MSG_DONTWAIT) if packets else b""
    feeding, reading = socket.socketpair()
    with feeding, reading:
        stream = Stream(reading, 1_000_000)
        found: list[Packet] = []
        turn = 0
        while raw:
            size = cuts[turn % len(cuts)]
            feeding.send(raw[:size])
            raw = raw[size:]
            found += stream.read()
            turn += 1
        assert found == packets
        feeding.close()
        assert stream.read() == []
        assert stream.closed


@given(junk=st.binary(min_size=1, max_size=400))
def test_junk_is_refused_or_waited_for_and_never_more(junk: bytes) -> None:
    feeding, reading = socket.socketpair()
    with feeding, reading:
        stream = Stream(reading, 256)
        feeding.send(junk)
        try:
            packets = stream.read()
        except Malformed:
            return
        assert sum(len(channel) + sum(map(len, parts)) for channel, parts in packets) <= len(junk)


def test_the_secret_never_leaves_in_an_answer(both: Both) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(both.path))
        stranger.sendall(b"\x0a\x00\x00\x00" + bytes([len(HELLO)]) + HELLO + b"\0\0\0\0")
        wait_until(lambda: both.turn() or both.server.counters["refused"], "the refusal")
        stranger.settimeout(5)
        assert stranger.recv(100) == b""
