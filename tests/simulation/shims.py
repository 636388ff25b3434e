"""Fake processes of the host: shims with their evaluators, whose files and lives outlive launchers.

They play what a script drawn from the seed says: how long, with which status, what escapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from praxist_zmq.core import launch
from praxist_zmq.protocol.evidence import ExitRecord
from praxist_zmq.protocol.process import ProcessIdentity

if TYPE_CHECKING:
    from .launchers import SimLauncher
    from .world import SimRun, SimWorld

TERM_MS = 15


class SimShim:
    """One attempt's shim. It takes GO once, from the launcher that started it."""

    def __init__(self, world: SimWorld, run: SimRun, attempt: str, launcher: SimLauncher) -> None:
        rng, faults = world.rng, world.faults
        self.world, self.run, self.attempt = world, run, attempt
        self.identity = world.new_process(f"shim of {attempt}")
        self.launcher: SimLauncher | None = launcher
        self.launcher_life = launcher.life
        self.went = False
        self.leader: ProcessIdentity | None = None
        self.started_ms = 0
        self.record: ExitRecord | None = None
        self.escaped: list[ProcessIdentity] = []
        self.destroyed = False
        """SIGKILLed, or its host lost power: its evidence may be lost."""
        self.stopping = False
        self.exec_fails = faults.hits("no exec")
        self.stubborn = faults.hits("stubborn")
        self.escapees = rng.randint(1, 2) if faults.hits("escapees") else 0
        self.lasts_ms = rng.choice((20, 300, 2_000, 6_000))
        self.exit_code = rng.choice((0, 0, 0, 0, 1, 75))
        self.devices: tuple[str, ...] = ()
        self.uses_mib, self.uses_pct = 0, 0.0
        self.declared: tuple[bool, int, float] = (False, 0, 0.0)
        """(alone on its devices, MiB, percent)"""

    @property
    def alive(self) -> bool:
        """Whether the shim itself lives."""
        return self.world.alive(self.identity)

    @property
    def tree(self) -> list[ProcessIdentity]:
        """What lives of the experiment."""
        members = [self.leader] if self.leader is not None else []
        return [one for one in (*members, *self.escaped) if self.world.alive(one)]

    def _tell(self, fact: Any) -> None:
        if self.launcher is not None and self.launcher.life == self.launcher_life:
            self.launcher.learn(self.attempt, fact)
        else:
            self.run.launcher.noticed(self.attempt)

    def _later(self, delay_ms: int, action: Any) -> None:
        """A timer of the shim's own."""

        def act() -> None:
            if self.alive:
                action()

        self.world.time.after(delay_ms, act)

    # -- what it does -----------------------------------------------------------------------

    def hang_up(self) -> None:
        """The channel closed: at its barrier it leaves; what runs goes on."""
        self.launcher = None
        if not self.went:
            self._later(self.world.rng.randint(0, 3), self._leave_barrier)

    def _leave_barrier(self) -> None:
        if not self.went:
            self.world.end_process(self.identity)
            self.run.launcher.noticed(self.attempt)

    def go(self, late: bool) -> None:
        """GO is in its channel: it is read a little later, unless it is called back."""
        self._later(self.world.rng.randint(0, 4), lambda: self._start(late))

    def call_back(self) -> bool:
        """Its launcher takes GO back: whether that comes in time."""
        if self.went:
            return False
        self.hang_up()
        return True

    def _start(self, late: bool) -> None:
        if self.launcher is None:
            return  # its channel closed before it took GO
        self.went = True
        self._tell(launch.Going())
        if self.exec_fails:
            self.world.starts(self, late=False)
            self._end("exec_failed", None, None, errno=2)
            return
        self.leader = self.world.new_process(f"evaluator of {self.attempt}")
        self.started_ms = self.world.time.wall_ms()
        self.world.starts(self, late=late)
        self._tell(launch.LeaderStarted(self.leader, self.started_ms))
        self._later(self.lasts_ms, self._exit)
        if self.world.faults.hits("shim killed"):
            self._later(self.world.rng.randint(0, 2_000), self.destroy)

    def _exit(self) -> None:
        if self.leader is not None and self.world.alive(self.leader):
            code, signal = (self.exit_code, None) if not self.stopping else (None, 15)
            for _ in range(self.escapees):
                self.escaped.append(self.world.new_process(f"escapee of {self.attempt}"))
            self.world.end_process(self.leader)
            self._end("exited", code, signal)

    def _end(self, outcome: Any, code: int | None, signal: int | None, errno: Any = None) -> None:
        self.record = ExitRecord(
            attempt=self.attempt, shim=self.identity, outcome=outcome, exit_code=code,
            signal=signal, errno=errno, detail="", ended_at_ms=self.world.time.wall_ms(),
            wall_ms=1, user_ms=0, system_ms=0, max_rss_kib=0,
        )  # fmt: skip
        pids = tuple(one.pid for one in self.tree)
        self._tell(launch.LeaderEnded(self.record, drained=not pids, survivors=pids))
        for one in self.tree:
            lasts = self.world.rng.choice((50, 1_000, 4_000))
            self.world.time.after(lasts, lambda one=one: self._escapee_ends(one))
        if not pids:
            self._later(self.world.rng.randint(0, 2), self._leave)

    def _escapee_ends(self, one: ProcessIdentity) -> None:
        self.world.end_process(one)
        if not self.tree:
            self._later(1, self._leave)
            self.run.launcher.noticed(self.attempt)

    def _leave(self) -> None:
        """Nothing is below it any more."""
        if self.tree:
            return
        self.world.end_process(self.identity)
        self._tell(launch.ShimGone())

    # -- what others do to it ---------------------------------------------------------------

    def destroy(self) -> None:
        """SIGKILL of the shim: its evaluator goes on without it, and its status is lost."""
        if not self.alive:
            return
        self.world.note(f"shim of {self.attempt}", "is killed")
        self.destroyed = True
        self.world.end_process(self.identity)
        if self.leader is not None and self.world.alive(self.leader):
            self.world.time.after(self.lasts_ms, lambda: self._end_orphan(self.leader))
        self._tell(launch.ShimGone(never_ran=False))

    def _end_orphan(self, one: Any) -> None:
        self.world.end_process(one)
        self.run.launcher.noticed(self.attempt)

    def terminate(self, grace_ms: int) -> None:
        """TERM, grace, KILL, of the whole tree."""
        self.stopping = True
        wait = grace_ms + 5 if self.stubborn else min(TERM_MS, grace_ms)
        self.world.time.after(wait, self._killed)

    def _killed(self) -> None:
        for one in list(self.escaped):
            self._escapee_ends(one)
        if self.leader is not None and self.world.alive(self.leader):
            if self.alive:
                self.escapees = 0
                self._exit()
            else:
                self._end_orphan(self.leader)

    def vanish(self) -> None:
        """The host lost power."""
        self.destroyed = True
        for one in (*self.tree, self.identity):
            self.world.end_process(one)
