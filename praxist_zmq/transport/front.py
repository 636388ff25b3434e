"""The door for peers: a ROUTER that gives out whole, well-formed messages and never blocks.

Decides what is a message of this protocol: exactly two frames after the routing id, the first a
preamble of our version. Never reads the body. Routing ids are made by ROUTER itself and carry no
identity; who sent a message is the kernel's word (`transport.zap`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import NamedTuple

import zmq

from ..protocol.envelope import PREAMBLE, PROTOCOL_VERSION, preamble_version
from . import zap
from .context import ZSocket, open_socket, send_now
from .door import Door
from .frames import FrameReader

DRAIN_MESSAGES = 512
DRAIN_BYTES = 16 * 1024 * 1024
REPLIES_WAITING_MAX = 512
REQUESTS_WAITING_MAX = 64


class Incoming(NamedTuple):
    """One request as it came; `uid` and `pid` are the kernel's, `pid` 0 is unknown."""

    routing_id: bytes
    uid: int
    pid: int
    body: bytes


def refusal_body(code: str, detail: str, request_id: str | None = None) -> bytes:
    """The JSON body of a Refusal, made without the models."""
    reply: dict[str, object] = {
        "kind": "refusal",
        "code": code,
        "detail": detail,
        "help": [],
        "job": None,
    }
    return json.dumps({"request_id": request_id, "reply": reply}).encode()


class FrontDoor:
    """A bound ROUTER under ZAP.

    `uids` are the users let in (default: only ours), `everybody` lets all in who may pass its
    directory; `mono_ms`, a clock in milliseconds, turns the quota of connections on. Raises
    PraxistError when the path is unsafe or credentials do not arrive. `counters` says what was
    refused and dropped since start.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        uids: frozenset[int] | None = None,
        everybody: bool = False,
        mono_ms: Callable[[], int] | None = None,
    ) -> None:
        self._policy = zap.DoorPolicy(None if everybody else uids or zap.own_uid_only(), mono_ms)
        self.socket: ZSocket = open_socket(
            zmq.ROUTER,
            send_messages_max=REPLIES_WAITING_MAX,
            receive_messages_max=REQUESTS_WAITING_MAX,
        )
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._reader = FrameReader(self.socket)
        self._counters = {
            "received": 0,
            "sent": 0,
            "refused_frames": 0,
            "refused_preamble": 0,
            "refused_version": 0,
            "refused_credentials": 0,
            "dropped_slow_peer": 0,
            "dropped_peer_gone": 0,
        }
        self._door = Door(self.socket, self._policy, path, zmq.DEALER, everybody=everybody)

    @property
    def sockets(self) -> tuple[ZSocket, ...]:
        """What `transport.poller` watches."""
        return (self.socket,)

    @property
    def counters(self) -> dict[str, int]:
        """Counts since start, a fresh copy."""
        return {
            **self._counters,
            "connections_admitted": self._policy.admitted,
            "connections_denied": self._policy.denied,
        }

    def drain(self, limit: int = DRAIN_MESSAGES) -> list[Incoming]:
        """Requests that wait, at most `limit` and about 16 MiB of them; never blocks."""
        requests: list[Incoming] = []
        room = DRAIN_BYTES
        looked = 0
        while len(requests) < limit and room > 0 and looked < 2 * limit:
            route = self._reader.begin()
            if route is None:
                break
            looked += 1
            request = self._read_one(route.bytes)
            if request is None:
                if not self._reader.skip():
                    break
                continue
            room -= len(request.body)
            requests.append(request)
        self._counters["received"] += len(requests)
        return requests

    def _read_one(self, routing_id: bytes) -> Incoming | None:
        """One message; None when it is refused, which is counted here."""
        first = self._reader.take() if self._reader.more else None
        if first is None or not self._reader.more:
            self._counters["refused_frames"] += 1
            return None
        preamble = first.bytes if len(first) <= 2 * len(PREAMBLE) else b""
        if preamble != PREAMBLE:
            self._refuse_preamble(routing_id, preamble)
            return None
        body = self._reader.take()
        if self._reader.more:
            self._counters["refused_frames"] += 1
            return None
        try:
            uid, pid = zap.parse_user_id(str(first.get("User-Id")))
        except (ValueError, zmq.ZMQError):
            self._counters["refused_credentials"] += 1
            return None
        return Incoming(routing_id, uid, pid, body.bytes)

    def _refuse_preamble(self, routing_id: bytes, preamble: bytes) -> None:
        version = preamble_version(preamble)
        if version is None:
            self._counters["refused_preamble"] += 1
            return
        self._counters["refused_version"] += 1
        detail = f"you speak version {version}, this scheduler version {PROTOCOL_VERSION}"
        self.send(routing_id, refusal_body("protocol_mismatch", detail))

    def send(self, routing_id: bytes, body: bytes) -> bool:
        """Hand a reply to a peer; False when it is gone or does not read. Never blocks."""
        try:
            sent = send_now(self.socket, [routing_id, PREAMBLE, body])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._counters["dropped_peer_gone"] += 1
            return False
        self._counters["sent" if sent else "dropped_slow_peer"] += 1
        return sent

    def close(self) -> None:
        """Unbind, remove the socket file."""
        self._door.close()
