"""The launcher, a fake at the edge: it plays processes, and decides by the real `core.launch`.

What it says and when, what it repeats, what it can know of an attempt of an earlier launcher: as
`service.launching`, `service.attempts`, `service.adoption` and `service.stopping` do it with real
processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from praxist_zmq.core import launch
from praxist_zmq.core.launch import Life, Phase, advance, latest_report
from praxist_zmq.protocol import orders, reports
from praxist_zmq.service.link_counts import LinkCounts

from .shell import SimProcess
from .shims import SimShim
from .wire import FakeWire

if TYPE_CHECKING:
    from .world import SimRun, SimWorld

OWED_PAUSE_MS = 100
WELCOME_MS = 1_000


@dataclass
class SimHandle:
    """What this launcher knows of one attempt."""

    life: Life
    told: Any = None
    final: Any = None
    asked: bool = False
    abandoned: bool = False
    adopted: bool = False


class SimLauncher(SimProcess):
    """One run's launcher."""

    def __init__(self, world: SimWorld, run: SimRun) -> None:
        super().__init__(world, f"{run.name}'s launcher")
        self.run = run
        self.handles: dict[str, SimHandle] = {}
        self.wire: FakeWire | None = None
        self._owed = False
        self._counts = LinkCounts()

    def start(self) -> None:
        """A new one, with nothing in hand."""
        self.begin()
        self.handles = {}
        self.wire = None
        self._owed = False
        self._counts = LinkCounts()
        self.connect(self.run.broker)

    def kill(self) -> None:
        """Waiting shims see their channel close; the rest goes on."""
        if not self.up:
            return
        super().kill()
        for shim in self.run.shims.values():
            if shim.launcher is self:
                shim.hang_up()
        self.world.restart(self)

    def connected(self, wire: FakeWire) -> None:
        """Introduce ourselves, repeat what is in hand."""
        self.wire = wire
        self._announce()

    def cut_off(self, wire: FakeWire) -> None:
        """The broker is gone."""
        super().cut_off(wire)
        if wire is self.wire:
            self.wire = None
            self.connect(self.run.broker)

    def _announce(self) -> None:
        assert self.identity is not None
        mine = reports.LauncherConnected(launcher=self.identity, attempts=tuple(self.handles))
        known = [handle.final or latest_report(handle.life) for handle in self.handles.values()]
        self._report(mine, *(report for report in known if report is not None))

    def _report(self, *found: Any) -> None:
        if self.wire is None:
            return
        told = tuple(self._counts.leaves(report) for report in found)
        if not self.wire.send(self, ("report", told), may_be_lost=True) and not self._owed:
            self._owed = True
            self.after(OWED_PAUSE_MS, self._again)
        elif isinstance(told[0], reports.LauncherConnected) and not self._owed:
            self._owed = True
            self.after(WELCOME_MS, self._again)

    def _again(self) -> None:
        self._owed = False
        if self.wire is not None and not self._counts.welcomed:
            self._announce()

    # -- orders -----------------------------------------------------------------------------

    def heard(self, wire: FakeWire, message: Any) -> None:
        """Orders, in order."""
        ends = (orders.AbandonAttempt, orders.StopAttempt)
        called_back = {order.attempt for order, _ in message[1] if isinstance(order, ends)}
        for order, late in message[1]:
            if isinstance(order, orders.ReleaseAttempt) and order.attempt in called_back:
                self._counts.arrived(order)
            else:
                self._obey(order, late)

    def _obey(self, order: Any, late: bool) -> None:
        if not self._counts.arrived(order):
            self._announce()
        if isinstance(order, orders.Welcome | orders.IdentifyCaller):
            return
        if isinstance(order, orders.CompareCounts):
            self._report(reports.CountsCompared(reports=0))
            return
        if isinstance(order, orders.Announce):
            self._announce()
            return
        handle = self.handles.get(order.attempt)
        if isinstance(order, orders.SpawnAttempt):
            self._spawn(order) if handle is None else self._repeat(handle)
        elif isinstance(order, orders.AdoptAttempt):
            self._adopt(order) if handle is None else self._repeat(handle)
        elif handle is None:
            return
        elif isinstance(order, orders.ReleaseAttempt):
            self._release(handle, order, late)
        elif isinstance(order, orders.AbandonAttempt):
            self._abandon(handle)
        elif isinstance(order, orders.StopAttempt):
            self._stop(handle, order.grace_ms)
        elif isinstance(order, orders.ForgetAttempt) and handle.life.phase is Phase.ENDED:
            del self.handles[order.attempt]

    def _repeat(self, handle: SimHandle) -> None:
        report = handle.final or latest_report(handle.life)
        if report is not None:
            self._report(report)

    def _spawn(self, order: orders.SpawnAttempt) -> None:
        handle = SimHandle(Life(order.attempt), asked=True)
        self.handles[order.attempt] = handle
        rng = self.world.rng
        if self.world.faults.hits("no spawn"):
            fact: Any = launch.Withdrawn("no room for it now")
            if rng.random() < 0.5:
                fact = launch.SpawnRefused("process_start", rng.random() < 0.5, "refused")
            self.after(rng.choice((1, 40, 900)), lambda: self.learn(order.attempt, fact))
            return
        self.after(rng.choice((2, 5, 40, 400)), lambda: self._fork(handle, order))

    def _fork(self, handle: SimHandle, order: orders.SpawnAttempt) -> None:
        shim = SimShim(self.world, self.run, order.attempt, self)
        self.run.give(shim, order)
        handle.asked = False
        self.learn(order.attempt, launch.ShimReady(shim.identity))
        if handle.abandoned:
            self._leave_barrier(handle, shim)

    def _leave_barrier(self, handle: SimHandle, shim: SimShim) -> None:
        handle.abandoned = True
        shim.hang_up()
        self.after(5, lambda: self.learn(shim.attempt, launch.ShimGone(never_ran=True)))

    def _release(self, handle: SimHandle, order: orders.ReleaseAttempt, late: bool) -> None:
        if order.until_ms < self.world.time.now_ms:
            self._announce()
        elif handle.life.phase is Phase.WAITING and not handle.abandoned:
            self.learn(handle.life.attempt, launch.GoGiven())
            self.run.shims[handle.life.attempt].go(late)
        else:
            self._repeat(handle)

    def _abandon(self, handle: SimHandle) -> None:
        if handle.life.phase is Phase.SPAWNING:
            handle.abandoned = True
        elif handle.life.phase is Phase.WAITING:
            if not handle.abandoned:
                self._leave_barrier(handle, self.run.shims[handle.life.attempt])
        elif handle.life.phase is Phase.RELEASED:
            self._call_back(handle)
        else:
            self._repeat(handle)

    def _call_back(self, handle: SimHandle) -> None:
        shim = self.run.shims[handle.life.attempt]
        if shim.call_back():
            self.after(5, lambda: self.learn(shim.attempt, launch.ShimGone(never_ran=True)))

    def _stop(self, handle: SimHandle, grace_ms: int) -> None:
        if handle.life.phase in (Phase.SPAWNING, Phase.WAITING, Phase.ENDED):
            self._abandon(handle)
            return
        if handle.life.phase is Phase.RELEASED:
            self._call_back(handle)
        shim = self.run.shims.get(handle.life.attempt)
        if shim is not None:
            self.learn(handle.life.attempt, launch.Signalled())
            shim.terminate(grace_ms)

    # -- what becomes of attempts -------------------------------------------------------------

    def learn(self, attempt: str, fact: Any) -> None:
        """Advance a life by one fact, and report what changed."""
        handle = self.handles.get(attempt)
        if not self.up or handle is None:
            return
        before = handle.life.phase
        handle.life = advance(handle.life, fact)
        if handle.life.phase is Phase.ENDED:
            if before is not Phase.ENDED:
                handle.final = latest_report(handle.life)
                self._report(handle.final)
            return
        report = latest_report(handle.life)
        if report is not None and report != handle.told:
            handle.told = report
            self._report(report)
        if handle.life.phase is Phase.SWEEPING:
            self.after(20, lambda: self._sweep(attempt))

    def _sweep(self, attempt: str) -> None:
        """The shim is gone: it ends when nothing of it is found."""
        shim = self.run.shims.get(attempt)
        if shim is None or not shim.tree:
            self.learn(attempt, launch.TreeAbsent())

    def _adopt(self, order: orders.AdoptAttempt) -> None:
        name = order.attempt
        if order.shim is None:
            self.handles[name] = SimHandle(Life(name, phase=Phase.WAITING), adopted=True)
            self.learn(name, launch.ShimGone(detail="it was never bound"))
            return
        life = Life(name, phase=Phase.ADOPTED, shim=order.shim, leader=order.leader, signalled=None)
        self.handles[name] = SimHandle(life, adopted=True)
        shim = self.run.shims.get(name)
        if order.shim.boot_id != self.world.boot_id:
            self._conclude(name, shim, order)
            self.learn(name, launch.TreeAbsent())
            return
        self.noticed(name)

    def noticed(self, attempt: str) -> None:
        """Something happened to an attempt of an earlier launcher: look, a little later."""
        handle = self.handles.get(attempt)
        if self.up and handle is not None:
            self.after(self.world.rng.choice((0, 10, 200)), lambda: self._look(attempt))

    def _look(self, attempt: str) -> None:
        handle, shim = self.handles.get(attempt), self.run.shims.get(attempt)
        if handle is None or handle.life.phase is Phase.ENDED:
            return
        if handle.life.phase is Phase.SWEEPING:
            self._sweep(attempt)
            return
        if not handle.adopted:
            return
        if shim is None or shim.identity != handle.life.shim:
            self.learn(attempt, launch.ShimGone(never_ran=False))
            return
        if not shim.alive:
            self._conclude(attempt, shim, handle.life)
            return
        leader = shim.leader
        known = leader is not None and (self.world.alive(leader) or handle.life.leader == leader)
        if handle.life.phase is Phase.ADOPTED and leader is not None and known:
            self.learn(attempt, launch.LeaderStarted(leader, shim.started_ms))
        if handle.life.phase is Phase.RUNNING and shim.record is not None:
            pids = tuple(one.pid for one in shim.tree)
            self.learn(attempt, launch.LeaderEnded(shim.record, survivors=pids))

    def _conclude(self, attempt: str, shim: SimShim | None, known: Any) -> None:
        """The shim is gone: the evidence says how it ended."""
        if shim is not None and shim.record is not None:
            self.learn(attempt, launch.LeaderEnded(shim.record))
        never = shim is not None and not shim.went and known.leader is None
        self.learn(attempt, launch.ShimGone(never_ran=never))
        handle = self.handles.get(attempt)
        if handle is not None and handle.life.phase is Phase.SWEEPING:
            self.after(20, lambda: self._sweep(attempt))
