"""Peers that attack the gateway: others are served, memory stays bounded, the broker is safe."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import zmq

from praxist_zmq.errors import PraxistError
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.protocol.envelope import PREAMBLE
from praxist_zmq.transport.hop import HopClient
from praxist_zmq.transport.request import Requester
from tests.support.gateways import SECRET, Json, Site, pong_or, site
from tests.support.wait import wait_until
from tests.support.zmtp import GREETING, RawPeer, frame

CLOCK = SystemClock().mono_ms
BODY = b'{"request_id":"request-1","request":{"kind":"get_status"}}'


@pytest.fixture
def place() -> Iterator[Site]:
    with site() as made:
        made.broker(pong_or(lambda request: {"kind": "done"}))
        yield made


@pytest.fixture
def peers() -> Iterator[list[RawPeer]]:
    made: list[RawPeer] = []
    yield made
    for peer in made:
        peer.close()


def served(place: Site, timeout_s: float = 9) -> bool:
    requester = Requester(place.front, CLOCK)
    try:
        return requester.request(BODY, "request-1", timeout_s) == {"kind": "done"}
    finally:
        requester.close()


def served_at_last(place: Site) -> bool:
    """Served by this gateway or, as a supervisor would have it, by the next."""
    try:
        return served(place, 2)
    except PraxistError:
        if place.gateway.poll() is not None:
            place.start_gateway()
        return False


def peak_mib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmHWM"].split()[0]) // 1024


def connect(place: Site, peers: list[RawPeer]) -> RawPeer:
    peers.append(RawPeer(place.front))
    return peers[-1]


def test_random_bytes(place: Site, peers: list[RawPeer]) -> None:
    pid = place.start_gateway()
    source = random.Random(7)
    for _ in range(60):
        peer = connect(place, peers)
        if source.random() < 0.5:
            peer.handshake()
        peer.send(source.randbytes(source.randint(1, 5_000)))
    assert served(place)
    assert place.gateway.poll() is None
    assert peak_mib(pid) < 200


def test_zmtp_1_reaches_nobody(place: Site, peers: list[RawPeer]) -> None:
    place.start_gateway()
    peer = connect(place, peers)
    peer.send(b"\x06\x00peer1\x06\x01hello" + b"\x0e\x01" + PREAMBLE + b"\x03\x00{}")
    assert peer.closed()
    assert served(place)
    assert [r["request_id"] for r in place.brokers[0].requests] == ["request-1"]


def test_lengths_over_the_limit_are_cut_at_once(place: Site, peers: list[RawPeer]) -> None:
    pid = place.start_gateway()
    for size in (2**62, 2**64 - 1, 64 * 1024 * 1024):
        peer = connect(place, peers)
        assert peer.handshake()
        peer.send(b"\x02" + struct.pack(">Q", size) + b"x" * 10_000)
        assert peer.closed()
    assert served(place)
    assert peak_mib(pid) < 200


def test_shapes_that_are_no_message(place: Site, peers: list[RawPeer]) -> None:
    place.start_gateway()
    good, body = frame(PREAMBLE, more=True), frame(BODY)
    for data in (
        frame(b""),
        frame(PREAMBLE),
        frame(b"", more=True) + frame(b""),
        good + frame(BODY, more=True) + frame(b""),
        good * 49 + body,
        frame(b"praxist-zmq/0x1", more=True) + body,
        b"\x04\x03\x02HI",
        b"\x40\x01x",
    ):
        peer = connect(place, peers)
        assert peer.handshake()
        peer.send(data)
    assert served(place)
    wait_until(lambda: len(place.brokers[0].requests) == 1, "only the good one arrived")


def test_a_message_of_a_million_frames_is_dropped_in_slices(
    place: Site, peers: list[RawPeer]
) -> None:
    pid = place.start_gateway()
    peer = connect(place, peers)
    assert peer.handshake()
    sender = threading.Thread(
        target=peer.send, args=(frame(b"x", more=True) * 1_000_000 + frame(b"x"),)
    )
    sender.start()
    try:
        for _ in range(5):
            assert served(place)
    finally:
        sender.join()
    assert served(place)
    assert place.gateway.pid == pid
    assert place.gateway.poll() is None
    assert peak_mib(pid) < 400


def test_a_message_without_an_end_costs_the_gateway_only(place: Site, peers: list[RawPeer]) -> None:
    pid = place.start_gateway()
    # The gateway's own limit is 1 GiB; a smaller one makes the same end come sooner.
    resource.prlimit(pid, resource.RLIMIT_DATA, (160 * 1024 * 1024,) * 2)
    peer = connect(place, peers)
    assert peer.handshake()
    piece = frame(b"y" * 60_000, more=True)
    while peer.send(piece):
        pass
    with contextlib.suppress(FileNotFoundError, KeyError):  # it may have died of it
        assert peak_mib(pid) < 250
    hop = HopClient(place.hop, bytes.fromhex(SECRET), CLOCK)
    try:
        wait_until(lambda: hop.drain() or hop.connected_again(), "the broker's hop still serves")
    finally:
        hop.close()
    wait_until(lambda: served_at_last(place), "service")


def test_a_deep_body_is_not_parsed_here(place: Site, peers: list[RawPeer]) -> None:
    place.brokers.pop().close()
    pid = place.start_gateway()
    peer = connect(place, peers)
    assert peer.handshake()
    peer.send(frame(PREAMBLE, more=True) + frame(b"[" * 4_000_000))
    assert b"scheduler_restarting" in peer.socket.recv(65_536)
    assert peak_mib(pid) < 200


def test_silent_connections_are_closed_and_others_served(place: Site, peers: list[RawPeer]) -> None:
    place.start_gateway()
    for index in range(400):
        peer = connect(place, peers)
        if index % 2:
            peer.send(GREETING[:11])
    assert served(place)
    assert all(peer.closed() for peer in peers)


def test_running_out_of_descriptors_costs_the_gateway_only(
    place: Site, peers: list[RawPeer]
) -> None:
    place.start_gateway(descriptors=64)
    with contextlib.suppress(ConnectionError, BlockingIOError):
        for _ in range(150):
            connect(place, peers)
    for peer in peers:
        peer.close()
    hop = HopClient(place.hop, bytes.fromhex(SECRET), CLOCK)
    try:
        wait_until(lambda: hop.drain() or hop.connected_again(), "the broker's hop still serves")
    finally:
        hop.close()
    wait_until(lambda: served_at_last(place), "service")


def test_a_process_that_connects_without_end_is_slowed_down(
    place: Site, peers: list[RawPeer]
) -> None:
    place.start_gateway()
    code = (
        "import sys; from pathlib import Path; from tests.support.zmtp import RawPeer\n"
        "made = [RawPeer(Path(sys.argv[1])) for _ in range(1)]\n"
        "results = []\n"
        "for _ in range(700):\n"
        "    peer = RawPeer(Path(sys.argv[1])); results.append(peer.handshake()); peer.close()\n"
        "print(results.count(True), results[0])"
    )
    attack = subprocess.run(
        [sys.executable, "-c", code, str(place.front)], capture_output=True, text=True, timeout=60
    )
    admitted, first = attack.stdout.split()
    assert first == "True", attack.stderr
    assert 400 < int(admitted) < 700
    assert served(place), "another process is not slowed down"


def test_one_that_never_reads_loses_its_replies_only(place: Site) -> None:
    place.start_gateway()
    # Before its link to the broker is up a gateway refuses, as it should.
    assert served(place)
    known = len(place.brokers[0].requests)
    slow: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    slow.setsockopt(zmq.LINGER, 0)
    slow.setsockopt(zmq.RCVHWM, 1)
    slow.setsockopt(zmq.RCVBUF, 4_096)
    slow.connect(f"ipc://{place.front}")
    try:
        for _ in range(10_000):
            slow.send_multipart([PREAMBLE, BODY])
        wait_until(lambda: len(place.brokers[0].requests) >= known + 10_000, "all forwarded")
        assert served(place)
        assert place.gateway.poll() is None
    finally:
        slow.close()


def test_a_stopped_gateway_answers_when_it_goes_on(place: Site) -> None:
    pid = place.start_gateway()
    os.kill(pid, signal.SIGSTOP)
    timer = threading.Timer(2.5, os.kill, (pid, signal.SIGCONT))
    timer.start()
    try:
        assert served(place)
    finally:
        timer.join()
        os.kill(pid, signal.SIGCONT)
    asked = {r["request_id"] for r in place.brokers[0].requests if r["request"]["kind"] != "ping"}
    assert asked == {"request-1"}


def as_another_user(place: Site, code: str) -> str:
    """What a program prints that runs as a user of no name."""
    become = "import os, sys\nos.setgid(12345); os.setuid(12345)\n"
    result = subprocess.run(
        [sys.executable, "-c", code.replace("BECOME\n", become), str(place.front)],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_another_user_is_kept_out(place: Site) -> None:
    place.start_gateway()
    connect = (
        "import socket\nBECOME\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "try:\n    s.connect(sys.argv[1])\n"
        "except PermissionError:\n    print('kept out')\n"
    )
    assert as_another_user(place, connect) == "kept out"
    os.chmod(place.sockets, 0o755)
    os.chmod(place.front, 0o777)
    shake_hands = (
        "from pathlib import Path\nfrom tests.support.zmtp import RawPeer\nBECOME\n"
        "print(RawPeer(Path(sys.argv[1])).handshake())\n"
    )
    assert as_another_user(place, shake_hands) == "False"


def test_replies_carry_nothing_of_another_request(place: Site) -> None:
    broker = place.brokers[0]
    place.start_gateway()

    def ask(number: int, found: list[Json]) -> None:
        requester = Requester(place.front, CLOCK)
        request_id = f"request-{number}"
        body = b'{"request_id":"%s","request":{"kind":"get_status"}}' % request_id.encode()
        for _ in range(20):
            found.append(requester.request(body, request_id, 9))
        assert requester.late_replies == 0
        requester.close()

    found: list[Json] = []
    threads = [threading.Thread(target=ask, args=(n, found)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{"kind": "done"}] * 160
    assert len(broker.requests) == 160
