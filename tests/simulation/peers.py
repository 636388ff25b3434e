"""A fake peer, with the real client's rules: send again under the same id until it is answered.

After a lost connection, a restarted scheduler or its silence the same request goes out again; a
wait for a lease follows publications by the rule of the real client (`LeaseWait._take`).
What it does is a script: a generator that yields what it waits for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from praxist_zmq.client.lease import FIRST_LOOK_MS, SILENCE_MS, LeaseWait
from praxist_zmq.protocol.codec import encode
from praxist_zmq.protocol.replies import LeaseReply, Pong, Refusal
from praxist_zmq.protocol.requests import Ping, RegisterIdle
from praxist_zmq.transport.request import BACKOFF_MS, PING_MS, PONG_MS, SEND_AGAIN_CODES

from .shell import SimProcess
from .wire import FakeWire

if TYPE_CHECKING:
    from .world import SimRun, SimWorld

TIMEOUT_MS = 10_000
Script = Generator[tuple[str, Any], Any, Any]


class _Heard(LeaseWait):
    """The real rule for publications, fed by hand."""

    def __init__(self, peer: str) -> None:
        super().__init__(peer, _nobody, _nowhere, _no_clock)
        self.inbox: list[tuple[bytes, bytes]] = []
        self._subscriber = self  # type: ignore[assignment]

    def drain(self) -> list[tuple[bytes, bytes]]:
        """As a subscriber's."""
        found, self.inbox = self.inbox, []
        return found

    def snapshot(self, reply: LeaseReply) -> None:
        """The answer to a registration."""
        self._epoch, self._sequence = reply.epoch, reply.sequence

    def take(self) -> tuple[bool, bool, Any]:
        """(whether anything was heard, whether to ask, the lease)."""
        return self._take()


def _nobody(left_s: float | None) -> Any:
    raise AssertionError("the simulation asks by itself")


def _nowhere() -> str:
    raise AssertionError("the simulation subscribes by itself")


def _no_clock() -> int:
    return 0


