"""Starts the processes of a run in order, watches them, restarts them, ends them in order.

Decides nothing about jobs, reads no ledger, and signals nobody but its own children, which it
has not reaped yet (their numbers are therefore still theirs). One loop serves every phase, so a
signal is obeyed within a turn also while the processes are starting.

Rules: `service.restart` for intensity, permanent and passing failures (Erlang/OTP); readiness by
message with a bound (s6, systemd); start in order, end in reverse order. The end of a child is told
by SIGCHLD, which also tells of orphans that this process, a subreaper, has inherited; so no pidfd
is kept for children. The registry is nobody's child: it is watched by a pidfd.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from ..errors import PraxistError
from ..host import spawn
from ..host.clock import Clock
from ..host.fresh_place import FreshPlace
from ..host.service_manager import notify, watchdog_interval_ms
from ..host.signal_pipe import SignalPipe
from ..host.subreaper import become_subreaper
from ..protocol.reports import ProcessesSeen
from ..transport.poller import Poller
from .child import Child
from .child_config import STOPPED_WITHOUT_FENCE
from .last_failure import leave_failure
from .restart import RESTARTS_MAX, STARTS_IN_VAIN_MAX, RestartIntensity, likely_cause
from .run_standing import OWNER, RunStanding
from .supervisor_links import BrokerLink, Registry, RunFiles

READY_BOUND_MS = 30_000
"""Longest silence of a child that is starting."""
END_BOUND_MS = 10_000
"""Between SIGTERM and SIGKILL of a child."""
READY_TRIES = 2
"""A process given up so often in a row for not getting ready is not started again."""
REST_MS = 2_000
"""Between restarts of what must not end the run: the processes below past their limits, the
host's registry past its own, and whatever found no room on the disk."""
RESTING = ("gateway", "sampler", "supply")
"""Peers can end the first as often as they like, an accelerator's driver the second; without the
third only offers are missing. The others do without them, and so they never end the run."""

_log = logging.getLogger(__name__)


