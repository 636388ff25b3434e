"""The launcher's loop: orders in, shims and signals out, reports back.

It admits nothing and owns no record: what counts is the broker's ledger, the shims that live and
the evidence they leave. Every order may be repeated; every report is repeated on reconnection.
Rules: the design's section 3 "Launch" and promises 3, 4, 6, 7.
"""

from __future__ import annotations

import logging
import os
from typing import Protocol

from ..core.launch import Phase
from ..errors import PraxistError
from ..host import spawn
from ..host.attempt_files import AttemptFiles
from ..host.caller import belongs_to
from ..host.clock import Clock
from ..host.identity import identity_of
from ..host.nursery import Nursery
from ..host.paths import RunPaths
from ..host.resource_limits import open_files, raise_open_files
from ..host.signal_pipe import SignalPipe
from ..host.subreaper import become_subreaper
from ..protocol import orders
from ..protocol.codec import decode_order, encode
from ..protocol.reports import CallerIdentified, CountsCompared, LauncherConnected
from .adoption import Adoption
from .attempt_handle import Handle
from .attempts import Attempts
from .child_config import supervisor_gone
from .link_counts import LinkCounts
from .log_caps import LogCaps
from .stopping import EndingByOrder, Strays
from .wakeups import Wakeups

LOG = logging.getLogger("launcher")
OWED_PAUSE_MS = 100
OWED_PAUSE_MAX_MS = 2_000
WELCOME_MS = 1_000
"""How soon a broker answers an introduction."""


class Link(Protocol):
    """The launcher's end of the private link to the broker."""

    def fileno(self) -> int:
        """Readable when there may be something to receive or to notice."""
        ...

    def receive(self) -> tuple[bool, list[bytes]]:
        """Everything that waits: whether a connection was made, bodies of orders. Never waits."""
        ...

    def send(self, bodies: list[bytes]) -> bool:
        """Send reports in one message; False when it was dropped (no connection, or full)."""
        ...


