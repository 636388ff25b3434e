"""The private link between our own processes: `[secret channel][parts]`, two frames.

Decides only whether a message carries the run's secret; never what it means. The secret keeps a
process of the same user, which the kernel lets connect, from posing as one of ours by accident or
by guessing the path. Sends never block: what cannot be handed over now is dropped and counted,
because every message on this link is safe to repeat and its sender repeats it on the next
connection.
"""

from __future__ import annotations

import hmac
import os
import select
from collections.abc import Sequence
from typing import NamedTuple

import zmq

from . import zap
from .context import REPLY_BYTES_MAX, ZSocket, endpoint_of, open_socket, send_now
from .door import Door
from .frames import FrameReader
from .monitor import ConnectionMonitor
from .parts import CHANNEL_BYTES_MAX, messages, pack, unpack

LINK_MESSAGES_MAX = 10_000


class LinkMessage(NamedTuple):
    """One message that carried the secret. `address` answers it."""

    address: bytes
    channel: bytes
    parts: list[bytes]


def _read_authentic(
    reader: FrameReader, shown: zmq.Frame, secret: bytes
) -> tuple[bytes, list[bytes]] | None:
    """(channel, parts) of a message that showed `shown` as its secret; None to refuse it."""
    if not len(secret) <= len(shown) <= len(secret) + CHANNEL_BYTES_MAX or not reader.more:
        return None
    header = shown.bytes
    if not hmac.compare_digest(header[: len(secret)], secret):
        return None
    payload = reader.take()
    if reader.more:
        return None
    parts = unpack(payload.bytes)
    return None if parts is None else (header[len(secret) :], parts)


class Taken(NamedTuple):
    """What `LinkClient.take` found."""

    anew: bool
    """Whether a connection was made since the last time: tell the broker all it must know."""
    messages: list[tuple[bytes, list[bytes]]]
    """(channel, parts) of each, in order."""


class LinkServer:
    """The broker's end: a ROUTER under ZAP, same user only.

    Raises PraxistError when the path is unsafe. `counters`: `received`, `sent`, `refused`
    (wrong secret or shape), `dropped` (the other end is gone or does not read).
    """

    def __init__(self, path: str | os.PathLike[str], secret: bytes) -> None:
        self._secret = secret
        self._policy = zap.DoorPolicy(zap.own_uid_only())
        self.socket: ZSocket = open_socket(
            zmq.ROUTER,
            send_messages_max=LINK_MESSAGES_MAX,
            receive_messages_max=LINK_MESSAGES_MAX,
            frame_bytes_max=REPLY_BYTES_MAX,
        )
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._reader = FrameReader(self.socket)
        self.counters = {"received": 0, "sent": 0, "refused": 0, "dropped": 0}
        self._door = Door(self.socket, self._policy, path, zmq.DEALER)

    @property
    def sockets(self) -> tuple[ZSocket, ...]:
        """What `transport.poller` watches."""
        return (self.socket,)

    def drain(self, limit: int = LINK_MESSAGES_MAX) -> list[LinkMessage]:
        """Messages that wait, at most `limit`; never blocks."""
        found: list[LinkMessage] = []
        for _ in range(limit):
            route = self._reader.begin()
            if route is None:
                break
            message = self._read_one(route.bytes)
            if message is not None:
                found.append(message)
            else:
                self.counters["refused"] += 1
                if not self._reader.skip():
                    break
        self.counters["received"] += len(found)
        return found

    def _read_one(self, address: bytes) -> LinkMessage | None:
        if not self._reader.more:
            return None
        found = _read_authentic(self._reader, self._reader.take(), self._secret)
        return None if found is None else LinkMessage(address, *found)

    def send(
        self, address: bytes, channel: bytes, parts: Sequence[bytes], *, group: int = 1
    ) -> bool:
        """Hand parts over; False when that end is gone or full. Never blocks.

        More than fits one message goes in several; `group` parts are never torn apart.
        """
        header = self._secret + channel
        return all(self._send([address, header, pack(some)]) for some in messages(parts, group))

    def _send(self, frames: list[bytes]) -> bool:
        try:
            sent = send_now(self.socket, frames)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            sent = False
        self.counters["sent" if sent else "dropped"] += 1
        return sent

    def close(self) -> None:
        """Unbind, remove the socket file."""
        self._door.close()


class LinkClient:
    """The other end: a DEALER that connects again by itself.

    Nothing is kept for a broker that is not there: `send` answers False. Counters as `LinkServer`.
    """

    def __init__(self, path: str | os.PathLike[str], secret: bytes) -> None:
        self._secret = secret
        self.socket: ZSocket = open_socket(
            zmq.DEALER,
            send_messages_max=LINK_MESSAGES_MAX,
            receive_messages_max=LINK_MESSAGES_MAX,
            frame_bytes_max=REPLY_BYTES_MAX,
        )
        self.socket.setsockopt(zmq.IMMEDIATE, 1)
        self._monitor = ConnectionMonitor(self.socket)
        self._epoll: select.epoll | None = None
        self._reader = FrameReader(self.socket)
        self.counters = {"received": 0, "sent": 0, "refused": 0, "dropped": 0}
        self.socket.connect(endpoint_of(path))

    @property
    def sockets(self) -> tuple[ZSocket, ...]:
        """What `transport.poller` watches: messages, and connections made and lost."""
        return (self.socket, self._monitor.socket)

    def fileno(self) -> int:
        """A descriptor for epoll or poll, readable when something may have happened.

        After it was readable, and after every `send`, `take` until there is nothing more: the
        descriptors of ZeroMQ below it tell of edges.
        """
        if self._epoll is None:
            self._epoll = select.epoll(2)
            for socket in self.sockets:
                self._epoll.register(int(socket.getsockopt(zmq.FD)), select.EPOLLIN)
        return self._epoll.fileno()

    def take(self) -> Taken:
        """Everything that waits; never blocks.

        One look for both: a poller wakes once for each, without end for what nobody looks at, and
        never again for a connection that somebody saw and did not tell of.
        """
        anew = self._monitor.made_anew()
        found: list[tuple[bytes, list[bytes]]] = []
        for _ in range(LINK_MESSAGES_MAX):
            shown = self._reader.begin()
            if shown is None:
                break
            message = _read_authentic(self._reader, shown, self._secret)
            if message is not None:
                found.append(message)
            else:
                self.counters["refused"] += 1
                if not self._reader.skip():
                    break
        self.counters["received"] += len(found)
        return Taken(anew, found)

    def send(self, channel: bytes, parts: Sequence[bytes], *, group: int = 1) -> bool:
        """Hand parts over; False when nobody is connected or the link is full.

        More than fits one message goes in several; `group` parts are never torn apart.
        """
        header = self._secret + channel
        return all(self._send([header, pack(some)]) for some in messages(parts, group))

    def _send(self, frames: list[bytes]) -> bool:
        sent = send_now(self.socket, frames)
        self.counters["sent" if sent else "dropped"] += 1
        return sent

    def close(self) -> None:
        """Close the connection."""
        if self._epoll is not None:
            self._epoll.close()
        self._monitor.close()
        self.socket.close(0)
