"""FrontDoor, Publisher, Subscriber, Requester and the small pure parts."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest
import zmq

from praxist_zmq.errors import PraxistError
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.protocol.codec import decode_reply
from praxist_zmq.protocol.envelope import PREAMBLE
from praxist_zmq.transport import context
from praxist_zmq.transport.correlation import peek_request_id
from praxist_zmq.transport.front import FrontDoor, refusal_body
from praxist_zmq.transport.poller import Poller
from praxist_zmq.transport.publication import Publisher, Subscriber
from praxist_zmq.transport.request import AsyncRequester, Connection, Requester
from praxist_zmq.transport.zap import ConnectionQuota, parse_address
from tests.support import zmtp
from tests.support.wait import wait_until

CLOCK = SystemClock().mono_ms


def dealer(path: Path) -> zmq.Socket[bytes]:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(f"ipc://{path}")
    return socket


def test_a_request_arrives_with_kernel_credentials_and_is_answered(sockets: Path) -> None:
    door, client = FrontDoor(sockets / "f"), dealer(sockets / "f")
    try:
        client.send_multipart([PREAMBLE, b"{}"])
        request = wait_until(door.drain, "request")[0]
        assert (request.uid, request.pid, request.body) == (os.geteuid(), os.getpid(), b"{}")
        assert door.send(request.routing_id, b"answer")
        assert client.recv_multipart() == [PREAMBLE, b"answer"]
    finally:
        client.close()
        door.close()
    assert list(sockets.iterdir()) == []


@pytest.mark.parametrize(
    ("frames", "counter"),
    [
        ([b""], "refused_frames"),
        ([PREAMBLE], "refused_frames"),
        ([PREAMBLE, b"{}", b""], "refused_frames"),
        ([PREAMBLE, *[b"x"] * 50], "refused_frames"),
        ([b"", b""], "refused_preamble"),
        ([b"hello", b"{}"], "refused_preamble"),
        ([b"praxist-zmq/x", b"{}"], "refused_preamble"),
        ([b"p" * 1_000_000, b"{}"], "refused_preamble"),
    ],
)
def test_what_is_no_message_of_ours_is_refused(
    sockets: Path, frames: list[bytes], counter: str
) -> None:
    door, client = FrontDoor(sockets / "f"), dealer(sockets / "f")
    try:
        client.send_multipart(frames)
        client.send_multipart([PREAMBLE, b"good"])
        assert [r.body for r in wait_until(door.drain, "the good one")] == [b"good"]
        assert door.counters[counter] == 1
    finally:
        client.close()
        door.close()


def test_another_version_is_told_so(sockets: Path) -> None:
    door, client = FrontDoor(sockets / "f"), dealer(sockets / "f")
    try:
        client.send_multipart([b"praxist-zmq/2", b"{}"])
        wait_until(lambda: door.drain() or door.counters["refused_version"], "refusal")
        reply = decode_reply(client.recv_multipart()[1])
        assert reply.request_id is None
        assert reply.reply.kind == "refusal"
        assert reply.reply.code == "protocol_mismatch"
    finally:
        client.close()
        door.close()


def test_a_slow_reader_loses_its_own_replies_only(sockets: Path) -> None:
    door = FrontDoor(sockets / "f")
    slow, quick = dealer(sockets / "f"), dealer(sockets / "f")
    slow.setsockopt(zmq.RCVHWM, 1)
    try:
        slow.send_multipart([PREAMBLE, b"slow"])
        slow_id = wait_until(door.drain, "slow")[0].routing_id
        quick.send_multipart([PREAMBLE, b"quick"])
        quick_id = wait_until(door.drain, "quick")[0].routing_id
        sent = sum(door.send(slow_id, b"x" * 1_000) for _ in range(10_000))
        assert sent < 10_000
        assert door.counters["dropped_slow_peer"] == 10_000 - sent
        assert door.send(quick_id, b"answer")
        assert quick.recv_multipart() == [PREAMBLE, b"answer"]
    finally:
        slow.close()
        quick.close()
        door.close()


def test_two_clients_that_force_one_routing_id_do_not_share_replies(sockets: Path) -> None:
    door = FrontDoor(sockets / "f")
    ends = []
    try:
        for text in (b"one", b"two"):
            end: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
            end.setsockopt(zmq.LINGER, 0)
            end.setsockopt(zmq.IDENTITY, b"same")
            end.connect(f"ipc://{sockets / 'f'}")
            ends.append(end)
            end.send_multipart([PREAMBLE, text])
            if text == b"one":
                request = wait_until(door.drain, "first")[0]
        assert door.send(request.routing_id, b"for one")
        assert ends[0].recv_multipart() == [PREAMBLE, b"for one"]
        assert not ends[1].poll(200)
    finally:
        for end in ends:
            end.close()
        door.close()


def test_sockets_are_private_whatever_the_umask(sockets: Path) -> None:
    before = os.umask(0)
    try:
        door = FrontDoor(sockets / "f")
        publisher = Publisher(sockets / "e")
    finally:
        os.umask(before)
    try:
        for name in ("f", "e"):
            assert stat.S_IMODE(os.lstat(sockets / name).st_mode) == 0o600
    finally:
        door.close()
        publisher.close()


def test_a_file_at_the_path_is_left_alone(sockets: Path) -> None:
    (sockets / "f").write_text("precious")
    with pytest.raises(PraxistError) as caught:
        FrontDoor(sockets / "f")
    assert caught.value.code == "unsafe_path"
    assert (sockets / "f").read_text() == "precious"
    (sockets / "g").symlink_to(sockets / "nowhere")
    with pytest.raises(PraxistError) as caught:
        Publisher(sockets / "g")
    assert caught.value.code == "unsafe_path"


def test_a_stale_socket_is_replaced_and_a_successor_is_not_removed(sockets: Path) -> None:
    first = FrontDoor(sockets / "f")
    second = FrontDoor(sockets / "f")
    first.close()
    assert (sockets / "f").exists()
    second.close()
    assert not (sockets / "f").exists()


def test_a_long_path_is_refused_by_name(sockets: Path) -> None:
    with pytest.raises(PraxistError) as caught:
        FrontDoor(sockets / ("x" * 108))
    assert caught.value.code == "path_unusable"


def test_another_user_is_kept_out(sockets: Path) -> None:
    door = FrontDoor(sockets / "f", uids=frozenset({os.geteuid() + 1}))
    client = Connection(sockets / "f")
    try:
        wait_until(lambda: client.monitor.update() or client.monitor.refused, "denial")
        assert not client.monitor.connected
        assert door.counters["connections_denied"] >= 1
        assert door.counters["connections_admitted"] == 0
    finally:
        client.close()
        door.close()


def test_the_quota_of_connections() -> None:
    quota = ConnectionQuota(burst=3, per_second=2)
    assert [quota.allow(7, 0) for _ in range(4)] == [True, True, True, False]
    assert quota.allow(8, 0)
    assert [quota.allow(7, 500), quota.allow(7, 500)] == [True, False]
    assert [quota.allow(7, 60_000) for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(
    "address",
    [b"", b"127.0.0.1", b"localhost:1:2", b"localhost:1:2:3:4", b"localhost:-1:2:3", b"x:1:2:3"],
)
def test_an_address_of_another_form_is_denied(address: bytes) -> None:
    assert parse_address(address) is None


def test_publications_reach_their_topic(sockets: Path) -> None:
    publisher = Publisher(sockets / "e")
    subscriber = Subscriber(sockets / "e", [b"events"])
    poller = Poller()
    poller.register(subscriber)
    try:

        def publish() -> list[tuple[bytes, bytes]]:
            publisher.publish(b"other", b"no")
            publisher.publish(b"events", b"yes")
            poller.wait(20)
            return subscriber.drain()

        assert set(wait_until(publish, "publication")) == {(b"events", b"yes")}
    finally:
        subscriber.close()
        publisher.close()


def test_request_ids_are_found_without_parsing() -> None:
    assert peek_request_id(b'{"request_id": "abcdefgh", "request": {}}') == "abcdefgh"
    assert peek_request_id(b'{"request_id":null,"reply":{}}') is None
    assert peek_request_id(b"[" * 100_000) is None
    assert peek_request_id(b'{"request": {}, "request_id": "abcdefgh"}') is None


class FakeScheduler:
    """Answers requests behind a real door, in a thread, as scripted. A fake of the broker."""

    def __init__(self, path: Path, answer: object) -> None:
        self.path, self._answer, self._stop = path, answer, threading.Event()
        self.bodies: list[bytes] = []
        self._thread = threading.Thread(target=self._serve)
        self._ready = threading.Event()
        self._thread.start()
        assert self._ready.wait(60)

    def _serve(self) -> None:
        door = FrontDoor(self.path)
        poller = Poller()
        poller.register(door)
        self._ready.set()
        while not self._stop.is_set():
            poller.wait(10)
            for request in door.drain():
                self.bodies.append(request.body)
                for body in self._answer(json.loads(request.body)):
                    door.send(request.routing_id, body)
        door.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def done(request: dict[str, object]) -> list[bytes]:
    return [json.dumps({"request_id": request["request_id"], "reply": {"kind": "done"}}).encode()]


BODY = b'{"request_id": "request-1", "request": {"kind": "get_status"}}'


def test_late_and_strange_replies_are_dropped(sockets: Path) -> None:
    late = b'{"request_id": "request-0", "reply": {"kind": "pong"}}'
    scheduler = FakeScheduler(sockets / "f", lambda request: [late, *done(request)])
    requester = Requester(sockets / "f", CLOCK)
    try:
        assert requester.request(BODY, "request-1", 5) == {"kind": "done"}
        assert requester.late_replies == 1
    finally:
        requester.close()
        scheduler.close()


def test_a_restart_in_between_is_met_by_the_same_request_again(sockets: Path) -> None:
    first = FakeScheduler(sockets / "f", lambda request: [])
    requester = Requester(sockets / "f", CLOCK)
    second: list[FakeScheduler] = []

    def restart() -> None:
        wait_until(lambda: first.bodies, "first sending")
        first.close()
        second.append(FakeScheduler(sockets / "f", done))

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        assert requester.request(BODY, "request-1", 10) == {"kind": "done"}
        assert requester.connections >= 2
    finally:
        thread.join()
        requester.close()
        second[0].close()
    assert first.bodies == [BODY]
    assert second[0].bodies == [BODY]


def test_a_refusal_to_restart_is_met_by_sending_again(sockets: Path) -> None:
    seen: list[object] = []

    def answer(request: dict[str, object]) -> list[bytes]:
        seen.append(request["request_id"])
        if len(seen) < 3:
            return [refusal_body("scheduler_restarting", "not yet", str(request["request_id"]))]
        return done(request)

    scheduler = FakeScheduler(sockets / "f", answer)
    requester = Requester(sockets / "f", CLOCK)
    try:
        assert requester.request(BODY, "request-1", 5) == {"kind": "done"}
        assert seen == ["request-1"] * 3
        assert requester.connections == 1
    finally:
        requester.close()
        scheduler.close()


def test_nobody_there_and_nobody_answering_are_told_apart(sockets: Path) -> None:
    requester = Requester(sockets / "f", CLOCK)
    with pytest.raises(PraxistError) as caught:
        requester.request(BODY, "request-1", 0.3)
    assert caught.value.code == "scheduler_restarting"
    scheduler = FakeScheduler(sockets / "f", lambda request: [])
    try:
        with pytest.raises(PraxistError) as caught:
            requester.request(BODY, "request-1", 1.0)
        assert caught.value.code == "no_answer"
    finally:
        requester.close()
        scheduler.close()


def test_the_async_requester_sends_again_after_a_restart(sockets: Path) -> None:
    requester = AsyncRequester(sockets / "f", lambda: 0)
    assert not requester.send("request-1", BODY)
    scheduler = FakeScheduler(sockets / "f", lambda request: [])
    try:
        wait_until(requester.connected_again, "first connection")
        assert requester.resend(0) == 1
        wait_until(lambda: scheduler.bodies, "first sending")
    finally:
        scheduler.close()
    pushed = b'{"request_id":null,"reply":{"kind":"host_view"}}'
    scheduler = FakeScheduler(sockets / "f", lambda request: [pushed, *done(request)])
    try:
        wait_until(requester.connected_again, "second connection")
        assert requester.resend(0) == 1
        bodies: list[bytes] = []
        wait_until(lambda: bodies.extend(requester.drain()) or len(bodies) == 2, "answers")
        assert bodies[0] == pushed
        assert requester.unanswered == 0
    finally:
        requester.close()
        scheduler.close()


def test_an_answer_that_was_lost_on_a_living_connection_is_asked_for_again(sockets: Path) -> None:
    now = [0]
    asked: list[object] = []

    def answer(request: dict[str, object]) -> list[bytes]:
        asked.append(request["request_id"])
        return [] if len(asked) == 1 else done(request)

    requester = AsyncRequester(sockets / "f", lambda: now[0])
    scheduler = FakeScheduler(sockets / "f", answer)
    try:
        wait_until(requester.connected_again, "the connection")
        assert requester.send("request-1", BODY)
        wait_until(lambda: asked, "the first sending")
        assert requester.resend_at_ms() == 2_000
        now[0] = 1_999
        assert requester.resend() == 0
        now[0] = 2_000
        assert requester.resend() == 1
        assert requester.resend_at_ms() == 4_000
        wait_until(requester.drain, "the answer")
        assert (requester.unanswered, requester.resend_at_ms()) == (0, None)
        now[0] = 9_000
        assert requester.resend() == 0
    finally:
        requester.close()
        scheduler.close()


def test_parts_of_a_message_on_the_events_socket_end_nobody(sockets: Path) -> None:
    """An XPUB takes a last part that looks like a subscription out of its message: a first part is
    left that nothing follows."""
    publisher = Publisher(sockets / "e")
    rude, polite = zmtp.RawPeer(sockets / "e"), zmq.Context.instance().socket(zmq.SUB)
    try:
        assert rude.handshake(b"SUB")
        rude.send(zmtp.frame(b"\x01events"))
        rude.send(zmtp.frame(b"part", more=True) + zmtp.frame(b"\x01events"))
        wait_until(lambda: publisher.update() or publisher.audience(b"events"), "the first")
        polite.setsockopt(zmq.SUBSCRIBE, b"more")
        polite.connect(f"ipc://{sockets / 'e'}")
        wait_until(lambda: publisher.update() or publisher.audience(b"more"), "the other one")
    finally:
        rude.close()
        polite.close(0)
        publisher.close()


def test_without_threads_a_process_says_so_before_zeromq_ends_it(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake is of the kernel's limit, which does not hold for root."""
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def second_fails(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(context, "_proved", [])
    monkeypatch.setattr(threading.Thread, "start", second_fails)
    with pytest.raises(PraxistError) as caught:
        Connection(sockets / "f")
    assert (caught.value.code, caught.value.detail) == ("no_threads", "1 of 3 could be started")
    assert not started[0].is_alive()
