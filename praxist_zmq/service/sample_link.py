"""The link between broker and sampler: samples one way, a wish for one the other.

Asking never blocks and is never answered but by a sample; while no sampler is there it does
nothing, because a fresh one begins with samples of its own. Decides nothing: the sampler says how
often it looks.
"""

from __future__ import annotations

from collections.abc import Callable

from ..transport.hop import HopServer
from ..transport.link import LinkClient

WISH = b"sample_now"
SAMPLE = b"sample"


class SampleLink:
    """The broker's side. `mono_ms` is a clock in milliseconds."""

    def __init__(self, samples: str, secret: bytes, mono_ms: Callable[[], int]) -> None:
        self._link = LinkClient(samples, secret, mono_ms)

    def fileno(self) -> int:
        """Readable while there is something to `drain`."""
        return self._link.fileno()

    def drain(self) -> list[bytes]:
        """The samples that came; never blocks."""
        return [
            body
            for channel, parts in self._link.take().messages
            for body in parts
            if channel == SAMPLE
        ]

    def ask(self) -> bool:
        """Ask for a sample soon. False when no sampler is there."""
        return self._link.send(WISH, [b""])

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


class SampleServer:
    """The sampler's side. Raises PraxistError when its path is unsafe."""

    def __init__(self, samples: str, secret: bytes) -> None:
        self._hop = HopServer(samples, secret)

    def fileno(self) -> int:
        """Readable while there is something to look at with `wanted`."""
        return self._hop.fileno()

    def wanted(self) -> bool:
        """Whether anybody asked since the last call; never blocks."""
        return any(message.channel == WISH for message in self._hop.drain())

    def publish(self, body: bytes) -> None:
        """A sample for whoever listens and has taken what was sent before. Never blocks."""
        for address in self._hop.addresses():
            if not self._hop.waiting(address):
                self._hop.send(address, SAMPLE, [body])

    def close(self) -> None:
        """Unbind."""
        self._hop.close()
