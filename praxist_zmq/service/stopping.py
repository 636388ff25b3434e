"""Stopping attempts, and sweeping after a shim that was destroyed.

TERM, grace, KILL, look again; an attempt ends only when nothing of it is found, and what will not
go is told as such while the watch goes on. Rules: the design's promises 6 and 7.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ..core import launch
from ..core.launch import Phase
from ..host import ending, signals
from ..host.identity import ProcStat, identity_from, is_alive, open_pidfd
from .attempt_handle import Handle, Stop
from .attempts import Attempts

UNKILLABLE_AFTER_MS = 5_000
LOOK_APART_MS = 200
PAUSE_MAX_MS = 1_000
SCAN_APART_MS = 10_000
"""Between looks at all of /proc for what KILL did not end."""
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
        if life.stuck:
            self._attempts.repeat(handle)
        if not handle.unseen:
            handle.wake_at_ms = now

    def _members(self, handle: Handle) -> ending.Members:
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
            stop.ending.terminate(self._members(handle), handle.leader_fd)
            handle.wake_at_ms = min(stop.kill_at_ms, now + LOOK_APART_MS)
            return
        left = stop.ending.kill(lambda: self._members(handle), handle.leader_fd)
        if left.pids and now >= stop.stuck_at_ms and now >= stop.tell_at_ms:
            stop.tell_at_ms = now + TELL_APART_MS
            self._attempts.learn(handle, launch.Stuck(left.pids, _stuck_detail(left)))
        handle.wake_at_ms = now + stop.pause_ms
        sweeps_late = handle.life.phase is Phase.SWEEPING and now >= stop.stuck_at_ms
        stop.pause_ms = min(stop.pause_ms * 2, SCAN_APART_MS if sweeps_late else PAUSE_MAX_MS)

    def sweep_step(self, handle: Handle, now: int) -> None:
        """The shim is gone: ended only after two looks apart found nothing.

        A look reads all of /proc. While one of those that the last look found lives, the answer
        is known; the kernel tells when it ends.
        """
        if handle.orphan_fd is not None:
            return
        stopping = handle.wake_at_ms
        members = self._members(handle)
        if members.pids:
            handle.empty_looks = 0
            if self._wait_for_one(handle, members):
                return
            handle.pause_ms = min(max(handle.pause_ms * 2, LOOK_APART_MS), PAUSE_MAX_MS)
            wait = handle.pause_ms
        else:
            handle.empty_looks += 1
            wait = LOOK_APART_MS
        if handle.empty_looks >= 2:
            self._attempts.learn(handle, launch.TreeAbsent())
            return
        handle.wake_at_ms = min(now + wait, stopping) if stopping is not None else now + wait

    def _wait_for_one(self, handle: Handle, members: ending.Members) -> bool:
        """Look again when one of them has ended. False when none can be watched."""
        for stat in (*members.ours, *members.doubtful):
            try:
                fd = open_pidfd(identity_from(stat))
            except OSError:
                return False  # no descriptor to be had: look again by the clock
            if fd is not None:
                handle.orphan_fd = fd
                self._attempts.wakeups.watch(fd, lambda _: self._on_orphan_gone(handle))
                return True
        return False

    def _on_orphan_gone(self, handle: Handle) -> None:
        self._attempts.wakeups.unwatch(handle.orphan_fd)
        if handle.orphan_fd is not None:
            os.close(handle.orphan_fd)
            handle.orphan_fd = None
        handle.pause_ms = LOOK_APART_MS
        handle.wake_at_ms = self._attempts.clock.mono_ms()


def _stuck_detail(left: ending.Members) -> str:
    if left.doubtful and not left.ours:
        return "these cannot be proved to belong to the attempt, so they were not signalled"
    return "KILL was sent and these are still there"
