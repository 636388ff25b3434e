"""The supply process: hears from the broker what room is idle, answers with offers to make.

It owns nothing. When it dies the supervisor starts it again; a fresh one counts samples from zero,
and no lease, no waiter and no count is lost, because all of them are the broker's. It never grants
and never speaks to peers. Link channel `supply`: to the broker an empty part ("I am here") or a
plan, from the broker facts.
"""

from __future__ import annotations

import logging
from collections.abc import Set

from ..core.supply import SupplyPlanner
from ..errors import PraxistError
from ..host.clock import SystemClock
from ..host.signal_pipe import SignalPipe
from ..protocol import codec
from ..protocol.supply import SupplyFacts
from ..transport.link import LinkClient
from ..transport.poller import Item, Poller
from .child_config import ChildConfig, report_ready, serve_child, supervisor_gone

CHANNEL = b"supply"
STDIN = 0


class Supply:
    """The planner behind its link."""

    def __init__(self, link: LinkClient) -> None:
        self._link = link
        self._planner = SupplyPlanner()
        self._log = logging.getLogger(__name__)

    def turn(self, ready: Set[Item]) -> None:
        """Everything that waits on the link. Never blocks."""
        if self._link not in ready:
            return
        anew, messages = self._link.take()
        if anew:
            self._planner.forget()
            self._link.send(CHANNEL, [b""])
        for channel, parts in messages:
            for body in parts if channel == CHANNEL else ():
                self._facts(body)

    def _facts(self, body: bytes) -> None:
        try:
            facts: SupplyFacts = codec.decode(SupplyFacts, body)
        except PraxistError as error:
            self._log.error("facts of the broker's: %s", error)
            return
        plan = self._planner.decide(facts)
        if plan.offers:
            # A plan that does not arrive is made again: its peers still wait.
            self._link.send(CHANNEL, [codec.encode(plan)])


def serve(config: ChildConfig) -> int:
    """Serve until told to end, or the supervisor is gone. Returns the exit status."""
    signals = SignalPipe()
    link = LinkClient(config.core, config.secret_bytes, SystemClock().mono_ms)
    supply = Supply(link)
    poller = Poller()
    for item in (link, signals, STDIN):
        poller.register(item)
    report_ready(config)
    while True:
        ready = poller.wait(None)
        if STDIN in ready and supervisor_gone(STDIN):
            break
        if signals in ready and "end" in signals.drain():
            break
        supply.turn(ready)
    link.close()
    signals.close()
    return 0


def main() -> None:
    """`python -m praxist_zmq.service.supply`, started by the supervisor."""
    serve_child("supply", serve)


if __name__ == "__main__":
    main()
