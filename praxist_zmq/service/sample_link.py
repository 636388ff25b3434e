"""A sample on request: the broker asks, the next publication is the answer.

One private link, beside the socket of the samples. Asking never blocks and is never answered; while
no sampler is there it does nothing, because a fresh one begins with samples of its own. Decides
nothing: the sampler says how often it looks.
"""

from __future__ import annotations

from pathlib import Path

from ..transport.context import ZSocket
from ..transport.link import LinkClient, LinkServer

CHANNEL = b"sample_now"


def socket_beside(samples: str) -> Path:
    """The socket of the requests, in the directory of the samples' own."""
    return Path(samples).with_name("sampler.sock")


class SampleLink:
    """The broker's side."""

    def __init__(self, samples: str, secret: bytes) -> None:
        self._link = LinkClient(socket_beside(samples), secret)

    def ask(self) -> bool:
        """Ask for a sample soon. False when no sampler is there."""
        self._link.take()  # for what happened to the connection
        return self._link.send(CHANNEL, [b""])

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


class SampleRequests:
    """The sampler's side. Raises PraxistError when its path is unsafe."""

    def __init__(self, samples: str, secret: bytes) -> None:
        self._link = LinkServer(socket_beside(samples), secret)

    @property
    def sockets(self) -> tuple[ZSocket, ...]:
        """What `transport.poller` watches."""
        return self._link.sockets

    def wanted(self) -> bool:
        """Whether anybody asked since the last call; never blocks."""
        return any(message.channel == CHANNEL for message in self._link.drain())

    def close(self) -> None:
        """Unbind."""
        self._link.close()
