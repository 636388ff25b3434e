"""The private link to a process of ours: the other end of a `transport.hop`, for a poll loop.

Connects again by itself, woken by its own descriptor. Decides nothing about messages. Whoever the
kernel lets connect must show the run's secret first, in a packet of a few bytes; before that
nothing of it is kept, and after it a packet has a bound. ZeroMQ has none for the parts of a
message (docs/adr/0014), so no process that owns a ledger listens with it.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .alarm import Alarm
from .hop import HopClient
from .stream import Packet


class Taken(NamedTuple):
    """What `LinkClient.take` found."""

    anew: bool
    """Whether a connection was made since the last time: tell the other end all it must know."""
    messages: list[Packet]
    """(channel, parts) of each, in order."""


class LinkClient:
    """Nothing is kept for an end that is not there: `send` answers False. `mono_ms` is a clock in
    milliseconds. Counters as HopServer's."""

    def __init__(
        self, path: str | os.PathLike[str], secret: bytes, mono_ms: Callable[[], int]
    ) -> None:
        self._hop = HopClient(path, secret, mono_ms)
        self._alarm = Alarm()
        self._epoll = select.epoll(2)
        for descriptor in (self._hop.fileno(), self._alarm.fileno()):
            self._epoll.register(descriptor, select.EPOLLIN)
        self._alarm.set(self._hop.retry_in_ms())

    @property
    def counters(self) -> dict[str, int]:
        """What was received, sent, refused and dropped."""
        return self._hop.counters

    def fileno(self) -> int:
        """Readable while there is something to `take`."""
        return self._epoll.fileno()

    def take(self) -> Taken:
        """Everything that waits; connects, when it is time to. Never blocks."""
        self._hop.retry()
        messages = self._hop.drain()
        self._alarm.set(self._hop.retry_in_ms())
        return Taken(self._hop.connected_again(), messages)

    def send(self, channel: bytes, parts: Sequence[bytes], *, group: int = 1) -> bool:
        """Hand parts over; False when nobody is connected or takes anything.

        More than fits one message goes in several; `group` parts are never torn apart.
        """
        return self._hop.send(channel, parts, group=group)

    def close(self) -> None:
        """Close the connection."""
        self._epoll.close()
        self._alarm.close()
        self._hop.close()
