"""A hop between two processes of ours: a plain stream in the place of a ZeroMQ link.

Every request and every reply passes here. A ZeroMQ socket hands each message to a thread of its
own, on both sides; without them a submission wakes four threads less of twelve, and on an idle
machine the waking is most of what it costs (docs/adr/0002). Between two processes of ours
nothing else of ZeroMQ is missed.

Decides who may connect: a process of our user, by the kernel's word, that shows the run's secret
in its first packet, `hello`; `welcome` answers it. Never decides what a message means. Sends never
block: what the other end does not take waits up to a bound, what is over it is dropped and
counted. A connection that is lost takes along what waited: every message here is safe to repeat,
and its sender repeats it after `connected_again`. Sources: unix(7) SO_PEERCRED, epoll(7).
"""

from __future__ import annotations

import hmac
import os
import select
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .context import RECONNECT_FIRST_MS, RECONNECT_MAX_MS
from .listener import Listener
from .stream import PACKET_BYTES_MAX, Malformed, Packet, Stream

HELLO, WELCOME = b"hello", b"welcome"
STRANGER_BYTES_MAX = 256
"""Of a packet from somebody who did not show the secret yet."""
STRANGERS_MAX = 8
"""Connections that did not show it; the eldest gives way."""


class LinkMessage(NamedTuple):
    """One message of an end that showed the secret. `address` answers it."""

    address: bytes
    channel: bytes
    parts: list[bytes]


class HopServer:
    """The broker's end, and the sampler's.

    Raises PraxistError when the path is unsafe. `counters`: `received`, `sent`, `refused`
    (another user, wrong secret or shape), `dropped` (the other end is gone or does not read).
    """

    def __init__(self, path: str | os.PathLike[str], secret: bytes) -> None:
        self._secret = secret
        self.counters = {"received": 0, "sent": 0, "refused": 0, "dropped": 0}
        self._listener = Listener(path)
        self._epoll = select.epoll()
        self._epoll.register(self._listener.socket, select.EPOLLIN)
        self._streams: dict[int, Stream] = {}
        self._addresses: dict[int, bytes] = {}
        """Of those that showed the secret. Never used twice, as a descriptor is."""
        self._known: dict[bytes, int] = {}
        self._connections = 0

    def fileno(self) -> int:
        """Readable while there is something to `drain`."""
        return self._epoll.fileno()

    def drain(self) -> list[LinkMessage]:
        """Messages that came; lets newcomers in and sends what waited. Never blocks."""
        found: list[LinkMessage] = []
        for descriptor, events in self._epoll.poll(0):
            stream = self._streams.get(descriptor)
            if stream is None:
                self._accept()
                continue
            if events & select.EPOLLOUT:
                stream.flush()
            if events & ~select.EPOLLOUT:
                found += self._read(descriptor, stream)
            if stream.closed:
                self._forget(descriptor)
            else:
                stream.watch(self._epoll)
        self.counters["received"] += len(found)
        return found

    def _read(self, descriptor: int, stream: Stream) -> list[LinkMessage]:
        try:
            packets = stream.read()
            if packets and descriptor not in self._addresses:
                self._greet(descriptor, stream, packets.pop(0))
        except Malformed:
            self.counters["refused"] += 1
            stream.closed = True
            return []
        address = self._addresses.get(descriptor, b"")
        return [LinkMessage(address, channel, parts) for channel, parts in packets]

    def _greet(self, descriptor: int, stream: Stream, packet: Packet) -> None:
        channel, parts = packet
        shown = parts[0] if channel == HELLO and len(parts) == 1 else b""
        if not hmac.compare_digest(shown, self._secret):
            raise Malformed
        self._connections += 1
        address = b"%d" % self._connections
        self._addresses[descriptor] = address
        self._known[address] = descriptor
        stream.packet_bytes_max = PACKET_BYTES_MAX
        stream.send(WELCOME, [])

    def _accept(self) -> None:
        turned_away = self._listener.turned_away
        newcomer = self._listener.accept()
        if newcomer is None:
            self.counters["refused"] += self._listener.turned_away - turned_away
            return
        connection = newcomer.connection
        if newcomer.uid != os.geteuid():
            self.counters["refused"] += 1
            connection.close()
            return
        strangers = [each for each in self._streams if each not in self._addresses]
        if len(strangers) >= STRANGERS_MAX:
            self.counters["refused"] += 1
            self._forget(strangers[0])
        stream = self._streams[connection.fileno()] = Stream(connection, STRANGER_BYTES_MAX)
        stream.watch(self._epoll)

    def _forget(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)
        self._streams.pop(descriptor).socket.close()
        self._known.pop(self._addresses.pop(descriptor, b""), None)

    def send(
        self, address: bytes, channel: bytes, parts: Sequence[bytes], *, group: int = 1
    ) -> bool:
        """Hand parts over; False when that end is gone or takes nothing. Never blocks.

        More than fits one message goes in several; `group` parts are never torn apart.
        """
        stream = self._streams.get(self._known.get(address, -1))
        sent = stream is not None and stream.send(channel, parts, group)
        if stream is not None:
            stream.watch(self._epoll)
        self.counters["sent" if sent else "dropped"] += 1
        return sent

    def addresses(self) -> tuple[bytes, ...]:
        """Whoever is connected and showed the secret."""
        return tuple(self._known)

    def waiting(self, address: bytes) -> bool:
        """Whether that end has not taken all yet that was sent to it."""
        stream = self._streams.get(self._known.get(address, -1))
        return stream is not None and stream.waiting > 0

    def close(self) -> None:
        """Close all, remove the socket file."""
        for descriptor in list(self._streams):
            self._forget(descriptor)
        self._epoll.close()
        self._listener.close()


