"""Ask and be answered, whatever happens to the connection in between.

A request has an id that its sender chose; the same id may be sent any number of times and means
the same request. So a lost connection, a restarted scheduler or a silent one is met by sending
again. Never decides what a reply means, except the two refusals that say "send it again".
Source: the Lazy Pirate pattern of the ZeroMQ guide, chapter 4, with a DEALER in place of REQ.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from typing import Any

import zmq

from ..errors import PraxistError
from ..protocol.envelope import PREAMBLE
from .context import REPLY_BYTES_MAX, ZSocket, endpoint_of, open_socket, send_now
from .correlation import peek_request_id
from .frames import FrameReader
from .monitor import ConnectionMonitor
from .poller import sleep_ms

PING_MS = 2_000
PONG_MS = 6_000
CONNECT_MS = 2_000
BACKOFF_MS = (50, 200)
RESEND_MS = 2_000
REPLIES_A_TURN = 10_000
SEND_AGAIN_CODES = frozenset({"scheduler_restarting", "busy"})
UNREADABLE_CODES = frozenset({"protocol_mismatch", "malformed_request", "too_large"})


class Connection:
    """One DEALER for one connection: it is closed when that is lost, never reused."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.socket: ZSocket = open_socket(zmq.DEALER, frame_bytes_max=REPLY_BYTES_MAX)
        self.socket.setsockopt(zmq.IMMEDIATE, 1)
        self.monitor = ConnectionMonitor(self.socket)
        self._reader = FrameReader(self.socket)
        self.refused_messages = 0
        self._poller = zmq.Poller()
        for socket in self.sockets:
            self._poller.register(socket, zmq.POLLIN)
        self.socket.connect(endpoint_of(path))

    @property
    def sockets(self) -> tuple[ZSocket, ...]:
        """What `transport.poller` watches: replies, and the connection made and lost."""
        return (self.socket, self.monitor.socket)

    def wait(self, pause_ms: int) -> None:
        """Until something happened here, at most `pause_ms`."""
        self._poller.poll(pause_ms)

    def send(self, body: bytes) -> bool:
        """Send a request; False when nobody is connected or the queue is full."""
        return send_now(self.socket, [PREAMBLE, body])

    def receive(self, limit: int = REPLIES_A_TURN) -> list[bytes]:
        """Bodies of the replies that wait, at most `limit`; never blocks."""
        bodies: list[bytes] = []
        while len(bodies) < limit and (first := self._reader.begin()) is not None:
            body = self._reader.take() if self._reader.more else None
            if body is None or self._reader.more or first.bytes != PREAMBLE:
                self.refused_messages += 1
                if not self._reader.skip():
                    break
                continue
            bodies.append(body.bytes)
        return bodies

    def close(self) -> None:
        """Close it; nothing lingers."""
        self.monitor.close()
        self.socket.close(0)


class _Exchange:
    """One request until its answer: when to send, send again, ping, give up."""

    def __init__(self, body: bytes, request_id: str, now: int) -> None:
        self.body = body
        self.request_id = request_id
        self.sent_on: Connection | None = None
        self.send_at = now
        self.contact = now
        self.next_ping = now + PING_MS
        self.pinged_at: int | None = None
        self.epoch: int | None = None
        self.refusals = 0
        self.was_sent = False

    def again(self, now: int, *, refused: bool = False) -> None:
        """Send it again after a pause of 50 to 200 ms, up to eight times that when refused."""
        factor = 1 << min(self.refusals, 3) if refused else 1
        self.refusals = self.refusals + 1 if refused else 0
        self.sent_on = None
        self.send_at = now + random.randint(*BACKOFF_MS) * factor
        self.pinged_at = None

    def heard(self, now: int) -> None:
        """The other side answered something."""
        self.contact = now
        self.pinged_at = None
        self.next_ping = now + PING_MS


