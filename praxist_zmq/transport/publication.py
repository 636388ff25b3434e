"""Publications: `[topic][body]`, lost without a word when a reader is slow, and how that is told.

A publication is a hint. Every body carries an epoch and the sequence it covers; a reader
subscribes first, then asks the scheduler for the state, and asks again on any gap. Decides what
is a gap; never repeats a publication. Source: the Clone pattern of the ZeroMQ guide, chapter 5.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import zmq

from . import zap
from .context import REPLY_BYTES_MAX, ZSocket, endpoint_of, open_socket
from .door import Door
from .frames import FrameReader

TOPIC_BYTES_MAX = 256
PUBLICATIONS_WAITING_MAX = 1_000
PREFIXES_MAX = 4_096
FRAMES_A_TURN = 20_000


class Publisher:
    """A bound XPUB under ZAP. `uids` are the users let in (default: only ours).

    `audience(topic)` says whether anybody listens; poll it and call `update` for that.
    """

    def __init__(self, path: str | os.PathLike[str], *, uids: frozenset[int] | None = None) -> None:
        policy = zap.DoorPolicy(uids or zap.own_uid_only())
        self.socket: ZSocket = open_socket(zmq.XPUB, send_messages_max=PUBLICATIONS_WAITING_MAX)
        self._prefixes: set[bytes] = set()
        self._door = Door(self.socket, policy, path)

    @property
    def sockets(self) -> tuple[ZSocket, ...]:
        """What `transport.poller` watches: listeners that come and go."""
        return (self.socket,)

    def update(self) -> None:
        """Take in who came and went; never blocks. ZeroMQ tells of the first and the last
        listener of a prefix."""
        for _ in range(FRAMES_A_TURN):
            try:
                # Frame by frame: what is no subscription may lack the rest of its message, and
                # others' subscriptions come in between.
                frame = self.socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            if frame.more or len(frame) > 1 + TOPIC_BYTES_MAX:
                continue
            told = frame.bytes
            if told[:1] == b"\x00":
                self._prefixes.discard(told[1:])
            elif told[:1] == b"\x01" and self._remembers(told):
                self._prefixes.add(told[1:])

    def _remembers(self, told: bytes) -> bool:
        return told[1:] in self._prefixes or len(self._prefixes) < PREFIXES_MAX

    def audience(self, topic: bytes) -> bool:
        """Whether anybody listens to `topic`, as far as is known."""
        return any(topic.startswith(prefix) for prefix in self._prefixes)

    def publish(self, topic: bytes, body: bytes) -> None:
        """Send to whoever listens now; readers that are behind lose it. Never blocks."""
        self.socket.send_multipart([topic, body], zmq.NOBLOCK)

    def close(self) -> None:
        """Unbind, remove the socket file."""
        self._door.close()


class Subscriber:
    """A SUB that connects again by itself. `topics` are prefixes; `b""` is everything."""

    def __init__(self, path: str | os.PathLike[str], topics: Sequence[bytes] = (b"",)) -> None:
        self.socket: ZSocket = open_socket(
            zmq.SUB,
            receive_messages_max=PUBLICATIONS_WAITING_MAX,
            frame_bytes_max=REPLY_BYTES_MAX,
        )
        for topic in topics:
            self.socket.setsockopt(zmq.SUBSCRIBE, topic)
        self._reader = FrameReader(self.socket)
        self.refused = 0
        self.socket.connect(endpoint_of(path))

    @property
    def sockets(self) -> tuple[ZSocket, ...]:
        """What `transport.poller` watches."""
        return (self.socket,)

    def drain(self, limit: int = PUBLICATIONS_WAITING_MAX) -> list[tuple[bytes, bytes]]:
        """(topic, body) of the publications that wait; never blocks."""
        found: list[tuple[bytes, bytes]] = []
        for _ in range(limit):
            topic = self._reader.begin()
            if topic is None:
                break
            body = self._reader.take() if self._reader.more else None
            if body is None or self._reader.more or len(topic) > TOPIC_BYTES_MAX:
                self.refused += 1
                if not self._reader.skip():
                    break
                continue
            found.append((topic.bytes, body.bytes))
        return found

    def close(self) -> None:
        """Close the connection."""
        self.socket.close(0)
