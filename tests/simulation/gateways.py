"""The gateway and the supply process of a fake run: they own nothing and may die at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from praxist_zmq.core.supply import SupplyPlanner
from praxist_zmq.protocol.codec import encode
from praxist_zmq.protocol.replies import Refusal

from .shell import SimProcess
from .wire import FakeWire

if TYPE_CHECKING:
    from .peers import SimPeer
    from .world import SimRun, SimWorld

LATE_JOINER_MS = 100


class SimGateway(SimProcess):
    """Passes requests in, replies out; what it publishes may be lost, come twice or in disorder."""

    def __init__(self, world: SimWorld, run: SimRun) -> None:
        super().__init__(world, f"{run.name}'s gateway")
        self.run = run
        self.wire: FakeWire | None = None
        self.listeners: dict[SimPeer, int] = {}
        """Who subscribed -> when their subscription has arrived."""
        self._asked: dict[FakeWire, None] = {}
        self._told: Any = None

    def start(self) -> None:
        """A new one."""
        self.begin()
        self.wire, self._asked, self._told = None, {}, None
        self.listeners = dict.fromkeys(self.listeners, self.world.time.now_ms + LATE_JOINER_MS)
        self.connect(self.run.broker)

    def kill(self) -> None:
        """All connections are gone."""
        if self.up:
            super().kill()
            self.world.restart(self)

    def connected(self, wire: FakeWire) -> None:
        """A broker came: the one before it took its waiting requests along."""
        self.wire, self._told = wire, None
        asked, self._asked = self._asked, {}
        for peer_wire in asked:
            notice = _refusal("the scheduler has started again")
            peer_wire.send(self, (None, notice), may_be_full=False)
        self.tell_audience()

    def cut_off(self, wire: FakeWire) -> None:
        """The broker, or a peer, is gone."""
        super().cut_off(wire)
        self._asked.pop(wire, None)
        if wire is self.wire:
            self.wire = None
            self.connect(self.run.broker)

    def tell_audience(self) -> None:
        """The broker publishes only while somebody listens."""
        present = (self.run.events_audience, bool(self.listeners))
        if self.wire is not None and present != self._told:
            if self.wire.send(self, ("audience", present)):
                self._told = present
            else:
                self.after(100, self.tell_audience)

    def heard(self, wire: FakeWire, message: Any) -> None:
        """From a peer inward, from the broker outward."""
        if len(message) == 3:
            self._pass_in(wire, message)
        elif message[0] == "replies":
            for peer_wire, request_id, reply in message[1]:
                peer_wire.send(self, (request_id, reply), may_be_full=False)
        else:
            for topic, body in message[1]:
                self._publish(topic, body)

    def _pass_in(self, wire: FakeWire, message: Any) -> None:
        request_id, digest, request = message
        self._asked[wire] = None
        if self.wire is None or not self.wire.send(
            self, ("requests", [(wire, request_id, digest, request)])
        ):
            wire.send(self, (request_id, _refusal("it is not there yet")), may_be_full=False)

    def _publish(self, topic: bytes, message: Any) -> None:
        body = encode(message)
        faults = self.world.faults
        for peer, since_ms in self.listeners.items():
            if since_ms > self.world.time.now_ms or not peer.hears(topic):
                continue
            if faults.hits("publication lost"):
                continue
            for _ in range(2 if faults.hits("publication twice") else 1):
                delay = self.world.rng.randint(1, 3)
                if faults.hits("publication late"):
                    delay += self.world.rng.choice((30, 1_000))
                self.world.time.after(delay, lambda peer=peer: peer.told(topic, body))


def _refusal(words: str) -> Refusal:
    return Refusal(code="scheduler_restarting", detail=words, help=())


class SimSupply(SimProcess):
    """The real planner behind a link."""

    def __init__(self, world: SimWorld, run: SimRun) -> None:
        super().__init__(world, f"{run.name}'s supply")
        self.run = run
        self._planner = SupplyPlanner()

    def start(self) -> None:
        """A new one counts from zero."""
        self.begin()
        self._planner = SupplyPlanner()
        self.connect(self.run.broker)

    def kill(self) -> None:
        """Nothing of it is missed."""
        if self.up:
            super().kill()
            self.world.restart(self)

    def connected(self, wire: FakeWire) -> None:
        """I am here."""
        self._planner.forget()
        wire.send(self, ("supply", None), may_be_full=False)  # a new link is empty

    def cut_off(self, wire: FakeWire) -> None:
        """The broker is gone."""
        super().cut_off(wire)
        self.connect(self.run.broker)

    def heard(self, wire: FakeWire, message: Any) -> None:
        """Facts; mostly nothing follows."""
        plan = self._planner.decide(message[1])
        if plan.offers:
            wire.send(self, ("supply", plan))