class HopClient:
    """The gateway's end: connects again by itself, when `retry` is called in time.

    Nothing is kept for a broker that is not there: `send` answers False. `connected_again` is
    the sign to tell the broker everything it must know. `mono_ms` is a clock in milliseconds.
    Counters as HopServer's.
    """

    def __init__(
        self, path: str | os.PathLike[str], secret: bytes, mono_ms: Callable[[], int]
    ) -> None:
        self._path = os.fspath(path)
        self._secret = secret
        self._mono_ms = mono_ms
        self.counters = {"received": 0, "sent": 0, "refused": 0, "dropped": 0}
        self._epoll = select.epoll()
        self._stream: Stream | None = None
        self._welcome = False
        self._untold = False
        self._pause_ms = RECONNECT_FIRST_MS
        self._retry_at_ms = 0
        self.retry()

    @property
    def connected(self) -> bool:
        """Whether the other end welcomed us, as far as is known."""
        return self._welcome

    def connected_again(self) -> bool:
        """True once after each welcome."""
        untold, self._untold = self._untold, False
        return untold and self._welcome

    def retry_in_ms(self) -> int | None:
        """In how long `retry` has something to do; None while there is a connection."""
        if self._stream is not None:
            return None
        return max(0, self._retry_at_ms - self._mono_ms())

    def retry(self) -> None:
        """Connect, if there is no connection and the pause after the last attempt is over."""
        if self.retry_in_ms() != 0:
            return
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        stream = Stream(connection, PACKET_BYTES_MAX)
        try:
            connection.connect(self._path)
        except OSError:
            # Nobody there, or too many at once: the next attempt tells.
            self._pause(connection)
            return
        self._stream = stream
        stream.send(HELLO, [self._secret])
        stream.watch(self._epoll)

    def _pause(self, connection: socket.socket) -> None:
        connection.close()
        self._stream, self._welcome = None, False
        self._retry_at_ms = self._mono_ms() + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, RECONNECT_MAX_MS)

    def fileno(self) -> int:
        """Readable while there is something to `drain`."""
        return self._epoll.fileno()

    def drain(self) -> list[Packet]:
        """(channel, parts) of the messages that came; sends what waited. Never blocks."""
        stream = self._stream
        if stream is None:
            return []
        stream.flush()
        packets: list[Packet] = []
        try:
            packets = stream.read()
            if packets and not self._welcome:
                self._take_welcome(packets.pop(0))
        except Malformed:
            self.counters["refused"] += 1
            packets, stream.closed = [], True
        if stream.closed:
            self._epoll.unregister(stream.socket)
            self._pause(stream.socket)
        else:
            stream.watch(self._epoll)
        self.counters["received"] += len(packets)
        return packets

    def _take_welcome(self, packet: Packet) -> None:
        if packet != (WELCOME, []):
            raise Malformed
        self._welcome = self._untold = True
        self._pause_ms = RECONNECT_FIRST_MS

    def send(self, channel: bytes, parts: Sequence[bytes], *, group: int = 1) -> bool:
        """Hand parts over; False when nobody is connected or takes anything.

        More than fits one message goes in several; `group` parts are never torn apart.
        """
        stream = self._stream if self._welcome else None
        sent = stream is not None and stream.send(channel, parts, group)
        if stream is not None:
            stream.watch(self._epoll)
        self.counters["sent" if sent else "dropped"] += 1
        return sent

    def close(self) -> None:
        """Close the connection."""
        if self._stream is not None:
            self._stream.socket.close()
        self._epoll.close()
