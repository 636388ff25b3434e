"""Adoption: what became of an attempt that an earlier launcher started.

The ledger's identities come first, /proc second, and the shim's evidence only as far as the two
bear it out: a forged file neither ends a live attempt nor points a signal at a stranger.
Rules: the design's promises 3, 4 and 7.
"""

from __future__ import annotations

import logging

from ..core import launch
from ..core.launch import Life, Phase
from ..core.proof import Verdict, judge
from ..host.attempt_files import Evidence
from ..host.identity import is_alive, open_pidfd, stat_of, visible
from ..host.remains import Namespaces, sighting
from ..protocol import orders
from ..protocol.process import ProcessIdentity
from .attempt_handle import Handle
from .attempts import Attempts

LOG = logging.getLogger("launcher")
LOOK_PAUSE_MAX_MS = 1_000
OUTSIDE_PAUSE_MS = 5_000
"""Between looks at what only a lock or the end of a namespace can tell of."""


class Adoption:
    """Takes attempts of earlier launchers in hand."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._namespaces = Namespaces()
        self._namespaces_until_ms = 0

    def adopt(self, order: orders.AdoptAttempt) -> None:
        """Find out what became of an attempt of an earlier launcher."""
        if order.shim is None:
            # Never bound: GO was never given, and the channel it would have come on is closed.
            handle = Handle(life=Life(order.attempt, phase=Phase.WAITING), conclude=_nothing)
            self._attempts.handles[order.attempt] = handle
            self._attempts.tell(handle, Verdict("gone", "never_bound"))
            self._attempts.learn(handle, launch.ShimGone(detail="it was never bound"))
            return
        life = Life(
            order.attempt,
            phase=Phase.ADOPTED,
            shim=order.shim,
            leader=order.leader,
            signalled=None,
        )
        handle = Handle(life=life, ledger_leader=order.leader)
        handle.conclude = lambda: self._conclude(handle)
        self._attempts.handles[order.attempt] = handle
        handle.presumed_dead = order.presumed_dead
        if visible(order.shim):
            self._begin(handle, order.shim)
        else:
            self.look_from_outside(handle)

    def presume_dead(self, handle: Handle) -> None:
        """An operator said that nothing of it lives. It counts for what cannot be seen alone."""
        handle.presumed_dead = True
        if handle.life.hidden is not None:
            self.look_from_outside(handle)

    def look_from_outside(self, handle: Handle) -> None:
        """Its processes have numbers of another boot or namespace: nothing is signalled."""
        attempt, shim = handle.life.attempt, handle.life.shim
        assert shim is not None, "only a bound attempt is adopted"
        now = self._attempts.clock.mono_ms()
        if now >= self._namespaces_until_ms:
            self._namespaces, self._namespaces_until_ms = Namespaces(), now + LOOK_PAUSE_MAX_MS
        verdict = judge(
            sighting(
                shim,
                self._attempts.files.run.attempt_log(attempt),
                namespaces=self._namespaces,
                presumed_dead=handle.presumed_dead,
            )
        )
        if verdict.state != "gone":
            self._attempts.learn(handle, launch.Hidden(verdict))
            handle.wake_at_ms = now + OUTSIDE_PAUSE_MS
            return
        self._attempts.tell(handle, verdict)
        evidence = self._attempts.files.evidence(attempt, shim)
        if evidence.ended is not None:
            self._attempts.learn(handle, launch.LeaderEnded(evidence.ended, drained=True))
        # After a power cut a line may be missing that was written before the last one.
        never = verdict.evidence != "other_boot" and _never_went(handle, evidence)
        self._attempts.learn(handle, launch.ShimGone(never_ran=never, detail=verdict.words))
        self._attempts.learn(handle, launch.TreeAbsent())

    def _begin(self, handle: Handle, shim: ProcessIdentity) -> None:
        """Watch the shim, or conclude when it is gone."""
        try:
            handle.shim_fd = open_pidfd(shim) if is_alive(shim) else None
        except OSError as error:
            LOG.warning("%s: its shim cannot be watched: %s", handle.life.attempt, error)
            self._look_again(handle)
            return
        if handle.shim_fd is not None:
            self._attempts.tell(handle, Verdict("alive", "shim"))
            self._attempts.wakeups.watch(
                handle.shim_fd, lambda _: self._attempts.on_shim_gone(handle)
            )
            # What has left its group by now falls to nobody we can ask when the shim dies.
            self._attempts.survivors(handle)
            self.look(handle)
        else:
            self._conclude(handle)
            self._attempts.begin_sweep(handle)

    def _conclude(self, handle: Handle) -> None:
        """An adopted attempt's shim is gone: the evidence says how it ended."""
        shim = handle.life.shim
        assert shim is not None, "only a bound attempt is adopted"
        evidence = self._attempts.files.evidence(handle.life.attempt, shim)
        if evidence.started is not None and handle.life.leader is None:
            handle.hinted_group = evidence.started.leader.pid
        if evidence.ended is not None:
            self._attempts.learn(handle, launch.LeaderEnded(evidence.ended))
        never = _never_went(handle, evidence)
        if never:
            self._attempts.tell(handle, Verdict("gone", "never_released"))
        self._attempts.learn(handle, launch.ShimGone(never_ran=never))

    def look(self, handle: Handle) -> None:
        """An adopted shim lives: learn from its files, as far as /proc bears them out."""
        life, shim = handle.life, handle.life.shim
        assert shim is not None, "only a bound attempt is adopted"
        if life.phase not in (Phase.ADOPTED, Phase.RUNNING):
            return
        if handle.shim_fd is None:
            self._begin(handle, shim)
            return
        evidence = self._attempts.files.evidence(life.attempt, shim)
        if life.phase is Phase.ADOPTED:
            started = evidence.started
            leader = handle.ledger_leader or (started.leader if started else None)
            if leader is None or not _is_leader_of(shim, leader, handle.ledger_leader):
                self._look_again(handle)
                return
            at_ms = started.at_ms if started is not None else 0
            try:
                handle.leader_fd = open_pidfd(leader)
            except OSError as error:
                LOG.warning("%s: its evaluator cannot be watched: %s", life.attempt, error)
                self._look_again(handle)
                return
            if handle.leader_fd is not None:
                self._attempts.wakeups.watch(
                    handle.leader_fd, lambda _: self._on_leader_gone(handle)
                )
            self._attempts.manifest(life.attempt, leader)
            self._attempts.learn(handle, launch.LeaderStarted(leader, at_ms))
            handle.pause_ms = 10
        life = handle.life
        if life.phase is Phase.RUNNING and life.leader and not is_alive(life.leader):
            # A record found while the evaluator lives would be a forgery, so it isn't read.
            if evidence.ended is None:
                self._look_again(handle)
                return
            fact = launch.LeaderEnded(evidence.ended, survivors=self._attempts.survivors(handle))
            self._attempts.learn(handle, fact)

    def _look_again(self, handle: Handle) -> None:
        # A stop or a sweep may already wait for an earlier time; it must not lose its turn.
        at_ms = self._attempts.clock.mono_ms() + handle.pause_ms
        handle.wake_at_ms = at_ms if handle.wake_at_ms is None else min(handle.wake_at_ms, at_ms)
        handle.pause_ms = min(handle.pause_ms * 2, LOOK_PAUSE_MAX_MS)

    def _on_leader_gone(self, handle: Handle) -> None:
        self._attempts.wakeups.unwatch(handle.leader_fd)  # stays open: it still reaches the group
        self.look(handle)


def _never_went(handle: Handle, evidence: Evidence) -> bool:
    """Whether its shim waited at its barrier to its end, by all that is on record."""
    return (
        evidence.ready
        and not evidence.went
        and evidence.started is None
        and handle.ledger_leader is None
    )


def _is_leader_of(
    shim: ProcessIdentity, leader: ProcessIdentity, recorded: ProcessIdentity | None
) -> bool:
    """Whether to take `leader` for the shim's evaluator: the ledger's word, or a child of it."""
    if leader == recorded:
        return True
    stat = stat_of(leader)
    return stat is not None and stat.parent == shim.pid and stat.group == stat.pid


def _nothing() -> None:
    """An attempt that was never bound has no shim whose end could tell anything."""
