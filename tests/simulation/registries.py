"""The claim registry of the fake host: the real machine behind a door, watching processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from praxist_zmq.core.claim import ClaimMachine
from praxist_zmq.core.claim_commands import (
    BrokersGone,
    BrokerUnreachable,
    ClaimCommand,
    ProcessesProvedAbsent,
    RegistryStarted,
)
from praxist_zmq.core.claim_invariants import history_violations, state_violations
from praxist_zmq.protocol import claims
from praxist_zmq.protocol.codec import decode, decode_claim_event, encode

from .shell import MachineShell
from .wire import FakeWire

if TYPE_CHECKING:
    from .world import SimWorld

OPEN_AFTER_MS = 30


class SimRegistry(MachineShell):
    """One per host."""

    machine: ClaimMachine

    def __init__(self, world: SimWorld) -> None:
        super().__init__(world, "the registry")
        self.history: list[Any] = []
        self._told: set[Any] = set()
        self._base = 0
        self._asked: dict[str, claims.Reserve] = {}

    def start(self) -> None:
        """Replay, open a new epoch, see who died meanwhile, then let brokers in."""
        snapshot = self.disk.snapshot
        found = None if snapshot is None else decode(claims.ClaimSnapshot, snapshot)
        self.machine = ClaimMachine(found)
        for sequence, body in enumerate(self.disk.records, 1):
            if found is None or sequence > self.snapshot_sequence:
                self.machine.apply(decode_claim_event(body), sequence)
        self._base = len(self.disk.records) - self.machine.recorded
        self._told = set()
        self.begin()
        self.world.note(self.name, "starts", self.machine.state.epoch + 1)
        self.guarded(lambda: self.turn([RegistryStarted(self.world.boot_id, 0), *self._gone()]))
        self._wake()

    snapshot_sequence = 0

    def take_snapshot(self) -> None:
        """Of what is on disk."""
        machine = ClaimMachine()
        for sequence, body in enumerate(self.disk.records[: self.disk.synced], 1):
            machine.apply(decode_claim_event(body), sequence)
        self.disk.snapshot = encode(machine.snapshot())
        self.snapshot_sequence = self.disk.synced

    def turn(self, commands: list[Any]) -> None:
        """One turn; whoever is watched anew and gone already is a fact for the next."""
        super().turn(commands)
        gone = self._gone()
        if gone:
            self.take(*gone)

    def look(self) -> None:
        """A process ended: a pidfd may have fired."""
        if self.up:
            self.after(self.world.rng.randint(0, 3), lambda: self.take(*self._gone()))

    def _gone(self) -> list[Any]:
        """Watched processes that are proved gone, each told once."""
        watches = self.machine.state.watches
        self._told &= set(watches)
        gone = [
            watch
            for watch in watches
            if watch not in self._told and not self.world.alive(watch.identity)
        ]
        self._told.update(gone)
        brokers = tuple(watch for watch in gone if watch.attempt is None)
        shims = tuple(watch for watch in gone if watch.attempt is not None)
        facts: list[Any] = [BrokersGone(brokers)] if brokers else []
        return [*facts, ProcessesProvedAbsent(shims)] if shims else facts

    # -- in and out -------------------------------------------------------------------------

    def heard(self, wire: FakeWire, message: Any) -> None:
        """A broker's request; where a connection broke, a copy of it may follow."""
        _, (request_id, request) = message
        sender = wire.ends[0].identity
        pid = 0 if sender is None else sender.pid
        self.take(ClaimCommand(wire, request_id, request, 0, pid))

    def unsynced(self) -> bool:
        """Whether an event is not on disk."""
        return self._base + self.machine.recorded > self.disk.synced

    def send_out(self, outbox: list[Any]) -> None:
        """To the brokers."""
        for send in outbox:
            if not send.address.send(self, ("registry", (send.request_id, send.message))):
                self.take(BrokerUnreachable(send.address))

    # -- what must hold ---------------------------------------------------------------------

    def check(self) -> None:
        """The state's invariants; leases never stand beside more than the host takes."""
        for words in state_violations(self.machine.state):
            self.world.fault(f"{self.name}: {words}")

    def _durable(self, payloads: list[bytes], *, torn: bool = False) -> None:
        for body in payloads:
            event = decode_claim_event(body)
            self.history.append(event)
            if isinstance(event, claims.ClaimReserved):
                self.world.reserved += 1

    def check_history(self) -> None:
        """Over everything that was ever on its disk."""
        for words in history_violations(self.history):
            self.world.fault(f"{self.name}'s history: {words}")
        again = ClaimMachine()
        for sequence, body in enumerate(self.disk.records[: self.disk.synced], 1):
            again.apply(decode_claim_event(body), sequence)
        if self.up and _durable_part(again) != _durable_part(self.machine):
            self.world.fault(f"{self.name}: its replay is another state")


def _durable_part(machine: ClaimMachine) -> Any:
    """Rows, and whose they are; counts of running and queued work are only shown."""
    state = machine.state
    brokers = {key: (run.broker, run.epoch) for key, run in state.runs.items()}
    return state.rows, brokers, state.epoch, state.boot_id