class Supervisor:
    """One run's processes, from the first start to the last end."""

    def __init__(
        self,
        children: Sequence[Child],
        first_line: Callable[[str], bytes],
        link: BrokerLink,
        registry: Registry,
        files: RunFiles,
        clock: Clock,
        own_pid: int,
        on_ready: Callable[[], None],
        on_child_ready: Callable[[str], None] = lambda name: None,
        place: FreshPlace | None = None,
        standing: RunStanding | None = None,
    ) -> None:
        """`first_line` gives a child's configuration; `on_ready` runs once all are ready."""
        self._children = list(children)
        self._first_line = first_line
        self._link = link
        self._registry = registry
        self._files = files
        self._clock = clock
        self._own_pid = own_pid
        self._on_ready = on_ready
        self._on_child_ready = on_child_ready
        self._place = place
        self._standing = standing
        self._intensity = RestartIntensity()
        self._resting = {name: RestartIntensity() for name in RESTING}
        self._registry_intensity = RestartIntensity()
        self._registry_rests_until_ms: int | None = None
        self._poller = Poller()
        self._polled: dict[str, int] = {}
        self._phase: Literal["starting", "serving", "ending"] = "starting"
        self._next_to_start = 0
        self._ending: list[Child] = []
        self._asked_at_ms: int | None = None
        self._hurry = False
        self._failure: PraxistError | None = None
        self._waiting_for: set[str] = set()
        """The children that `last_failure.json` and the service manager were told of."""
        self.stopped = False
        """Whether it ended because a stop of the run was complete."""
        self._started_ms = clock.mono_ms()
        self._watchdog_ms = watchdog_interval_ms()
        self._watchdog_at_ms = self._started_ms

    def run(self) -> PraxistError | None:
        """Serve until ended by a signal, by a stop of the run, or by a failure, which it returns.

        When it returns, no child is left, and `stopped` says whether the run was stopped.
        """
        signals = SignalPipe()
        self._poller.register(signals)
        try:
            become_subreaper()
            self._link.watch(self._poller)
            self._ensure_registry()
            self._start_next()
            while not self._is_over():
                self._poller.wait(self._timeout_ms())
                self._turn(signals)
        finally:
            signals.close()
        return self._failure

    # -- one turn

    def _turn(self, signals: SignalPipe) -> None:
        for name in signals.drain():
            if name == "child":
                continue  # everything that ended is reaped below in any case
            if self._phase == "ending":
                self._hurry = True
            else:
                _log.info("ending: asked by a signal")
                self._begin_end()
        self._listen()
        for pid, how in spawn.reap():
            self._reaped(pid, how)
        if self._registry.ended(self._poller) and self._phase != "ending":
            self._registry_ended()
        self._end_silent()
        self._keep_bounds()
        self._guarded(self._look_at_files)
        self._advance_end()
        self._beat()

    def _listen(self) -> None:
        for child in self._children:
            if child.messages is None:
                continue
            said = child.listen(self._clock.mono_ms())
            if child.messages is None:
                self._stop_polling(child)
            if said == "ready" and self._phase != "ending":
                _log.info("%s is ready", child.name, extra={"fields": {"child_pid": child.pid}})
                self._guarded(partial(self._on_child_ready, child.name))
                self._no_longer_waiting(child)
                self._start_next()

    def _no_longer_waiting(self, child: Child) -> None:
        if child.name not in self._waiting_for:
            return
        self._waiting_for.discard(child.name)
        if not self._waiting_for:
            self._files.failure.unlink(missing_ok=True)
            notify("STATUS=serving")

    def _guarded(self, action: Callable[[], None]) -> bool:
        """Run a step that may fail on purpose; its failure ends the run's processes in order."""
        try:
            action()
        except PraxistError as error:
            self._fail(error)
            return False
        return True

    def _end_silent(self) -> None:
        """End what the broker finds silent; it is started again like all that end."""
        for wish in self._link.serve():
            for child in self._children:
                if (child.name, child.pid) == (wish.name, wish.pid) and self._phase != "ending":
                    _log.error("%s does not answer the broker and is killed", child.name)
                    spawn.kill_now(wish.pid)

    # -- starting

    def _start_next(self) -> None:
        """In the first round, the next child once all before it are ready; then `on_ready`."""
        if self._phase != "starting":
            return
        if not all(child.ready for child in self._children[: self._next_to_start]):
            return
        if self._next_to_start < len(self._children):
            child = self._children[self._next_to_start]
            self._next_to_start += 1
            notify(f"STATUS=starting {child.name}")
            self._spawn(child)
            return
        self._phase = "serving"
        self._files.failure.unlink(missing_ok=True)
        self._on_ready()
        notify("READY=1", "STATUS=serving", f"MAINPID={self._own_pid}")

    def _spawn(self, child: Child) -> None:
        try:
            child.start(self._first_line(child.name), self._clock.mono_ms())
        except PraxistError as error:
            if error.code == "no_space" and self._phase == "serving":
                self._rest(child, error, "not started")
            else:
                self._fail(error)
            return
        assert child.messages is not None
        self._poller.register(child.messages)
        self._polled[child.name] = child.messages
        _log.info("started %s", child.name, extra={"fields": {"child_pid": child.pid}})
        self._tell_processes()

    def _ensure_registry(self) -> None:
        """The first time, a full disk is told to whoever starts the run; later it passes."""
        self._registry_rests_until_ms = None
        try:
            self._registry.ensure(self._poller)
        except PraxistError as error:
            if error.code == "no_space" and self._phase == "serving":
                self._rest_registry(str(error))
            else:
                self._fail(error)
        self._tell_processes()

    def _registry_ended(self) -> None:
        """It is the host's, not the run's: its ends are counted apart, and end no run."""
        if self._registry_intensity.allow(self._clock.mono_ms()):
            _log.warning("the claim registry ended")
            self._ensure_registry()
        else:
            self._rest_registry("it ended too often")

    def _rest_registry(self, reason: str) -> None:
        self._registry_rests_until_ms = self._clock.mono_ms() + REST_MS
        _log.error("the claim registry rests for %d s: %s", REST_MS // 1000, reason)

    # -- watching

    def _reaped(self, pid: int, how: spawn.Exit) -> None:
        for child in self._children:
            if child.pid == pid:
                break
        else:
            return  # an orphan that we inherited; its status belongs to nobody
        child.listen(self._clock.mono_ms())
        self._stop_polling(child)
        child.ended()
        level = logging.INFO if self._phase == "ending" else logging.WARNING
        _log.log(level, "%s ended: %s", child.name, how, extra={"fields": {"child_pid": pid}})
        if self._phase == "ending":
            return
        self._tell_processes()
        fenced = how.code == 0 and self._files.fence.exists()
        if child.name == "broker" and (fenced or how.code == STOPPED_WITHOUT_FENCE):
            _log.info("ending: the run is stopped")
            self.stopped = True
            self._begin_end()
            return
        permanent = child.permanent_failure(how, pid)
        passing = child.passing_failure(how, pid)
        if permanent is not None:
            self._give_up(child, how, permanent)
        elif passing is not None and self._phase == "starting":
            self._give_up(child, how, passing)
        elif passing is not None:
            self._rest(child, passing, str(how))
        elif self._may_restart(child, child.reason(how, pid), how):
            self._spawn(child)

    def _may_restart(self, child: Child, reason: str, how: spawn.Exit) -> bool:
        name = child.name
        if child.unready_ends >= self._tries():
            error = PraxistError("start_failed", f"{name} did not get ready in time: {reason}")
        elif name in RESTING and self._phase == "serving":
            return self._may_restart_unless_rests(child, reason)
        elif not self._intensity.allow(self._clock.mono_ms()):
            error = PraxistError("restart_limit", f"{name}: {reason}")
        elif child.starts_in_vain >= self._starts_in_vain_max():
            error = PraxistError(
                "start_failed",
                f"{name} ended {child.starts_in_vain} times in a row before it was ready: {reason}",
                [*likely_cause(reason), f"its log: {child.log}"],
            )
        else:
            return True
        self._give_up(child, how, error)
        return False

    def _may_restart_unless_rests(self, child: Child, reason: str) -> bool:
        """Past its limit it rests between restarts."""
        now = self._clock.mono_ms()
        if self._resting[child.name].allow(now):
            return True
        child.rest_until_ms = now + REST_MS
        _log.error("%s rests for %d s: %s", child.name, REST_MS // 1000, reason)
        return False

    def _rest(self, child: Child, error: PraxistError, how: str) -> None:
        """Its reason passes without us, in its own time: it is tried again for as long as that
        takes, and whoever looks is told what is waited for."""
        child.rest_until_ms = self._clock.mono_ms() + REST_MS
        _log.error("%s is tried again in %d s: %s", child.name, REST_MS // 1000, error)
        leave_failure(self._files.failure, child.name, how, error, child.log_tail())
        self._waiting_for.add(child.name)
        notify(f"STATUS=waiting: {error}")

    def _tries(self) -> int:
        """In the first round nobody waits for a second try: whoever starts the run is told."""
        return 1 if self._phase == "starting" else READY_TRIES

    def _starts_in_vain_max(self) -> int:
        return STARTS_IN_VAIN_MAX if self._phase == "starting" else RESTARTS_MAX

    def _keep_bounds(self) -> None:
        if self._phase == "ending":
            return
        now = self._clock.mono_ms()
        if self._registry_rests_until_ms is not None and now >= self._registry_rests_until_ms:
            self._ensure_registry()
        for child in self._children:
            if child.rest_until_ms is not None and now >= child.rest_until_ms:
                child.rest_until_ms = None
                self._spawn(child)
            late = now - child.silent_since_ms >= READY_BOUND_MS
            if child.pid is not None and not child.ready and late:
                _log.error("%s said nothing for %d s", child.name, READY_BOUND_MS // 1000)
                child.unready_ends += 1
                child.silent_since_ms = now
                spawn.kill_now(child.pid)

    def _look_at_files(self) -> None:
        """Without its lock's file ours keeps nobody out; a child makes its own again."""
        if self._standing is None or self._phase == "ending":
            return
        now = self._clock.mono_ms()
        lost = self._standing.lost(now)
        if OWNER in lost:
            raise PraxistError("file_lost", f"{lost[OWNER]} was removed or replaced")
        for child in self._children:
            if child.name in lost and child.ready and child.pid is not None:
                _log.error("%s is started again: %s is gone", child.name, lost[child.name])
                # From here on it is bound as one that starts.
                child.ready, child.silent_since_ms = False, now
                child.ask_to_end()

    def _give_up(self, child: Child, how: spawn.Exit, error: PraxistError) -> None:
        leave_failure(self._files.failure, child.name, str(how), error, child.log_tail())
        self._fail(error)

    def _fail(self, error: PraxistError) -> None:
        _log.error("ending: %s", error, extra={"fields": {"code": error.code}})
        if self._failure is None:
            self._failure = error
        self._begin_end()

    def _tell_processes(self) -> None:
        seen = [("supervisor", self._own_pid, self._started_ms, 0)]
        seen += [
            (child.name, child.pid, child.started_ms, child.restarts)
            for child in self._children
            if child.pid is not None
        ]
        registry = self._registry.process()
        if registry is not None:
            seen.append(("registry", *registry, 0))
        self._link.tell(ProcessesSeen(processes=tuple(seen)))

    # -- ending

    def _begin_end(self) -> None:
        if self._phase == "ending":
            return
        self._phase = "ending"
        self._ending = [child for child in reversed(self._children) if child.pid is not None]
        notify("STOPPING=1", "STATUS=ending")

    def _advance_end(self) -> None:
        """One child after the other: asked, a bound, SIGKILL; all at once when hurried."""
        if self._phase != "ending":
            return
        now = self._clock.mono_ms()
        if self._hurry:
            for child in self._ending:
                if child.pid is not None:
                    spawn.kill_now(child.pid)
        while self._ending:
            first = self._ending[0]
            if first.pid is None:
                self._ending.pop(0)
                self._asked_at_ms = None
            elif self._asked_at_ms is None:
                self._asked_at_ms = now
                first.ask_to_end()
                return
            elif now - self._asked_at_ms >= END_BOUND_MS:
                _log.error("%s did not end in time and is killed", first.name)
                self._asked_at_ms = now
                spawn.kill_now(first.pid)
                return
            else:
                return

    def _is_over(self) -> bool:
        return self._phase == "ending" and all(child.pid is None for child in self._children)

    # -- time

    def _timeout_ms(self) -> int | None:
        """Until the next bound; None when only an event can change anything."""
        now = self._clock.mono_ms()
        due: list[int] = []
        if self._phase == "ending":
            if self._asked_at_ms is None:
                return 0
            due.append(self._asked_at_ms + END_BOUND_MS)
        else:
            due += [
                child.silent_since_ms + READY_BOUND_MS
                for child in self._children
                if child.pid is not None and not child.ready
            ]
            rests = [self._registry_rests_until_ms, *(c.rest_until_ms for c in self._children)]
            due += [until for until in rests if until is not None]
            due += [] if self._standing is None else [self._standing.look_at_ms]
        if self._watchdog_ms is not None:
            due.append(self._watchdog_at_ms)
        if self._place is not None:
            due.append(self._place.due_ms)
        return max(min(due) - now, 0) if due else None

    def _beat(self) -> None:
        now = self._clock.mono_ms()
        if self._place is not None:
            self._place.keep(now)
        if self._watchdog_ms is not None and now >= self._watchdog_at_ms:
            notify("WATCHDOG=1")
            self._watchdog_at_ms = now + self._watchdog_ms

    def _stop_polling(self, child: Child) -> None:
        descriptor = self._polled.pop(child.name, None)
        if descriptor is not None:
            self._poller.unregister(descriptor)
