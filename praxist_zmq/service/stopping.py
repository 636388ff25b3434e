"""Stopping attempts, and sweeping after a shim that was destroyed.

TERM, grace, KILL, look again; an attempt ends only when nothing of it is found, and what will not
go is told as such while the watch goes on. Rules: the design's promises 6 and 7.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from ..core import launch
from ..core.launch import Phase
from ..core.proof import judge
from ..host import ending, signals, tree
from ..host.identity import ProcStat, identity_from, is_alive, open_pidfd
from ..host.remains import sighting
from ..host.spawn import boottime_ms_of
from ..protocol.reports import AttemptLingers, LivingProcess
from .attempt_handle import Handle, Stop
from .attempts import Attempts

LOG = logging.getLogger("launcher")
UNKILLABLE_AFTER_MS = 5_000
LOOK_APART_MS = 200
PAUSE_MAX_MS = 1_000
SCAN_APART_MS = 10_000
"""Between looks at all of /proc for what KILL did not end."""
LINGERS_APART_MS = 10_000
LINGERERS_TOLD_MAX = 20
TELL_APART_MS = 60_000
"""Between reports of what will not end: a tree that forks has other members at every look."""

Strays = Callable[[set[int]], list[ProcStat]]
"""Orphans that fell to the supervisor, but for the processes with these numbers."""


class EndingByOrder:
    """Ends the processes of attempts."""

    def __init__(self, attempts: Attempts, strays: Strays) -> None:
        self._attempts = attempts
        self._strays = strays

    def stop(self, handle: Handle, grace_ms: int) -> None:
        life = handle.life
        if life.phase in (Phase.SPAWNING, Phase.WAITING, Phase.ENDED):
            self._attempts.abandon(handle)
            return
        if life.phase is Phase.RELEASED:
            self._attempts.call_back(handle)
        now = self._attempts.clock.mono_ms()
        kill_at = now + grace_ms
        if handle.stop is None:
            handle.stop = Stop(kill_at, kill_at + UNKILLABLE_AFTER_MS)
        elif kill_at < handle.stop.kill_at_ms:
            handle.stop.kill_at_ms = kill_at
            handle.stop.stuck_at_ms = kill_at + UNKILLABLE_AFTER_MS
        if life.stuck or life.hidden is not None:
            self._attempts.repeat(handle)
        if life.hidden is None:
            handle.wake_at_ms = now

    def look_who_lingers(self, handle: Handle, now: int) -> None:
        """Tell who keeps an attempt whose evaluator or shim is gone, when that is news."""
        handle.lingers_at_ms = now + LINGERS_APART_MS
        found = self.members(handle)
        stats = sorted((*found.ours, *found.doubtful), key=lambda stat: stat.start_ticks)
        lingers = AttemptLingers(
            attempt=handle.life.attempt,
            processes=tuple(
                LivingProcess(
                    pid=stat.pid,
                    name=tree.name_of(stat.pid),
                    started_at_mono_ms=boottime_ms_of(stat.start_ticks),
                )
                for stat in stats[:LINGERERS_TOLD_MAX]
            ),
            number=len(stats),
            proved=not found.doubtful,
        )
        if lingers == handle.lingers or (handle.lingers is None and not stats):
            return
        handle.lingers = lingers
        for one in lingers.processes:
            age_s = max(0, now - one.started_at_mono_ms) // 1000
            attempt = lingers.attempt
            LOG.info("%s waits for %s (pid %d, %d s old)", attempt, one.name, one.pid, age_s)
        self._attempts.outbox.append(lingers)

    def members(self, handle: Handle) -> ending.Members:
        """Live processes of the attempt, by the best proof there is now."""
        life, shim = handle.life, handle.life.shim
        assert shim is not None, "an attempt without a shim has no processes"
        if life.phase is not Phase.SWEEPING:
            members = ending.under(shim) or ending.Members()
            handle.seen = {identity_from(stat) for stat in members.ours}
            return members
        return ending.without_shim(
            str(self._attempts.files.run.attempt(life.attempt)),
            shim,
            life.leader,
            handle.hinted_group,
            self._fallen(handle),
            handle.seen,
        )

    def _fallen(self, handle: Handle) -> ending.Fallen:
        """Orphans that may be the attempt's, and what tells them from those of others."""
        everyone = [h for h in self._attempts.handles.values() if h.life.shim is not None]
        shims = {h.life.shim for h in everyone if h.life.shim is not None}
        pids = {shim.pid for shim in shims}
        to_launcher = ending.own_orphans(self._attempts.nursery.pid, pids)
        to_supervisor = self._strays(pids)
        others = [h for h in everyone if h is not handle and h.life.phase is not Phase.ENDED]
        return ending.Fallen(
            tuple(to_launcher),
            tuple(to_supervisor),
            # Looked at after the orphans: a shim that lives now has lost none of them. Its own
            # death may not have been told yet, so the phase does not answer this.
            only_one=all(h.life.shim is not None and is_alive(h.life.shim) for h in others),
            other_leaders=frozenset(h.life.leader for h in others if h.life.leader is not None),
            other_directories=tuple(
                str(self._attempts.files.run.attempt(h.life.attempt)) for h in others
            ),
        )

    def stop_step(self, handle: Handle, stop: Stop, now: int) -> None:
        shim = handle.life.shim
        if shim is not None and handle.shim_fd is not None:
            signals.send_pidfd(handle.shim_fd, signals.CONT)  # a stopped shim reaps nothing
        # What ended by itself may not have been heard yet, and was not ended by us.
        self._attempts.listen(handle)
        if handle.life.phase is Phase.ENDED:
            return
        self._attempts.learn(handle, launch.Signalled())
        if now < stop.kill_at_ms:
            stop.ending.terminate(self.members(handle), handle.leader_fd)
            handle.wake_at_ms = min(stop.kill_at_ms, now + LOOK_APART_MS)
            return
        left = stop.ending.kill(lambda: self.members(handle), handle.leader_fd)
        if left.pids and now >= stop.stuck_at_ms and now >= stop.tell_at_ms:
            stop.tell_at_ms = now + TELL_APART_MS
            self._attempts.learn(handle, launch.Stuck(left.pids, _stuck_detail(left)))
        handle.wake_at_ms = now + stop.pause_ms
        sweeps_late = handle.life.phase is Phase.SWEEPING and now >= stop.stuck_at_ms
        stop.pause_ms = min(stop.pause_ms * 2, SCAN_APART_MS if sweeps_late else PAUSE_MAX_MS)

    def sweep_step(self, handle: Handle, now: int) -> None:
        """The shim is gone: ended only when `core.proof` calls the tree gone.

        A look reads all of /proc. While a proved member that the last look found lives, the answer
        is known; the kernel tells when it ends. One in doubt may turn out to be a stranger, as our
        own claim registry does once it holds its lock: so the next look comes by the clock too.
        """
        shim, stopping = handle.life.shim, handle.wake_at_ms
        assert shim is not None, "an attempt without a shim is not swept"
        if handle.orphan_fd is not None and handle.orphan_proved:
            return
        members = self.members(handle)
        handle.empty_looks = 0 if members.pids else handle.empty_looks + 1
        verdict = judge(
            sighting(
                shim,
                self._attempts.files.run.attempt_log(handle.life.attempt),
                found=len(members.pids),
                empty_looks=handle.empty_looks,
            )
        )
        if verdict.evidence != "not_searched":
            self._attempts.tell(handle, verdict)
        if verdict.state == "gone":
            self._attempts.learn(handle, launch.TreeAbsent())
            return
        wait = LOOK_APART_MS
        if members.pids or verdict.state == "alive":
            if self._wait_for_one(handle, members):
                return
            handle.pause_ms = min(max(handle.pause_ms * 2, LOOK_APART_MS), PAUSE_MAX_MS)
            wait = handle.pause_ms
        handle.wake_at_ms = min(now + wait, stopping) if stopping is not None else now + wait

    def _wait_for_one(self, handle: Handle, members: ending.Members) -> bool:
        """Look again when one of them has ended. False when one that is proved ours cannot be
        watched: then the clock decides too."""
        self._let_orphan_go(handle)
        for stat in (*members.ours, *members.doubtful):
            try:
                fd = open_pidfd(identity_from(stat))
            except OSError:
                return False  # no descriptor to be had
            if fd is not None:
                handle.orphan_fd, handle.orphan_proved = fd, stat in members.ours
                self._attempts.wakeups.watch(fd, lambda _: self._on_orphan_gone(handle))
                return handle.orphan_proved
        return False

    def _let_orphan_go(self, handle: Handle) -> None:
        if handle.orphan_fd is not None:
            self._attempts.wakeups.unwatch(handle.orphan_fd)
            os.close(handle.orphan_fd)
            handle.orphan_fd = None

    def _on_orphan_gone(self, handle: Handle) -> None:
        self._let_orphan_go(handle)
        handle.pause_ms = LOOK_APART_MS
        handle.wake_at_ms = self._attempts.clock.mono_ms()


def _stuck_detail(left: ending.Members) -> str:
    if left.doubtful and not left.ours:
        return "these cannot be proved to belong to the attempt, so they were not signalled"
    return "KILL was sent and these are still there"
