"""A fake process around a real machine: its inbox, its turns, its timers, its death.

The order of a turn is not imitated: it is `service.step.Step`, on a fake ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from praxist_zmq.protocol.process import ProcessIdentity
from praxist_zmq.service.step import Step

from .disk import FakeDisk, FakeLedger, Killed
from .wire import FakeWire

if TYPE_CHECKING:
    from .world import SimWorld

SPINS_MAX = 400
"""Turns in a row that neither a message nor an event nor a second of time explains."""


class SimProcess:
    """Something that can be started, stalled and killed."""

    def __init__(self, world: SimWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.life = 0
        self.up = False
        self.identity: ProcessIdentity | None = None
        self.wires: list[FakeWire] = []
        self.stalled_until_ms = 0
        self.parted_until_ms = 0

    def begin(self) -> None:
        """A new process, with nothing in memory."""
        self.life += 1
        self.up = True
        self.identity = self.world.new_process(self.name)
        self.stalled_until_ms = 0

    def kill(self) -> None:
        """SIGKILL: what was sent stays sent, what was in memory is gone."""
        if not self.up:
            return
        self.world.note(self.name, "is killed")
        self.up = False
        wires, self.wires = self.wires, []
        for wire in wires:
            wire.cut()
        assert self.identity is not None
        self.world.end_process(self.identity)

    def after(self, delay_ms: int, action: Any) -> None:
        """Have this very process do something later, if it lives then."""
        life = self.life

        def act() -> None:
            if self.up and self.life == life:
                left = self.stalled_until_ms - self.world.time.now_ms
                if left > 0:
                    self.world.time.after(left, act)
                else:
                    action()

        self.world.time.after(delay_ms, act)

    def connect(self, server: SimProcess, pause_ms: int = 50) -> None:
        """Connect to a process, now or as soon as it is there."""
        parted = max(self.parted_until_ms, server.parted_until_ms)
        if server.up and parted <= self.world.time.now_ms:
            wire = FakeWire(self.world, self, server)
            self.wires.append(wire)
            server.wires.append(wire)
            server.accepted(wire)
            self.connected(wire)
        else:
            pause_ms = min(pause_ms * 2, 400)
            self.after(pause_ms, lambda: self.connect(server, pause_ms))

    def accepted(self, wire: FakeWire) -> None:
        """Somebody has connected to us."""

    def connected(self, wire: FakeWire) -> None:
        """We have connected to somebody."""

    def heard(self, wire: FakeWire, message: Any) -> None:
        """A message arrived."""

    def cut_off(self, wire: FakeWire) -> None:
        """A connection is gone."""
        if wire in self.wires:
            self.wires.remove(wire)


class MachineShell(SimProcess):
    """A process whose machine has a ledger."""

    machine: Any

    def __init__(self, world: SimWorld, name: str) -> None:
        super().__init__(world, name)
        self.disk = FakeDisk()
        self._inbox: list[Any] = []
        self._woken = False
        self._timer_ms: int | None = None
        self._spins = 0

    def begin(self) -> None:
        """A new process."""
        super().begin()
        self._inbox = []
        self._woken = False
        self._timer_ms = None
        self._spins = 0
        self.sends_left = -1
        ledger: Any = FakeLedger(self.disk, self.world.faults.hits, self._durable)
        self.step = Step(self.machine, ledger, self._guarded_send, self.refuse)

    def kill(self) -> None:
        """SIGKILL: of what was written and not synced, any beginning is left."""
        if not self.up:
            return
        tail = self.disk.crash(self.world.rng)
        if tail:
            self._durable(tail, torn=True)
        super().kill()
        self.world.restart(self)

    def take(self, *commands: Any) -> None:
        """Something waits for the next turn."""
        self._inbox += commands
        self._wake()

    def _wake(self) -> None:
        if not self._woken and self.up:
            self._woken = True
            self.after(0, self._run)

    def _run(self) -> None:
        self._woken = False
        commands, self._inbox = self._inbox, []
        self.guarded(lambda: self.turn(commands))
        if not self.up:
            return
        busy = bool(commands)
        self._spins = 0 if busy else self._spins + 1
        if self._spins > SPINS_MAX:
            self.world.fault(f"{self.name} spins: it wakes for nothing again and again")
            self._spins = 0
        self._arm()

    def guarded(self, action: Any) -> None:
        """Do something at which this process may be killed."""
        try:
            action()
        except Killed:
            self.kill()

    def _arm(self) -> None:
        dues = [due for due in (self.machine.wake_at_ms(), self.step.due_ms()) if due is not None]
        if not dues:
            return
        now = self.world.time.now_ms
        due = max(min(dues), now + 1)
        if self._timer_ms is None or due < self._timer_ms or self._timer_ms <= now:
            self._timer_ms = due
            self.after(due - now, self._wake)

    def turn(self, commands: list[Any]) -> None:
        """One turn by the one order, then what must hold after it."""
        events = self.machine.recorded
        self.step.turn(commands, self.world.time.stamp())
        if self.machine.recorded != events:
            self._spins = 0
        self.check()

    def _guarded_send(self, outbox: list[Any]) -> None:
        """Nothing leaves before what justifies it is on disk."""
        if self.unsynced():
            self.world.fault(f"{self.name} sends before what it recorded is on disk")
        if outbox and self.world.faults.hits("killed between sends"):
            outbox = outbox[: self.world.rng.randrange(len(outbox))]
            self.send_out(outbox)
            raise Killed
        self.send_out(outbox)

    def unsynced(self) -> bool:
        """Whether the machine has recorded more than the disk holds."""
        raise NotImplementedError

    def send_out(self, outbox: list[Any]) -> None:
        """Hand messages to the network."""
        raise NotImplementedError

    def refuse(self, command: Any) -> Any:
        """A fault of ours ends the simulation: nothing is hidden behind a refusal."""
        return None

    def check(self) -> None:
        """What must hold of the machine now."""

    def _durable(self, payloads: list[bytes], *, torn: bool = False) -> None:
        """These records are on disk now."""
        raise NotImplementedError
