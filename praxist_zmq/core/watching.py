"""Clients that wait for a job: answered when it changes or ends, at the end of a turn."""

from __future__ import annotations

from ..protocol import requests as req
from ..protocol.job_states import TERMINAL_STATES
from ..protocol.replies import JobReply
from .addresses import ADDRESSES_MAX
from .commands import ClientRequest
from .selectors import select
from .soft import WATCHERS_MAX, SoftState, Watcher
from .state import Job
from .turn import Refused, Turn
from .views import Viewer, shown_state


def watch(turn: Turn, command: ClientRequest, request: req.WatchJob) -> JobReply | None:
    """The answer if it is due already; else the client is kept waiting and None is returned."""
    job = select(turn.state, request.job)
    watcher = Watcher(
        command.address,
        command.request_id,
        request.after_version,
        request.known_state,
        request.until,
    )
    if _due(turn.soft, job, watcher):
        return JobReply(job=Viewer(turn.state, turn.soft).job(job))
    soft = turn.soft
    waiting = soft.watchers.setdefault(job.job, {})
    # A client waits for a job once: a newer wait of the same connection replaces the one before.
    over = [key for key, old in waiting.items() if old.address == command.address]
    # It may have sent this again on other connections. The copy of a lost one may be read last, so
    # all are answered, but for the oldest of many.
    copies = [key for key in waiting if key[0] == command.request_id and key not in over]
    over += copies[: 1 - ADDRESSES_MAX]
    for key in over:
        del waiting[key]
        soft.watcher_count -= 1
    if soft.watcher_count >= WATCHERS_MAX:
        raise Refused("busy", f"{soft.watcher_count} clients wait already")
    soft.watcher_count += 1
    waiting[command.request_id, command.address] = watcher
    return None


def answer_watchers(turn: Turn) -> None:
    """Answer everybody whose job changed in this turn."""
    soft, state = turn.soft, turn.state
    if not soft.touched:
        return
    viewer: Viewer | None = None
    for name in soft.touched:
        waiting = soft.watchers.get(name)
        if not waiting:
            continue
        job = state.jobs[name]
        due = [watcher for watcher in waiting.values() if _due(soft, job, watcher)]
        if not due:
            continue
        viewer = viewer or Viewer(state, soft)
        reply = JobReply(job=viewer.job(job))
        for watcher in due:
            turn.send("client", reply, watcher.address, watcher.request_id)
            del waiting[watcher.request_id, watcher.address]
            soft.watcher_count -= 1
        if not waiting:
            del soft.watchers[name]
    soft.touched.clear()


def _due(soft: SoftState, job: Job, watcher: Watcher) -> bool:
    if job.state in TERMINAL_STATES:
        return True
    if watcher.until != "change":
        return False
    if job.version > watcher.after_version:
        return True
    return watcher.known_state not in (None, shown_state(soft, job))