class SimPeer(SimProcess):
    """One peer, one request at a time."""

    def __init__(self, world: SimWorld, run: SimRun, peer: str) -> None:
        super().__init__(world, f"{peer} of {run.name}")
        self.run, self.peer = run, peer
        self.wire: FakeWire | None = None
        self.done = True
        self._script: Script | None = None
        self._numbers = 0
        self._request: tuple[str, str, Any] | None = None
        self._sent_on: FakeWire | None = None
        self._pinged_ms: int | None = None
        self._epoch: int | None = None
        self._refusals = 0
        self._hearing: _Heard | None = None
        self._token = 0

    def start(self, script: Script) -> None:
        """Play a script."""
        if not self.up:
            self.life += 1
            self.up = True
            self.identity = self.world.new_process(self.name)
        self.done = False
        self._script = script
        self._resume(None)

    @property
    def waits_for(self) -> str:
        """In words."""
        return "time or news" if self._request is None else repr(self._request[2])[:120]

    def kill(self) -> None:
        """Not of interest: its jobs are the scheduler's."""

    def _resume(self, value: Any) -> None:
        assert self._script is not None
        self._token += 1
        try:
            what, more = self._script.send(value)
        except StopIteration:
            self.done = True
            return
        token = self._token
        if what == "ask":
            request, bound_ms = more
            self._ask(request)
            if bound_ms is not None:
                self.after(bound_ms, lambda: self._give_up(token))
        elif what == "sleep":
            self.after(more, lambda: self._wake_at(token, None))
        elif what == "hear":
            self.after(more, lambda: self._wake_at(token, "time"))
        else:
            raise AssertionError(what)

    def _wake_at(self, token: int, value: Any) -> None:
        if token == self._token:
            self._resume(value)

    def _give_up(self, token: int) -> None:
        if token == self._token and self._request is not None:
            self.world.note(self.name, "gives up", self._request[2])
            self._request = None
            self._resume(None)

    # -- one request --------------------------------------------------------------------------

    def _ask(self, request: Any) -> None:
        self._numbers += 1
        request_id = f"{self.run.name}-{self.peer}-{self._numbers:04d}"
        digest = hashlib.blake2b(encode(request), digest_size=32).hexdigest()
        self._request = (request_id, digest, request)
        self._sent_on, self._pinged_ms, self._epoch, self._refusals = None, None, None, 0
        self.world.note(self.name, "asks", request_id, request)
        self.after(0, self._send)
        self.after(PING_MS, lambda: self._ping(request_id))

    def _send(self) -> None:
        if self._request is None:
            return
        if self.run.stopped:
            self._give_up(self._token)  # `no_scheduler`
            return
        if self.wire is None:
            self.wire = None if not self.run.gateway.up else self._connect()
        if self.wire is None:
            self._again()
            return
        self.wire.send(self, self._request, may_be_full=False)
        self._sent_on = self.wire
        if self.world.faults.hits("request twice"):
            self.wire.send(self, self._request, may_be_full=False)

    def _connect(self) -> FakeWire:
        wire = FakeWire(self.world, self, self.run.gateway)
        self.run.gateway.wires.append(wire)
        return wire

    def _again(self, factor: int = 1) -> None:
        self._sent_on, self._pinged_ms = None, None
        token = self._request[0] if self._request is not None else ""

        def act() -> None:
            if self._request is not None and self._request[0] == token and self._sent_on is None:
                self._send()

        self.after(self.world.rng.randint(*BACKOFF_MS) * factor, act)

    def _ping(self, request_id: str) -> None:
        if self._request is None or self._request[0] != request_id:
            return
        now = self.world.time.now_ms
        if self._pinged_ms is not None and now - self._pinged_ms >= PONG_MS:
            if self.wire is not None:
                self.wire.cut()
                self.wire = None
            self._again()
        elif self.wire is not None and self._sent_on is self.wire:
            self.wire.send(self, (f"ping-{now:016d}", "0" * 64, Ping()), may_be_full=False)
            self._pinged_ms = self._pinged_ms or now
        self.after(PING_MS, lambda: self._ping(request_id))

    def cut_off(self, wire: FakeWire) -> None:
        """The gateway is gone: send again on another connection."""
        if wire is self.wire:
            self.wire = None
            if self._request is not None:
                self._again()

    def heard(self, wire: FakeWire, message: Any) -> None:
        """An answer, or what a gateway says by itself."""
        request_id, reply = message
        code = reply.code if isinstance(reply, Refusal) else None
        asked = self._request
        if isinstance(reply, Pong) and request_id is not None and request_id.startswith("ping-"):
            self._pinged_ms = None
            if self._epoch is not None and reply.epoch != self._epoch and asked is not None:
                self._again()
            self._epoch = reply.epoch
            return
        if asked is None:
            return
        if code in SEND_AGAIN_CODES and request_id in (None, asked[0]):
            self._refusals = self._refusals + 1 if request_id is not None else 0
            self._again(1 << min(self._refusals, 3) if request_id is not None else 1)
            return
        if request_id != asked[0]:
            return
        self._request = None
        self.world.note(self.name, "is told", reply)
        self.run.broker.witness.told(self.peer, asked[2], reply)
        self._resume(reply)

    # -- leases ---------------------------------------------------------------------------------

    def hears(self, topic: bytes) -> bool:
        """Whether its subscription takes a topic; topics are prefixes."""
        return topic == b"leases" or topic.startswith(b"lease/" + self.peer.encode())

    def told(self, topic: bytes, body: bytes) -> None:
        """A publication arrived."""
        if self._hearing is not None and self.up:
            self._hearing.inbox.append((topic, body))
            token = self._token
            self.after(0, lambda: self._wake_at(token, "heard") if self._waits else None)

    _waits = False

    def lease_wait(self, bound_ms: int, generation: int | None = None) -> Script:
        """`Client.lease_wait` as a part of a script: the lease, a refusal, or None in time."""
        gateway = self.run.gateway
        self._hearing = hearing = _Heard(self.peer)
        gateway.listeners[self] = self.world.time.now_ms + self.world.rng.choice((1, 100))
        gateway.tell_audience()
        until_ms = self.world.time.now_ms + bound_ms
        try:
            found = yield from self._register(hearing, generation)
            look_ms, asked = self.world.time.now_ms + FIRST_LOOK_MS, 1
            while found is None:
                left_ms = until_ms - self.world.time.now_ms
                if left_ms <= 0:
                    return None
                self._waits = True
                yield "hear", max(0, min(left_ms, look_ms - self.world.time.now_ms))
                self._waits = False
                heard, again, found = hearing.take()
                now = self.world.time.now_ms
                if found is None and (again or now >= look_ms):
                    found = yield from self._register(hearing, generation)
                    asked += 1
                    look_ms = self.world.time.now_ms + SILENCE_MS
                elif heard and asked > 1:
                    look_ms = now + SILENCE_MS
            return found
        finally:
            self._waits = False
            self._hearing = None
            self.run.gateway.listeners.pop(self, None)
            self.run.gateway.tell_audience()

    def _register(self, hearing: _Heard, generation: int | None) -> Script:
        reply = yield "ask", (RegisterIdle(peer=self.peer, generation=generation), 60_000)
        if not isinstance(reply, LeaseReply):
            return reply if reply is not None else Refusal(code="no_answer", detail="", help=())
        hearing.snapshot(reply)
        return reply.lease
