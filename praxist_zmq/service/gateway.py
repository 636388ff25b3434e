"""The gateway: the only process that peers touch. It owns no state and no lock.

A peer of the same user can end any process that lets it connect: ZeroMQ's ipc listener aborts
when descriptors run out, and an unfinished message may grow without a bound. So peers reach this
process only; when it dies the supervisor starts it again, and neither the broker, the ledger nor
an experiment notices. It never decides a request and never reads a body beyond its request id.

Frames in from a peer: `[routing id][PREAMBLE][body]`. To the broker, all that wait in one message
over `transport.hop`: channel `requests`, triples (routing id, `uid:pid`, body); and `audience`,
two parts: whether anybody listens to events, and to leases. From the broker: channel `replies`,
pairs (routing id, body); channel `publish`, pairs (topic, body).
"""

from __future__ import annotations

import logging
from collections.abc import Set

from ..host.clock import SystemClock
from ..host.resource_limits import cap_memory, forbid_core, raise_open_files
from ..host.signal_pipe import SignalPipe
from ..transport.correlation import peek_request_id
from ..transport.front import FrontDoor, Incoming, refusal_body
from ..transport.hop import HopClient
from ..transport.poller import Item, Poller
from ..transport.publication import Publisher
from .child_config import ChildConfig, report_ready, serve_child, supervisor_gone
from .young_objects import watch_young

MEMORY_MAX = 1024 * 1024 * 1024
PEERS_REMEMBERED = 8_192
TOPICS = (b"events", b"leases")
"""Publications that are made only while anybody listens."""
STDIN = 0


class Gateway:
    """Passes requests in, replies and publications out."""

    def __init__(self, door: FrontDoor, publisher: Publisher, hop: HopClient) -> None:
        self._door = door
        self._publisher = publisher
        self._hop = hop
        self._asked: dict[bytes, None] = {}
        self._told_audience: list[bytes] | None = None
        self.refused_restarting = 0
        self.malformed_batches = 0

    def turn(self, ready: Set[Item]) -> None:
        """Everything that waits at what is ready, in both directions. Never blocks."""
        connected = False
        if self._hop in ready:
            batches = self._hop.drain()
            connected = self._hop.connected_again()
            if connected:
                self._tell_to_ask_again()
            self._pass_out(batches)
        if connected or self._publisher in ready:
            self._tell_audience(again=connected)
        if self._door in ready and (requests := self._door.drain()):
            self._pass_in(requests)

    def _tell_audience(self, *, again: bool) -> None:
        """The broker publishes only while somebody listens."""
        self._publisher.update()
        present = [b"%d" % self._publisher.audience(topic) for topic in TOPICS]
        told = self._told_audience
        if (again or present != told) and self._hop.send(b"audience", present):
            self._told_audience = present

    def _tell_to_ask_again(self) -> None:
        """A broker came: the one before it took its waiting requests along."""
        notice = refusal_body("scheduler_restarting", "the scheduler has started again")
        asked, self._asked = self._asked, {}
        for routing_id in asked:
            self._door.send(routing_id, notice)

    def _pass_in(self, requests: list[Incoming]) -> None:
        parts: list[bytes] = []
        for request in requests:
            self._asked.pop(request.routing_id, None)
            self._asked[request.routing_id] = None
            parts += (request.routing_id, b"%d:%d" % (request.uid, request.pid), request.body)
        while len(self._asked) > PEERS_REMEMBERED:
            del self._asked[next(iter(self._asked))]
        if not self._hop.send(b"requests", parts, group=3):
            self._refuse(requests)

    def _refuse(self, requests: list[Incoming]) -> None:
        self.refused_restarting += len(requests)
        for request in requests:
            body = refusal_body(
                "scheduler_restarting",
                "its broker is not there yet",
                peek_request_id(request.body),
            )
            self._door.send(request.routing_id, body)

    def _pass_out(self, batches: list[tuple[bytes, list[bytes]]]) -> None:
        for channel, parts in batches:
            if len(parts) % 2 or channel not in (b"replies", b"publish"):
                self.malformed_batches += 1
                continue
            pairs = zip(parts[::2], parts[1::2], strict=True)
            for first, body in pairs:
                if channel == b"replies":
                    self._door.send(first, body)
                else:
                    self._publisher.publish(first, body)

    def counters(self) -> dict[str, int]:
        """What was refused and dropped since start."""
        return {
            **self._door.counters,
            "refused_restarting": self.refused_restarting,
            "malformed_batches": self.malformed_batches,
        }


def serve(config: ChildConfig) -> int:
    """Serve until told to end, or the supervisor is gone. Returns the exit status."""
    signals = SignalPipe()
    descriptors = raise_open_files()
    cap_memory(MEMORY_MAX)
    forbid_core()
    mono_ms = SystemClock().mono_ms
    door = FrontDoor(config.front, mono_ms=mono_ms)
    publisher = Publisher(config.events)
    hop = HopClient(config.hop, config.secret_bytes, mono_ms)
    gateway = Gateway(door, publisher, hop)
    poller = Poller()
    for item in (door, hop, publisher, signals, STDIN):
        poller.register(item)
    report_ready(config, descriptors=descriptors)
    watch_young()
    while True:
        ready = poller.wait(hop.retry_in_ms())
        hop.retry()
        if STDIN in ready and supervisor_gone(STDIN):
            break
        if signals in ready and "end" in signals.drain():
            break
        gateway.turn(ready)
    logging.getLogger(__name__).info("ends in order: %s", gateway.counters())
    for part in (hop, door, publisher):
        part.close()
    return 0


def main() -> None:
    """`python -m praxist_zmq.service.gateway`, started by the supervisor."""
    serve_child("gateway", serve)


if __name__ == "__main__":
    main()
