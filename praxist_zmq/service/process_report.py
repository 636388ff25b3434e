"""Tells the broker which processes the supervisor has, on every change and every new connection.

The broker may be absent or start again at any time; a list that could not be sent is simply sent
again when it is there. Hears which of them the broker finds silent, and decides nothing.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ..errors import PraxistError
from ..host.clock import SystemClock
from ..protocol.codec import decode, encode
from ..protocol.orders import RestartProcess
from ..protocol.reports import ProcessesSeen
from ..transport.link import LinkClient
from ..transport.poller import Poller

CHANNEL = b"processes"
RESTART = b"restart"


class ProcessReport:
    """The supervisor's end of the link to the broker."""

    def __init__(self, core: Path, secret: bytes) -> None:
        self._link = LinkClient(core, secret, SystemClock().mono_ms)
        self._body: bytes | None = None

    def watch(self, poller: Poller) -> None:
        """Add what must be polled."""
        poller.register(self._link)

    def serve(self) -> list[RestartProcess]:
        """Processes that the broker wants started again; repeats the latest list on a new
        connection. Never blocks."""
        taken = self._link.take()
        if taken.anew and self._body is not None:
            self._link.send(CHANNEL, [self._body])
        found = []
        for channel, parts in taken.messages:
            for body in parts if channel == RESTART else ():
                try:
                    found.append(decode(RestartProcess, body))
                except PraxistError as error:
                    logging.getLogger(__name__).error("a wish of the broker's: %s", error)
        return found

    def tell(self, seen: ProcessesSeen) -> None:
        """Send the list of processes, now and on every new connection."""
        self._body = encode(seen)
        self._link.send(CHANNEL, [self._body])

    def close(self) -> None:
        """Close the link."""
        self._link.close()
