"""What a seed has met: a simulation that never gets anywhere proves nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from praxist_zmq.protocol import events as ev

if TYPE_CHECKING:
    from .world import SimWorld

USUAL = (
    "lease granted", "lease consumed", "job completed", "attempt started", "broker restarted",
    "registry restarted",
)  # fmt: skip
"""Met in at least every tenth seed."""
RARE = (
    "lease revoked", "lease expired", "lease declined", "lease reclaimed", "lease stale",
    "exit 75 tried again", "never ran", "outcome unknown", "job failed", "job rejected",
    "job retried", "job cancelled while it ran", "generation frozen", "generation assessed",
    "generation run again", "run stopped", "another boot", "escapees", "exec failed",
    "limit changed", "result published", "snapshot",
)  # fmt: skip
"""Met somewhere in a few hundred seeds."""


def met(world: SimWorld) -> Counter[str]:
    """What happened in one seed, each thing counted once."""
    found: set[str] = {f"fault: {name}" for name in world.faults.met}
    found.update("attempt started" for _ in world.starts_of)
    found.update("snapshot" for run in world.runs if run.broker.disk.snapshot is not None)
    if sum(1 for event in world.registry.history if event.kind == "registry_opened") > 1:
        found.add("registry restarted")
    for run in world.runs:
        boots = set()
        for event in run.broker.witness.history:
            found.update(_of(event))
            if isinstance(event, ev.BrokerStarted):
                boots.add(event.boot_id)
        if len(boots) > 1:
            found.add("another boot")
    return Counter(found)


def _of(event: Any) -> tuple[str, ...]:
    match event:
        case ev.BrokerStarted():
            return ("broker restarted",) if event.epoch > 1 else ()
        case ev.LeaseGranted():
            return ("lease granted",)
        case ev.LeaseEnded():
            reclaimed = event.reason == "resource_claim_reclaimed"
            return (f"lease {event.outcome}", *(["lease reclaimed"] if reclaimed else []))
        case ev.LeaseCounted():
            return ("lease stale",)
        case ev.JobFinished():
            return (f"job {event.state}",)
        case ev.JobRequeued():
            return ("exit 75 tried again" if event.reason == "exit_75" else "never ran",)
        case ev.AttemptExited():
            words = {"unknown": "outcome unknown", "exec_failed": "exec failed"}
            escapees = ("escapees",) if event.survivors else ()
            return (words.get(event.outcome, event.outcome), *escapees)
        case ev.AdmissionClosed():
            return ("run stopped",) if event.reason == "the run was stopped" else ()
        case ev.GenerationOpened():
            return ("generation run again",) if event.rerun else ()
    return (_SIMPLE.get(type(event), event.kind),)


_SIMPLE: dict[type, str] = {
    ev.JobRejected: "job rejected",
    ev.JobRetried: "job retried",
    ev.JobCancelRequested: "job cancelled while it ran",
    ev.GenerationFrozen: "generation frozen",
    ev.GenerationAssessed: "generation assessed",
    ev.LimitChanged: "limit changed",
    ev.ResultPublished: "result published",
}
