"""A stop carried out by whoever asks for it, because no scheduler of the run answers.

Holds all locks of the run meanwhile, so that no scheduler starts in the middle. A process of ours
that hangs is proved by the lock that it holds, and ended. It never sets the fence: its caller has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..core.proof import judge
from ..errors import PraxistError
from ..host import signals
from ..host.clock import SystemClock
from ..host.identity import identity_of, open_pidfd, own_pid
from ..host.paths import RunPaths
from ..host.spawn import wait_ended
from ..host.stop_search import StopSearch, protected_by_peers
from ..ledger.files import read_limited
from ..ledger.lock import HOLDER_BYTES_MAX
from . import stop_ledger
from .owner import STOP_PROGRAM, Owner, holds_lock
from .patient_lock import acquire_patiently
from .stop_status import write_view
from .stop_sweep import StopSweep, Swept

PATIENCE_MS = 3_000
"""For processes whose supervisor is gone, and which end by themselves."""
ORDERLY_S = 3.0
HURRIED_S = 3.0
KILLED_S = 5.0


@dataclass(slots=True)
class OfflineStop:
    """What a stop without a scheduler did."""

    swept: Swept = field(default_factory=Swept)
    rejected: tuple[str, ...] = ()
    ending: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)
    unproved: list[str] = field(default_factory=list)
    """Attempts whose processes cannot be looked at from here, and why they may live."""

    @property
    def all_gone(self) -> bool:
        """Whether no process of the run is left, none in doubt either."""
        doubtful = any(process.names_attempt for process in self.swept.left)
        return not (self.swept.remaining or self.unproved or doubtful)


def end_scheduler(owner: Owner) -> bool:
    """End a supervisor that does not carry out the stop itself: asked, hurried, killed. False when
    it is still there. What it leaves of its processes ends by itself, or holds a lock."""
    signals.send_pidfd(owner.pidfd, signals.CONT)
    for number, patience_s in (
        (signals.TERM, ORDERLY_S),
        (signals.TERM, HURRIED_S),
        (signals.KILL, KILLED_S),
    ):
        signals.send_pidfd(owner.pidfd, number)
        if wait_ended(owner.pidfd, patience_s):
            return True
    return False


def look(run: RunPaths) -> OfflineStop:
    """What `stop` would find. Signals nobody and changes nothing."""
    ledger = stop_ledger.look(run)
    search = StopSearch(run, ledger.attempts)
    return _told(run, ledger, search, StopSweep(search, SystemClock()).look_only())


def stop(run: RunPaths, grace_ms: int) -> OfflineStop:
    """Record the stop, then end what the run started. Raises `already_running` when a scheduler
    has it that can't be ended, `unsafe_path` or `path_unusable`."""
    if not run.scheduler.is_dir():
        search = StopSearch(run, [])
        swept = StopSweep(search, SystemClock()).run(0)
        return _told(run, stop_ledger.LedgerStop(), search, swept)
    with _all_locks(run):
        ledger = stop_ledger.close(run, grace_ms)
        search = StopSearch(run, ledger.attempts)
        swept = StopSweep(search, SystemClock()).run(grace_ms)
        run.endpoint.unlink(missing_ok=True)  # of a scheduler that was killed
        told = _told(run, ledger, search, swept)
        if ledger.view is not None:
            trouble = write_view(run, ledger.view, gone=told.all_gone)
            told.warnings += filter(None, (trouble,))
    return told


def _told(
    run: RunPaths, ledger: stop_ledger.LedgerStop, search: StopSearch, swept: Swept
) -> OfflineStop:
    try:
        kept = protected_by_peers(run, {*swept.matched, *swept.descendants})
    except PraxistError as error:
        kept = []
        ledger.warnings.append(f"what peers protect is not known: {error}")
    pids = {each.pid for each in kept}
    swept.left = kept + [each for each in swept.left if each.pid not in pids]
    return OfflineStop(
        swept=swept,
        rejected=ledger.rejected,
        ending=ledger.ending,
        warnings=ledger.warnings,
        unproved=[
            f"{known.attempt} lives: {verdict.words}"
            for known, seen in search.out_of_sight
            if (verdict := judge(seen)).state != "gone"
        ],
    )


@contextmanager
def _all_locks(run: RunPaths) -> Iterator[None]:
    """The supervisor's, the broker's and the launcher's lock at once."""
    me = identity_of(own_pid())
    holder: dict[str, object] = {"pid": own_pid(), "program": STOP_PROGRAM}
    if me is not None:
        holder.update(me.model_dump())
    with ExitStack() as held:
        for path in (run.owner_lock, run.ledger_lock, run.launcher_lock):
            clock = SystemClock()
            try:
                lock = acquire_patiently(path, holder, clock, PATIENCE_MS)
            except PraxistError as error:
                if error.code != "already_running" or path == run.owner_lock:
                    raise
                _end_holder(path)
                lock = acquire_patiently(path, holder, clock, PATIENCE_MS)
            held.callback(lock.release)
        yield


def _end_holder(path: Path) -> None:
    """KILL the process that the lock's file names, if /proc shows that it holds that lock."""
    try:
        named = json.loads(read_limited(path, HOLDER_BYTES_MAX)).get("pid")
    except (OSError, ValueError, AttributeError):
        return
    identity = identity_of(named) if isinstance(named, int) and named > 1 else None
    pidfd = None if identity is None else open_pidfd(identity)
    if identity is None or pidfd is None:
        return
    try:
        if holds_lock(identity.pid, path):
            signals.send_pidfd(pidfd, signals.KILL)
            wait_ended(pidfd, KILLED_S)
    finally:
        os.close(pidfd)
