"""Whole messages over a plain stream socket, without a thread and without waiting.

A packet is its length in four bytes, the length of the channel in one, the channel, and the parts
as `transport.parts` packs them. Decides nothing about what they mean. Sources: unix(7), send(2).
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator, Sequence

from .context import REPLY_BYTES_MAX
from .parts import CHANNEL_BYTES_MAX, LENGTH, messages, pack, unpack

READ_BYTES = 64 * 1024
READS_A_TURN = 256
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Of what the other end did not take yet. One packet, when nothing waits before it, may be more."""
PACKET_BYTES_MAX = REPLY_BYTES_MAX + 64
_HEAD = struct.Struct("<IB")
_FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL

Packet = tuple[bytes, list[bytes]]
"""(channel, parts)"""


class Malformed(Exception):
    """The other end sent what is no packet."""


class Wire:
    """One connection and what it did not take yet. `closed`: there will be no more; whoever sees it
    closes it."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.closed = False
        self._outgoing = bytearray()
        self._watched = 0

    def fileno(self) -> int:
        """Its descriptor."""
        return self.socket.fileno()

    @property
    def waiting(self) -> int:
        """How many bytes were not taken yet."""
        return len(self._outgoing)

    def receive(self) -> bytes:
        """A piece of what has come; less than `READ_BYTES` when there is no more now."""
        try:
            data = self.socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        self.closed = not data
        return data

    def write(self, packet: bytes) -> bool:
        """Send what is taken now and keep the rest; False when too much waits, or it is gone."""
        if self._outgoing:
            if len(self._outgoing) + len(packet) > WAITING_BYTES_MAX:
                return False
            self._outgoing += packet
            return True
        try:
            sent = self.socket.send(packet, _FLAGS)
        except BlockingIOError:
            sent = 0
        except OSError:
            # Gone: the kernel tells epoll so, and the next read finds it.
            return False
        self._outgoing += memoryview(packet)[sent:]
        return True

    def flush(self) -> None:
        """Send more of what waits."""
        try:
            while self._outgoing:
                sent = self.socket.send(self._outgoing, _FLAGS)
                del self._outgoing[:sent]
        except BlockingIOError:
            return
        except OSError:
            self.closed = True

    def watch(self, epoll: select.epoll) -> None:
        """Have `epoll` tell of what comes, and of room while something waits to be sent.

        To be called after everything that sends.
        """
        wanted = select.EPOLLIN | (select.EPOLLOUT if self._outgoing else 0)
        if not self._watched:
            epoll.register(self.socket, wanted)
        elif wanted != self._watched:
            epoll.modify(self.socket, wanted)
        self._watched = wanted

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


class Stream(Wire):
    """A connection that carries packets."""

    def __init__(self, connection: socket.socket, packet_bytes_max: int) -> None:
        super().__init__(connection)
        self.packet_bytes_max = packet_bytes_max
        self._incoming = bytearray()
        self._wanted = 0

    def read(self) -> list[Packet]:
        """The packets that came whole. Raises Malformed."""
        packets: list[Packet] = []
        for _ in range(READS_A_TURN):
            data = self.receive()
            packets += self._packets(data)
            if len(data) < READ_BYTES:
                break
        return packets

    def _packets(self, data: bytes) -> Iterator[Packet]:
        if self._incoming:
            self._incoming += data
            if len(self._incoming) < self._wanted:
                return
            data = bytes(self._incoming)
            self._incoming.clear()
        at, end, self._wanted = 0, len(data), LENGTH.size
        while end - at >= LENGTH.size:
            (size,) = LENGTH.unpack_from(data, at)
            if size > self.packet_bytes_max:
                raise Malformed
            self._wanted = LENGTH.size + size
            if end - at < self._wanted:
                break
            yield _packet(data[at + LENGTH.size : at + self._wanted])
            at += self._wanted
            self._wanted = LENGTH.size
        self._incoming += data[at:]

    def send(self, channel: bytes, parts: Sequence[bytes], group: int = 1) -> bool:
        """Send what is taken now and keep the rest; False when it is closed or too much waits, or
        a part is more than the other end takes: it would close the connection.

        More than fits one packet goes in several; `group` parts are never torn apart.
        """
        for some in messages(parts, group):
            packed = pack(some)
            size = 1 + len(channel) + len(packed)
            if size > PACKET_BYTES_MAX:
                return False
            head = _HEAD.pack(size, len(channel))
            if not self.write(b"".join((head, channel, packed))):
                return False
        return True


def _packet(body: bytes) -> Packet:
    """Raises Malformed when `body` is not a channel and some parts."""
    start = 1 + body[0] if body else 0
    parts = unpack(body, start) if 0 < start <= min(1 + CHANNEL_BYTES_MAX, len(body)) else None
    if parts is None:
        raise Malformed
    return body[1:start], parts
