"""Wait for a lease without losing one, and at no cost while nothing happens.

Subscribe first, then register: the answer to a registration is the snapshot. A publication on the
peer's own topic carries the peer's whole state at a sequence, so the newest one counts and what is
not newer is dropped. The keep-alive tells the sequence of the last fact about any lease; when that
is ahead of what is known, a publication may have been lost, and the broker is asked. Another epoch
means another broker, which knows no waiter: register again. Without a keep-alive for a few seconds
the broker is asked as well. Source: the Clone pattern of the ZeroMQ guide, chapter 5; the reference
of faults, 3.7.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import PraxistError
from ..protocol.envelope import Json
from ..transport.poller import Poller
from ..transport.publication import Subscriber
from .views import known_fields, made_of

ALIVE_TOPIC = b"leases"
FIRST_LOOK_MS = 200
"""A subscription takes a moment to arrive: what was published meanwhile is found by a look."""
SILENCE_MS = 5_000
"""Keep-alives come every 2 s; after so long without one the broker is asked."""


@dataclass(frozen=True)
class LeaseInfo:
    """One lease. It names no device, and limits only when its peer may answer."""

    lease_id: str
    peer: str
    generation: int
    priority: str
    profiles: tuple[str, ...]
    state: str
    reason: str | None
    detail: str | None
    job: str | None
    issued_at: str
    expires_at: str
    left_s: float | None
    release_pending: bool
    cooling_s: float | None

    @classmethod
    def of(cls, value: object) -> LeaseInfo:
        """From JSON. Raises `protocol_mismatch`."""
        return made_of(cls, known_fields(cls, value, frozenset({"lease_id", "peer", "state"})))


class LeaseWait:
    """One peer's wait. `register` asks the broker; `find_publisher` tells where it publishes."""

    def __init__(
        self,
        peer: str,
        register: Callable[[float | None], Json],
        find_publisher: Callable[[], str],
        mono_ms: Callable[[], int],
    ) -> None:
        self._topic = b"lease/" + peer.encode()
        self._register = register
        self._find_publisher = find_publisher
        self._mono_ms = mono_ms
        self._path = ""
        self._subscriber: Subscriber | None = None
        self._poller = Poller()
        self._epoch = 0
        self._sequence = 0
        self._until_ms: int | None = None
        self._cooling_until_ms = 0
        self.asked = 0
        """How often the broker was asked."""

    def wait(self, timeout_s: float | None) -> LeaseInfo:
        """The peer's lease, as soon as it has one. Raises `wait_timeout`."""
        if timeout_s is not None:
            self._until_ms = self._mono_ms() + round(timeout_s * 1000)
        found = self._ask()
        look_ms = self._mono_ms() + FIRST_LOOK_MS
        while found is None:
            left_s = self._left_s()
            if left_s is not None and left_s <= 0:
                raise PraxistError("wait_timeout", self._over())
            wait_ms = max(0, look_ms - self._mono_ms())
            self._poller.wait(wait_ms if left_s is None else min(wait_ms, round(left_s * 1000)))
            heard, again, found = self._take()
            now_ms = self._mono_ms()
            if found is None and (again or now_ms >= look_ms):
                found = self._ask()
                look_ms = self._mono_ms() + SILENCE_MS
            elif heard and self.asked > 1:
                look_ms = now_ms + SILENCE_MS
        return found

    def _over(self) -> str:
        told = "no lease came; the peer stays registered"
        left_ms = self._cooling_until_ms - self._mono_ms()
        if left_ms <= 0:
            return told
        return f"{told}; it declined one, so it is offered less for another {-(-left_ms // 1000)} s"

    def close(self) -> None:
        """End the subscription. The peer stays registered."""
        if self._subscriber is not None:
            self._subscriber.close()

    def _ask(self) -> LeaseInfo | None:
        """Subscribe where the run publishes now, register, and take the answer as the snapshot."""
        self.asked += 1
        self._subscribe()
        reply = self._answer()
        if self._subscribe():
            reply = self._answer()  # it moved meanwhile: what was told in between is lost
        self._epoch, self._sequence = int(reply["epoch"]), int(reply["sequence"])
        self._cooling_until_ms = self._mono_ms() + round((reply.get("cooling_s") or 0) * 1000)
        return None if reply["lease"] is None else LeaseInfo.of(reply["lease"])

    def _answer(self) -> Json:
        left_s = self._left_s()
        try:
            return self._register(None if left_s is None else max(left_s, 0.05))
        except PraxistError as error:
            left_s = self._left_s()
            if error.row.retryable and left_s is not None and left_s <= 0:
                raise PraxistError("wait_timeout", f"no lease came: {error}") from None
            raise

    def _left_s(self) -> float | None:
        return None if self._until_ms is None else (self._until_ms - self._mono_ms()) / 1000

    def _subscribe(self) -> bool:
        path = self._find_publisher()
        if path == self._path and self._subscriber is not None:
            return False
        if self._subscriber is not None:
            self._poller.unregister(self._subscriber)
            self._subscriber.close()
        self._path, self._subscriber = path, Subscriber(path, [self._topic, ALIVE_TOPIC])
        self._poller.register(self._subscriber)
        return True

    def _take(self) -> tuple[bool, bool, LeaseInfo | None]:
        """(whether anything was heard, whether to ask, the lease) of what was published."""
        heard = again = False
        found: LeaseInfo | None = None
        assert self._subscriber is not None
        for topic, body in self._subscriber.drain():
            if topic not in (self._topic, ALIVE_TOPIC):
                continue  # topics are prefixes: p1 hears p10 too
            told = _read(body)
            if told is None:
                again = True
                continue
            heard = True
            epoch, sequence = told["epoch"], told["sequence"]
            if epoch != self._epoch:
                again = again or epoch > self._epoch
            elif topic == ALIVE_TOPIC:
                again = again or sequence > self._sequence
            elif sequence > self._sequence:
                self._sequence = sequence
                found = None if told.get("lease") is None else LeaseInfo.of(told["lease"])
                again = found is None and not told.get("waiting")
        return heard, again, found


def _read(body: bytes) -> Json | None:
    """A publication; None when it is none that can be read."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    numbers = (told.get("epoch"), told.get("sequence"))
    return told if all(type(number) is int for number in numbers) else None
