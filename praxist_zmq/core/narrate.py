"""Events in plain words, for `events`. Never a command, never a variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..protocol import events as ev
from ..protocol.replies import EventLine
from .timestamps import timestamp
from .turn import subject


def line(sequence: int, event: Any) -> EventLine:
    """One event as readers see it."""
    job, attempt = subject(event)
    return EventLine(
        sequence=sequence,
        at=timestamp(event.at_ms),
        type=event.kind,
        job=job,
        attempt=attempt,
        text=_WORDS[type(event)](event),
    )


def _ending(exit_code: int | None, signal: int | None) -> str:
    if signal is not None:
        return f"signal {signal}"
    return "exit unknown" if exit_code is None else f"exit {exit_code}"


def _exited(event: ev.AttemptExited) -> str:
    if event.outcome == "exited":
        text = f"{event.attempt} ended, {_ending(event.exit_code, event.signal)}"
        lives = "descendant lives" if event.survivors == 1 else "descendants live"
        return f"{text}; {event.survivors} {lives} on" if event.survivors else text
    words = {
        "exec_failed": "could not be executed",
        "never_ran": "never ran",
        "spawn_failed": "could not be prepared",
        "unknown": "ended with its record lost",
    }
    text = f"{event.attempt} {words[event.outcome]}"
    return f"{text}: {event.detail}" if event.detail else text


def _finished(event: ev.JobFinished) -> str:
    text = f"{event.job} {event.state}"
    if event.state != "drained_unknown":
        text += f", {_ending(event.exit_code, event.signal)}"
    return f"{text}: {event.failure_signature}" if event.failure_signature else text


def _allocated(event: ev.AttemptAllocated) -> str:
    where = ", ".join(event.device_uuids) or "cpu"
    return f"{event.attempt} holds {where}"


FOUND = {"gone": "found gone", "alive": "found alive", "unseen": "cannot be seen from here"}

_WORDS: dict[type, Callable[[Any], str]] = {
    ev.BrokerStarted: lambda e: f"broker started, epoch {e.epoch}",
    ev.PolicyAdopted: lambda e: (
        f"contract adopted: at most {e.policy.max_concurrent_experiments} running, "
        f"profiles {', '.join(sorted(e.policy.profiles))}"
    ),
    ev.EnvironmentRecorded: lambda e: f"environment {e.environment_id[:12]} recorded",
    ev.JobQueued: lambda e: f"{e.job} queued by {e.peer}: {e.tag} ({e.profile}, {e.work_class})",
    ev.JobRetried: lambda e: f"{e.job} queued again on request, was {e.prior_state}",
    ev.JobRequeued: lambda e: f"{e.job} queued again: {e.reason.replace('_', ' ')}",
    ev.JobRejected: lambda e: (
        (f"{e.job} cancelled" if e.state == "cancelled" else f"{e.job} rejected ({e.code})")
        + ("" if e.detail == e.code else f": {e.detail}")
    ),
    ev.JobCancelRequested: lambda e: f"{e.job} is being ended: {e.reason}",
    ev.AttemptAllocated: _allocated,
    ev.AttemptBound: lambda e: f"{e.attempt} waits at its barrier, shim {e.shim.pid}",
    ev.AttemptLaunched: lambda e: f"{e.attempt} started, process group {e.leader.pid}",
    ev.AttemptExited: _exited,
    ev.AttemptStuck: lambda e: f"{e.attempt} cannot be ended: {e.detail}",
    ev.AttemptFound: lambda e: f"{e.attempt} {FOUND[e.found]}: {e.detail} [{e.evidence}]",
    ev.AttemptPresumedDead: lambda e: (
        f"{e.attempt} presumed dead by an operator"
        f"{'' if e.uid is None else f' (uid {e.uid})'}: {e.reason}"
    ),
    ev.AllocationReleased: lambda e: f"{e.attempt} released what it held",
    ev.JobFinished: _finished,
    ev.GenerationOpened: lambda e: f"generation {e.generation} opened",
    ev.GenerationAssessed: lambda e: (
        f"generation {e.generation} takes only mature work: {e.reason}"
    ),
    ev.GenerationFrozen: lambda e: f"generation {e.generation} frozen: {e.reason}",
    ev.GenerationClosed: lambda e: f"generation {e.generation} closed: nothing of it runs",
    ev.ResultPublished: lambda e: (
        f"{'mature ' if e.mature else ''}result of {e.tag} published"
        f"{f' by {e.peer}' if e.peer else ''} ({e.source})"
    ),
    ev.LeaseGranted: lambda e: (
        f"lease {e.lease_id} offered to {e.peer} ({e.priority}, {', '.join(e.profiles)}, "
        f"{e.window_ms // 1000} s)"
    ),
    ev.LeaseEnded: lambda e: (
        f"lease {e.lease_id} {e.outcome}: {e.reason}{f' by {e.job}' if e.job else ''}"
    ),
    ev.LeaseCounted: lambda e: f"lease {e.lease_id} sent by {e.peer}: {e.what.replace('_', ' ')}",
    ev.LimitChanged: lambda e: f"limit {e.before} -> {e.limit} ({e.reason})",
    ev.BindingObserved: lambda e: (
        f"{e.attempt} binding {e.status}{': ' if e.detail else ''}{e.detail}"
    ),
    ev.AdmissionClosed: lambda e: f"admission closed: {e.reason}",
    ev.AdmissionOpened: lambda e: f"admission opened: {e.reason}",
}