class Requester:
    """A blocking client of a door; one thread, one request at a time.

    `path` is the door's socket, or a function that finds it anew for every connection and may
    raise PraxistError (`no_scheduler`). `mono_ms` is a clock in milliseconds. With `pings`, a
    ping every 2 s asks the thread that does the work whether it lives; no answer within 6 s, a
    lost connection or a changed epoch lead to a new connection or another sending of the same
    request.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Callable[[], str],
        mono_ms: Callable[[], int],
        *,
        pings: bool = True,
    ) -> None:
        self._find: Callable[[], str] = path if callable(path) else lambda: os.fspath(path)
        self._mono_ms = mono_ms
        self._pings = pings
        self._connection: Connection | None = None
        self._opened_at = 0
        self._find_again_at = 0
        self._find_error: PraxistError | None = None
        self.connections = 0
        self.late_replies = 0
        self.silence_ms = 0
        """How long the other side had given no sign when the last request was given up."""

    def request(
        self,
        body: bytes,
        request_id: str,
        timeout_s: float | None = None,
        patience_s: float | None = None,
        *,
        must_exist: bool | None = None,
    ) -> dict[str, Any]:
        """The reply (the `reply` object) to a body that carries `request_id`.

        `timeout_s` bounds the whole; None waits for ever. `patience_s` bounds the time without
        any sign of the other side; None does not. `must_exist` says that a scheduler that is not
        there is an error at once, until it has once been connected to (default: without
        `patience_s` always). Raises PraxistError: what `path` raises, `scheduler_restarting`
        when nobody let us connect in time, `no_answer` when somebody did but did not answer.
        """
        now = self._mono_ms()
        deadline = None if timeout_s is None else now + int(timeout_s * 1_000)
        exchange = _Exchange(body, request_id, now)
        while True:
            now = self._mono_ms()
            self._check_time(exchange, now, deadline, patience_s)
            patient = patience_s is not None and (not must_exist or exchange.was_sent)
            self._advance(exchange, now, patient=patient)
            self._wait(exchange, now, deadline)
            now = self._mono_ms()
            for answer in self._take(exchange, now):
                reply = self._sort(exchange, answer, now)
                if reply is not None:
                    return reply

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _check_time(
        self, exchange: _Exchange, now: int, deadline: int | None, patience_s: float | None
    ) -> None:
        impatient = patience_s is not None and now - exchange.contact >= patience_s * 1_000
        if not impatient and (deadline is None or now < deadline):
            return
        self.silence_ms = now - exchange.contact
        if exchange.sent_on is not None:
            raise PraxistError("no_answer", "it was reached but did not answer in time")
        if self._find_error is not None:
            raise PraxistError("scheduler_restarting", self._find_error.detail)
        raise PraxistError("scheduler_restarting", "its socket takes no connection")

    def _advance(self, exchange: _Exchange, now: int, *, patient: bool) -> None:
        """Connect, send, ping: whatever is due."""
        connection = self._connection
        if connection is not None:
            connection.monitor.update()
            silent = exchange.pinged_at is not None and now - exchange.pinged_at >= PONG_MS
            waited = not connection.monitor.connected and now - self._opened_at >= CONNECT_MS
            if connection.monitor.lost or silent or waited:
                self._drop()
                exchange.again(now)
                connection = None
        if connection is None:
            connection = self._open(now, patient=patient)
        if connection is None or not connection.monitor.connected:
            return
        if exchange.sent_on is not connection and now >= exchange.send_at:
            if not connection.send(exchange.body):
                exchange.send_at = now + BACKOFF_MS[0]
                return
            exchange.sent_on = connection
            exchange.was_sent = True
            exchange.next_ping = now + PING_MS
        if self._pings and exchange.sent_on is connection and now >= exchange.next_ping:
            self._ping(exchange, connection, now)

    def _open(self, now: int, *, patient: bool) -> Connection | None:
        if now < self._find_again_at:
            return None
        try:
            path = self._find()
        except PraxistError as error:
            self._find_error = error
            if not patient and error.code != "scheduler_restarting":
                raise
            self._find_again_at = now + BACKOFF_MS[1]
            return None
        self._find_error = None
        self._connection = Connection(path)
        self._opened_at = now
        self.connections += 1
        return self._connection

    def _ping(self, exchange: _Exchange, connection: Connection, now: int) -> None:
        body = {"request_id": f"ping-{now:016d}", "request": {"kind": "ping"}}
        if connection.send(json.dumps(body).encode()) and exchange.pinged_at is None:
            exchange.pinged_at = now
        exchange.next_ping = now + PING_MS

    def _wait(self, exchange: _Exchange, now: int, deadline: int | None) -> None:
        connection = self._connection
        if connection is None:
            wake = self._find_again_at
        elif not connection.monitor.connected:
            wake = self._opened_at + CONNECT_MS
        elif exchange.sent_on is not connection:
            wake = exchange.send_at
        elif self._pings:
            wake = exchange.next_ping
        else:
            wake = now + PING_MS
        if deadline is not None:
            wake = min(wake, deadline)
        pause = max(1, min(wake - now, PING_MS))
        if connection is not None:
            connection.wait(pause)
        else:
            sleep_ms(pause)

    def _take(self, exchange: _Exchange, now: int) -> list[dict[str, Any]]:
        if self._connection is None:
            return []
        answers = []
        # One reply is what is waited for; to look for another costs as much as to take it.
        for body in self._connection.receive(1):
            try:
                answer = json.loads(body)
            except (ValueError, RecursionError):
                raise PraxistError("protocol_mismatch", "the answer is not JSON") from None
            if not isinstance(answer, dict) or not isinstance(answer.get("reply"), dict):
                raise PraxistError("protocol_mismatch", "the answer is no reply envelope")
            answers.append(answer)
        return answers

    def _sort(self, exchange: _Exchange, answer: dict[str, Any], now: int) -> dict[str, Any] | None:
        """The reply, when `answer` is the one; else what it says about the other side."""
        request_id: object = answer.get("request_id")
        reply: dict[str, Any] = answer["reply"]
        code = reply.get("code") if reply.get("kind") == "refusal" else None
        pinged = isinstance(request_id, str) and request_id.startswith("ping-")
        if code in SEND_AGAIN_CODES and (request_id in (None, exchange.request_id) or pinged):
            exchange.again(now, refused=request_id is not None)
            if code == "busy":
                exchange.contact = now
            return None
        if request_id == exchange.request_id or (request_id is None and code in UNREADABLE_CODES):
            return reply
        if not pinged:
            self.late_replies += 1
            return None
        exchange.heard(now)
        epoch = reply.get("epoch")
        if exchange.epoch is not None and epoch != exchange.epoch:
            exchange.again(now)
        exchange.epoch = epoch if isinstance(epoch, int) else exchange.epoch
        return None


class AsyncRequester:
    """A client for a poll loop: send now, drain later, send again what stays unanswered.

    What was sent and not answered is kept, and `resend` sends it again, since a queue that is full
    on either side loses messages while the connection lives. After `connected_again` the owner
    says what the other side must know; then it may `forget` what it asked before. Pushed messages
    (a null request id) come out of `drain` like replies. `mono_ms` is a clock in milliseconds.
    """

    def __init__(self, path: str | os.PathLike[str], mono_ms: Callable[[], int]) -> None:
        self._connection = Connection(path)
        self._mono_ms = mono_ms
        self._pending: dict[str, tuple[int, bytes]] = {}
        """Request id -> (when it was last sent, body), oldest first."""
        self.late_replies = 0

    @property
    def unanswered(self) -> int:
        """How many requests wait for an answer."""
        return len(self._pending)

    @property
    def sockets(self) -> tuple[ZSocket, ...]:
        """What `transport.poller` watches."""
        return self._connection.sockets

    @property
    def connected(self) -> bool:
        """Whether a handshake was complete when `connected_again` was last asked.

        It does not look by itself: a poller does not wake again for what was seen here.
        """
        return self._connection.monitor.connected

    def connected_again(self) -> bool:
        """True once after each completed handshake (several at once count as one)."""
        return self._connection.monitor.made_anew()

    def send(self, request_id: str, body: bytes) -> bool:
        """Send a request and keep it until it is answered; False when it could not leave yet."""
        self._pending[request_id] = (self._mono_ms(), body)
        return self._connection.send(body)

    def resend(self, after_ms: int = RESEND_MS) -> int:
        """Send again what was sent `after_ms` ago and is not answered, in the same order."""
        now = self._mono_ms()
        due: list[tuple[str, bytes]] = []
        for request_id, (sent_at, body) in self._pending.items():
            if now - sent_at < after_ms:
                break
            due.append((request_id, body))
        for request_id, body in due:
            del self._pending[request_id]
            self._pending[request_id] = (now, body)
        return sum(self._connection.send(body) for _, body in due)

    def resend_at_ms(self) -> int | None:
        """When `resend` has something to do: nothing else may wake its owner then."""
        for sent_at, _ in self._pending.values():
            return sent_at + RESEND_MS
        return None

    def forget(self) -> None:
        """Want no answer to anything asked so far."""
        self._pending.clear()

    def drain(self) -> list[bytes]:
        """Bodies of replies to pending requests and of pushed messages; never blocks."""
        wanted = []
        for body in self._connection.receive():
            request_id = peek_request_id(body)
            if request_id is None or self._pending.pop(request_id, None) is not None:
                wanted.append(body)
            else:
                self.late_replies += 1
        return wanted

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
