"""Who may connect: the answer to every ZeroMQ handshake, from the kernel's own credentials.

Decides by user id (and by the rate of connections, when a clock is given), and stamps `uid:pid`
on every frame of an admitted connection. Never trusts anything that the other side wrote. With a
handler in place ZeroMQ also stops accepting ZMTP 1.0 and 2.0, whose messages need no handshake.
Source: RFC 27/ZAP; SO_PEERCRED of unix(7), which libzmq appends to the peer address as
`localhost:uid:gid:pid`. That form is not promised by any manual, so a door proves it at start
(`prove`) and every address that does not parse is denied.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import zmq

from ..errors import PraxistError
from .context import ZSocket, endpoint_of, open_socket

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_ADDRESS = re.compile(rb"^localhost:([0-9]{1,10}):([0-9]{1,10}):([0-9]{1,10})$")
_KEYS_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Credentials:
    """A peer as the kernel saw it when it connected. Process 0 is unknown (another namespace)."""

    uid: int
    gid: int
    pid: int


def parse_address(address: bytes) -> Credentials | None:
    """The credentials in a ZAP address; None when it has any other form."""
    match = _ADDRESS.match(address)
    if match is None:
        return None
    return Credentials(*(int(part) for part in match.groups()))


def parse_user_id(text: str) -> tuple[int, int]:
    """`uid:pid` as this module stamped it, back to numbers."""
    uid, _, pid = text.partition(":")
    return int(uid), int(pid)


class ConnectionQuota:
    """A token bucket a key: `burst` connections at once, `per_second` in the long run.

    ZAP sees connections begin, not end, so the rate is what can be bounded here.
    """

    def __init__(self, burst: int, per_second: float) -> None:
        self._burst = float(burst)
        self._per_ms = per_second / 1_000
        self._left: dict[int, tuple[float, int]] = {}

    def allow(self, key: int, now_ms: int) -> bool:
        """Take one token of `key` at `now_ms`; False when none is left."""
        left, since = self._left.get(key, (self._burst, now_ms))
        left = min(self._burst, left + (now_ms - since) * self._per_ms)
        allowed = left >= 1.0
        self._left[key] = (left - 1.0 if allowed else left, now_ms)
        if len(self._left) > _KEYS_MAX:
            self._forget_full(now_ms)
        return allowed

    def _forget_full(self, now_ms: int) -> None:
        full = self._burst
        self._left = {
            key: (left, since)
            for key, (left, since) in self._left.items()
            if left + (now_ms - since) * self._per_ms < full
        }


@dataclass(slots=True)
class DoorPolicy:
    """Whom one door admits. Counters are written by the handler's thread only."""

    uids: frozenset[int] | None
    """None lets every user in, each under its own name."""
    mono_ms: Callable[[], int] | None = None
    by_process: ConnectionQuota = field(default_factory=lambda: ConnectionQuota(512, 64))
    by_user: ConnectionQuota = field(default_factory=lambda: ConnectionQuota(8_192, 2_048))
    admitted: int = 0
    denied: int = 0
    own_credentials_seen: threading.Event = field(default_factory=threading.Event)

    def decide(self, address: bytes) -> Credentials | None:
        """The credentials of a peer that may come in; None to deny."""
        who = parse_address(address)
        if who is None:
            return None
        ours = (who.uid, who.gid, who.pid) == (os.geteuid(), os.getegid(), os.getpid())
        if ours:
            self.own_credentials_seen.set()
        if self.uids is not None and who.uid not in self.uids:
            return None
        if self.mono_ms is not None and not ours:
            now = self.mono_ms()
            if not self.by_user.allow(who.uid, now):
                return None
            if who.pid and not self.by_process.allow(who.pid, now):
                return None
        return who


class Gatekeeper:
    """The process's one ZAP handler, in its own thread, serving every door by its domain."""

    def __init__(self) -> None:
        self._doors: dict[bytes, DoorPolicy] = {}
        self._number = 0
        self._socket = open_socket(zmq.ROUTER)
        self._socket.bind(ZAP_ENDPOINT)
        self.faults = 0
        threading.Thread(target=self._serve, name="zap", daemon=True).start()

    def guard(self, socket: ZSocket, policy: DoorPolicy) -> bytes:
        """Put a socket, not yet bound, under a policy. Returns its domain, for `forget`."""
        self._number += 1
        domain = b"door-%d" % self._number
        self._doors[domain] = policy
        socket.setsockopt(zmq.ZAP_DOMAIN, domain)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        return domain

    def forget(self, domain: bytes) -> None:
        """A door closed; its domain admits nobody any more."""
        self._doors.pop(domain, None)

    def _serve(self) -> None:
        while True:
            try:
                message = self._socket.recv_multipart()
                self._socket.send_multipart(self._answer(message), zmq.NOBLOCK)
            except zmq.Again:
                self.faults += 1
            except zmq.ZMQError as error:
                if error.errno in (zmq.ETERM, zmq.ENOTSOCK):
                    return
                self.faults += 1

    def _answer(self, message: list[bytes]) -> list[bytes]:
        route, request_id = message[:2], message[3] if len(message) > 3 else b""
        status, user_id = b"500", b""
        try:
            status, user_id = self._judge(message)
        except Exception:  # noqa: BLE001 -- whatever fails here denies; the thread must not die
            self.faults += 1
        return [*route, b"1.0", request_id, status, b"", user_id, b""]

    def _judge(self, message: list[bytes]) -> tuple[bytes, bytes]:
        _, _, version, _, domain, address, _, mechanism = message[:8]
        policy = self._doors.get(domain)
        if version != b"1.0" or mechanism != b"NULL" or policy is None:
            return b"400", b""
        who = policy.decide(address)
        if who is None:
            policy.denied += 1
            return b"400", b""
        policy.admitted += 1
        return b"200", b"%d:%d" % (who.uid, who.pid)


_start = threading.Lock()
_running: list[tuple[zmq.Context[ZSocket], Gatekeeper]] = []


def gatekeeper() -> Gatekeeper:
    """The process's gatekeeper, started when first needed."""
    with _start:
        context: zmq.Context[ZSocket] = zmq.Context.instance()
        if not _running or _running[0][0] is not context:
            _running[:] = [(context, Gatekeeper())]
        return _running[0][1]


def own_uid_only() -> frozenset[int]:
    """The default policy: the user we run as, nobody else, not even root."""
    return frozenset({os.geteuid()})


def prove(policy: DoorPolicy, path: str | os.PathLike[str], partner: int) -> None:
    """Connect to our own door and see that the kernel's word about us arrives. Fails closed."""
    probe = open_socket(partner)
    try:
        probe.connect(endpoint_of(path))
        if not policy.own_credentials_seen.wait(5.0):
            raise PraxistError(
                "start_failed",
                "ZeroMQ does not report peer credentials in the form localhost:uid:gid:pid; "
                "peers cannot be told apart, so nobody is let in",
            )
    finally:
        probe.close(0)
