"""The broker of a fake run: the real machine, with the links of `service.broker` around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from praxist_zmq.core import broker_snapshot
from praxist_zmq.core.broker import Broker
from praxist_zmq.core.commands import (
    AudienceChanged,
    ClientRequest,
    LauncherLost,
    LauncherSaid,
    RegistryConnected,
    RegistryLost,
    RegistrySaid,
    SignalSeen,
    SupplyLost,
    SupplySaid,
)
from praxist_zmq.core.invariants import check_state
from praxist_zmq.core.soft import SoftState
from praxist_zmq.core.state import BrokerState
from praxist_zmq.protocol import orders
from praxist_zmq.protocol.codec import decode_event

from .shell import MachineShell
from .wire import FakeWire
from .witness import RunWitness

if TYPE_CHECKING:
    from .world import SimRun, SimWorld

RESEND_MS = 2_000


class SimBroker(MachineShell):
    """One run's broker."""

    machine: Broker

    def __init__(self, world: SimWorld, run: SimRun) -> None:
        super().__init__(world, f"{run.name}'s broker")
        self.run = run
        self.witness = RunWitness(self)
        self.registry_wire: FakeWire | None = None
        self.gateway_wire: FakeWire | None = None
        self._pending: dict[str, tuple[int, Any]] = {}
        self._lost: list[Any] = []
        self._out: set[str] = set()
        """Leases and offers at the last look."""

    # -- its life ---------------------------------------------------------------------------

    def start(self, *, reopen: bool = False) -> None:
        """Replay the disk, begin, connect."""
        snapshot = self.disk.snapshot
        state = BrokerState() if snapshot is None else broker_snapshot.load(snapshot)
        soft = SoftState(
            run_dir=f"/{self.run.name}/dir",
            run_key=self.run.key,
            user="tester",
            credentials_key=b"key",
        )
        self.machine = Broker(state, soft)
        for sequence, body in enumerate(self.disk.records, 1):
            if sequence > state.last_sequence:
                self.machine.apply(decode_event(body), sequence)
        self.sample_before: Any = None
        self.begin()
        self.witness.restarted()
        soft.broker = self.identity
        self.registry_wire = self.gateway_wire = None
        self._pending, self._lost = {}, []
        self.world.note(self.name, "starts", self.machine.state.epoch + 1, f"reopen={reopen}")
        for words in check_state(self.machine.state):
            self.world.fault(f"{self.name} after recovery: {words}")

        def begin() -> None:
            decision = self.machine.begin(
                self.world.time.stamp(),
                run_id=self.run.name,
                boot_id=self.world.boot_id,
                version="sim",
                policy=self.run.policy,
                generation=self.machine.state.generation,
                reopen=reopen,
            )
            self.step.finish(decision.events, decision.outbox)

        self.guarded(begin)
        if self.up:
            self.connect(self.world.registry)
            self._wake()

    def turn(self, commands: list[Any]) -> None:
        """What was lost first, as the real shell does; close files before requests."""
        lost, self._lost = self._lost, []
        self.sample_before = self.machine.soft.sample
        self.witness.turn_begins()
        signals = [SignalSeen(number, name) for number, name in self.run.close_files()]
        super().turn([*lost, *signals, *commands])
        self._resend()
        if self.machine.stopped:
            self._leave()

    def _leave(self) -> None:
        """The stop is complete: last words, then the end."""
        self.step.flush()
        last = self.machine.end(self.world.time.stamp())
        self.step.finish(last.events, last.outbox)
        self.world.note(self.name, "has stopped")
        self.kill()
        self.run.down()

    # -- in ---------------------------------------------------------------------------------

    def connected(self, wire: FakeWire) -> None:
        """The registry's door let us in."""
        self.registry_wire = wire
        self._pending.clear()
        self.take(RegistryConnected())

    def cut_off(self, wire: FakeWire) -> None:
        """A link is gone."""
        super().cut_off(wire)
        if wire is self.registry_wire:
            self.registry_wire = None
            self._pending.clear()
            self.take(RegistryLost())
            self.connect(self.world.registry)

    def heard(self, wire: FakeWire, message: Any) -> None:
        """A message of somebody's becomes commands."""
        kind, body = message
        if kind == "requests":
            self.take(
                *(
                    ClientRequest((wire, routing), request_id, digest, request, 0, 1)
                    for routing, request_id, digest, request in body
                )
            )
        elif kind == "report":
            self.take(*(LauncherSaid(wire, report) for report in body))
        elif kind == "audience":
            self.gateway_wire = wire
            self.take(AudienceChanged(*body))
        elif kind == "supply":
            self.take(SupplySaid(wire, body))
        elif kind == "registry":
            request_id, reply = body
            if request_id is None or self._pending.pop(request_id, None) is not None:
                self.take(RegistrySaid(request_id, reply))
        else:
            raise AssertionError(kind)

    # -- out --------------------------------------------------------------------------------

    def unsynced(self) -> bool:
        """Whether an event is not on disk."""
        return self.machine.recorded > self.disk.synced

    def send_out(self, outbox: list[Any]) -> None:
        """As `service.broker`: answers first, then inward, orders last."""
        replies: dict[FakeWire, list[Any]] = {}
        told: list[Any] = []
        ordered: dict[FakeWire, list[Any]] = {}
        for send in outbox:
            if send.to == "client":
                wire, routing = send.address
                self.witness.answered(send.request_id, send.message)
                replies.setdefault(wire, []).append((routing, send.request_id, send.message))
            elif send.to == "launcher":
                late = self.witness.ordered(send.message)
                ordered.setdefault(send.address, []).append((send.message, late))
            elif send.to == "registry":
                self._ask_registry(send.request_id or "", send.message)
            elif send.to == "events":
                told.append((b"events", send.message))
            elif send.to == "leases":
                told.append((send.address, send.message))
            elif send.to == "supply":
                if not send.address.send(self, ("facts", send.message)):
                    self._lost.append(SupplyLost(send.address))
                    self._wake()
            elif isinstance(send.message, orders.RestartProcess):
                self.run.launcher.kill()
            elif isinstance(send.message, orders.SampleNow):
                self.run.sampler.ask()
            elif isinstance(send.message, orders.WriteClosingSignal):
                self.run.write_close_file(send.message)
        for wire, pairs in replies.items():
            # A full link would leave waiting clients without their answer; see `FakeGateway`.
            wire.send(self, ("replies", pairs), may_be_full=False)
        if told and self.gateway_wire is not None:
            self.gateway_wire.send(self, ("publish", told))
        for wire, found in ordered.items():
            if not wire.send(self, ("order", found), may_be_lost=True):
                self._lost.append(LauncherLost(wire))
                self._wake()

    def _ask_registry(self, request_id: str, message: Any) -> None:
        self._pending[request_id] = (self.world.time.now_ms, message)
        if self.registry_wire is not None:
            self.registry_wire.send(self, ("request", (request_id, message)))

    def _resend(self) -> None:
        now = self.world.time.now_ms
        for request_id, (sent_ms, message) in list(self._pending.items()):
            if now - sent_ms < RESEND_MS or self.registry_wire is None:
                break
            del self._pending[request_id]
            self._ask_registry(request_id, message)

    # -- what must hold ---------------------------------------------------------------------

    def check(self) -> None:
        """The state's invariants, and those of leases in memory."""
        state, memory = self.machine.state, self.machine.soft.leases
        faults = check_state(state)
        if set(state.leases.live) - set(memory.holds):
            faults.append("a live lease without room at the host")
        if set(memory.due_ms) != set(state.leases.live):
            faults.append("windows and live leases differ")
        peers = [lease.peer for lease in state.leases.live.values()]
        if len(set(peers)) != len(peers):
            faults.append(f"a peer has two live leases: {sorted(peers)}")
        if set(memory.idle) & set(peers):
            faults.append("a peer waits and has a lease")
        out = {*state.leases.live, *memory.offers}
        # What is out when the limit falls stays, until real work comes (A42).
        if len(out) > state.limit and out - self._out:
            faults.append(f"{len(peers)} leases and {len(memory.offers)} offers for {state.limit}")
        self._out = out
        for words in faults:
            self.world.fault(f"{self.name}: {words}")

    def _durable(self, payloads: list[bytes], *, torn: bool = False) -> None:
        self.witness.durable([decode_event(body) for body in payloads], torn=torn)

    def take_snapshot(self) -> None:
        """What the compactor does: replay what is on disk, keep the state."""
        self.disk.snapshot = broker_snapshot.dump(self.replayed().state)

    def replayed(self) -> Broker:
        """The durable history in a fresh machine."""
        reader = Broker()
        for sequence, body in enumerate(self.disk.records[: self.disk.synced], 1):
            reader.apply(decode_event(body), sequence)
        return reader