class Launcher:
    """All attempts of one run, around one zygote."""

    def __init__(
        self,
        run: RunPaths,
        link: Link,
        clock: Clock,
        strays: Strays = lambda known: [],
        scope: str = "",
    ) -> None:
        """`strays` tells the orphans that fell to the supervisor; `scope` is the host scope's mark,
        in whose name shims hold devices."""
        self._link = link
        self._clock = clock
        self._owed_at_ms: int | None = None
        self._owed_pause_ms = OWED_PAUSE_MS
        self._counts = LinkCounts()
        self._finished = False
        become_subreaper()
        self._wakeups = Wakeups()
        self._signals = SignalPipe()
        inherited = open_files()
        limit = raise_open_files()
        self._nursery = Nursery(clock, inherited)
        self._attempts = Attempts(
            AttemptFiles(run), clock, self._nursery, self._wakeups, limit, scope
        )
        self._log_caps = LogCaps(self._attempts.files)
        self._adoption = Adoption(self._attempts)
        self._stopping = EndingByOrder(self._attempts, strays)
        self._wakeups.watch(self._signals.fileno(), self._on_signals)
        self._wakeups.watch(self._nursery.fileno(), self._on_zygote)
        self._wakeups.watch(link.fileno(), _nothing)

    # -- the loop

    def serve(self, until_closed: int | None = None) -> None:
        """Work until `until_closed` is at its end, SIGTERM comes, or `finish` is called."""
        self._exchange()
        if until_closed is not None:
            self._wakeups.watch(until_closed, lambda _: self._on_supervisor(until_closed))
        while not self._finished:
            self.turn()

    def turn(self, timeout_ms: int | None = None) -> None:
        """Wait for something, at most `timeout_ms`; deal with all of it; send what came of it."""
        self._wakeups.wait(self._wait_s(timeout_ms))
        now = self._clock.mono_ms()
        if self._owed_at_ms is not None and self._owed_at_ms <= now:
            self._owed_at_ms = None
            self._announce()
        silent_at_ms = self._nursery.silent_at_ms()
        if silent_at_ms is not None and silent_at_ms <= now:
            LOG.error("the zygote does not answer and is killed")
            self._nursery.kill()
        for handle in list(self._attempts.handles.values()):
            if handle.wake_at_ms is not None and handle.wake_at_ms <= now:
                self._on_wake(handle, now)
            if handle.lingers_at_ms is not None and handle.lingers_at_ms <= now:
                self._stopping.look_who_lingers(handle, now)
        self._exchange()
        self._log_caps.look(self._attempts.handles.values(), now)

    def finish(self) -> None:
        """Leave the loop after this turn."""
        self._finished = True

    def close(self) -> None:
        """Let go of everything. Running experiments go on; waiting shims end by themselves."""
        for handle in self._attempts.handles.values():
            handle.close()
        self._attempts.files.close()
        self._nursery.close()
        self._signals.close()
        self._wakeups.close()

    def _exchange(self) -> None:
        """Receive and send until neither has anything: the link's descriptors tell of edges."""
        while True:
            found = self._receive()
            called_back = {
                order.attempt
                for order in found
                if isinstance(order, orders.AbandonAttempt | orders.StopAttempt)
            }
            for order in found:
                if not isinstance(order, orders.ReleaseAttempt) or order.attempt not in called_back:
                    self._obey(order)
            self._attempts.start_waiting()
            reports = self._attempts.outbox
            if reports:
                self._attempts.outbox = []
                if self._link.send([encode(self._counts.leaves(report)) for report in reports]):
                    # An introduction that nobody answers was lost on its way.
                    again_ms = self._clock.mono_ms() + WELCOME_MS
                    self._owed_at_ms = None if self._counts.welcomed else again_ms
                    self._owed_pause_ms = OWED_PAUSE_MS
                else:
                    # A new connection brings everything anyway; a full link needs this timer.
                    self._owed_at_ms = self._clock.mono_ms() + self._owed_pause_ms
                    self._owed_pause_ms = min(self._owed_pause_ms * 2, OWED_PAUSE_MAX_MS)
            elif not found:
                return

    def _receive(self) -> list[orders.Order]:
        """All orders that have come: a GO is not acted on before what follows it is known."""
        found: list[orders.Order] = []
        while True:
            anew, bodies = self._link.receive()
            if anew:
                self._announce()
            if not bodies:
                return found
            for body in bodies:
                try:
                    order = decode_order(body)
                except PraxistError as error:
                    LOG.error("an order was refused: %s", error)
                    continue
                if not self._counts.arrived(order):
                    LOG.warning("an order of the broker's was lost on its way")
                    self._announce()
                found.append(order)

    def _wait_s(self, timeout_ms: int | None) -> float | None:
        handles = self._attempts.handles.values()
        times = [handle.wake_at_ms for handle in handles if handle.wake_at_ms is not None]
        times += [h.lingers_at_ms for h in handles if h.lingers_at_ms is not None]
        look_ms = self._log_caps.due_ms(handles)
        times += filter(None, (self._owed_at_ms, self._nursery.silent_at_ms(), look_ms))
        waits = [max(0, min(times) - self._clock.mono_ms())] if times else []
        if timeout_ms is not None:
            waits.append(timeout_ms)
        return min(waits) / 1000 if waits else None

    def _announce(self) -> None:
        own = identity_of(os.getpid())
        assert own is not None, "a process can always read itself"
        attempts = self._attempts
        attempts.outbox.append(LauncherConnected(launcher=own, attempts=tuple(attempts.handles)))
        for handle in attempts.handles.values():
            attempts.repeat(handle)

    def _on_supervisor(self, fd: int) -> None:
        if supervisor_gone(fd):
            self._wakeups.unwatch(fd)
            self.finish()

    def _on_signals(self, _: int) -> None:
        if "end" in self._signals.drain():
            self.finish()
        for pid, how in spawn.reap():
            for handle in self._attempts.handles.values():
                life = handle.life
                if life.phase is Phase.SWEEPING and life.leader and life.leader.pid == pid:
                    detail = f"its shim was destroyed; its evaluator then ended: {how}"
                    handle.life = life._replace(detail=detail)

    def _on_zygote(self, _: int) -> None:
        if not self._attempts.hear_zygote():
            LOG.warning("the zygote ended; starting another")
            self._wakeups.unwatch(self._nursery.fileno())
            self._nursery.replace()
            self._wakeups.watch(self._nursery.fileno(), self._on_zygote)

    def _on_wake(self, handle: Handle, now: int) -> None:
        """A timer of an attempt: the spawn's deadline, evidence, a stop, a sweep."""
        handle.wake_at_ms = None
        phase = handle.life.phase
        if phase is Phase.SPAWNING:
            self._attempts.withdraw(handle, "the shim did not come up in time")
            return
        if phase is Phase.ENDED:
            return
        if handle.life.hidden is not None and phase is Phase.ADOPTED:
            self._adoption.look_from_outside(handle)
            return
        if handle.conclude is not None and phase in (Phase.ADOPTED, Phase.RUNNING):
            self._adoption.look(handle)
        if handle.stop is not None:
            self._stopping.stop_step(handle, handle.stop, now)
        if handle.life.phase is Phase.SWEEPING:
            self._stopping.sweep_step(handle, now)

    def _identified(self, order: orders.IdentifyCaller, handle: Handle | None) -> CallerIdentified:
        """Whether a caller belongs to an attempt in hand, as long as anything of that lives."""
        reason: str | None = "the attempt is not in hand"
        if handle is not None and handle.life.shim is not None:
            if handle.life.phase is Phase.SWEEPING:
                proved = {stat.pid for stat in self._stopping.members(handle).ours}
                reason = None if order.pid in proved else "the caller is not proved to be of it"
            else:
                reason = belongs_to(order.pid, handle.life.shim, handle.life.leader)
        return CallerIdentified(
            attempt=order.attempt,
            inquiry=order.inquiry,
            inside=reason is None,
            detail=reason or "",
        )

    # -- orders

    def _obey(self, order: orders.Order) -> None:
        if isinstance(order, orders.Welcome):
            self._log_caps.set(order.log_cap_mib)
            self._owed_at_ms = None
            return
        if isinstance(order, orders.Announce):
            self._announce()
            return
        if isinstance(order, orders.CompareCounts):
            self._attempts.outbox.append(CountsCompared(reports=0))  # filled in as it leaves
            return
        attempts = self._attempts
        handle = attempts.handles.get(order.attempt)
        if isinstance(order, orders.IdentifyCaller):
            attempts.outbox.append(self._identified(order, handle))
            return
        if isinstance(order, orders.SpawnAttempt):
            attempts.spawn(order) if handle is None else attempts.repeat(handle)
        elif isinstance(order, orders.AdoptAttempt):
            if handle is None:
                self._adoption.adopt(order)
            elif order.presumed_dead and handle.life.phase is Phase.ADOPTED:
                self._adoption.presume_dead(handle)
            else:
                attempts.repeat(handle)
        elif handle is None:
            if not isinstance(order, orders.ForgetAttempt):
                LOG.warning("%s for %s, which isn't in hand", order.kind, order.attempt)
        elif isinstance(order, orders.ReleaseAttempt):
            if order.until_ms < self._clock.mono_ms():
                # We have not run for a while: the broker looks once more before it says it again.
                LOG.warning("GO for %s came too late", order.attempt)
                self._announce()
            else:
                attempts.release(handle, order.until_ms)
        elif isinstance(order, orders.AbandonAttempt):
            attempts.abandon(handle)
        elif isinstance(order, orders.StopAttempt):
            self._stopping.stop(handle, order.grace_ms)
        elif isinstance(order, orders.ForgetAttempt):
            attempts.forget(handle)


def _nothing(_: int) -> None:
    """The loop looks at the link in every turn; its descriptor only wakes it."""
