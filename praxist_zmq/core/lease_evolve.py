"""How events change the durable part of the run's leases. Called by `core.evolve` alone."""

from __future__ import annotations

from ..protocol import events as ev
from ..protocol.policy import Priority
from .lease_state import Decline, Lease, Leases, Tally
from .transitions import START, IllegalTransition

ENDED_KEPT = 256
"""Ended leases that are kept for readers. That one was consumed is kept for ever."""


def granted(event: ev.LeaseGranted, leases: Leases) -> None:
    """An offer is out."""
    name = event.lease_id
    if name in leases.live or name in leases.ended or name in leases.consumed:
        raise IllegalTransition(name, "given before", event.kind)
    other = leases.of_peer(event.peer)
    if other is not None:
        raise IllegalTransition(event.peer, f"answering {other.lease_id}", event.kind)
    leases.live[name] = Lease(
        lease_id=name,
        peer=event.peer,
        generation=event.generation,
        priority=event.priority,
        profiles=event.profiles,
        granted_at_ms=event.at_ms,
        window_ms=event.window_ms,
        expires_at_ms=event.expires_at_ms,
    )
    leases.last_number = max(leases.last_number, int(name.split("-")[1]))
    leases.tallies[event.priority].granted += 1


def ended(event: ev.LeaseEnded, leases: Leases) -> None:
    """An offer is over."""
    lease = leases.live.pop(event.lease_id, None)
    if lease is None:
        raise IllegalTransition(event.lease_id, START, event.kind)
    lease.state, lease.reason = event.outcome, event.reason
    lease.detail, lease.job = event.detail, event.job
    leases.ended[lease.lease_id] = lease
    if len(leases.ended) > ENDED_KEPT:
        del leases.ended[next(iter(leases.ended))]
    tally = leases.tallies[lease.priority]
    setattr(tally, event.outcome, getattr(tally, event.outcome) + 1)
    if event.outcome == "consumed":
        leases.consumed[lease.lease_id] = lease.priority
    elif event.outcome == "declined":
        _note_decline(lease, event.at_ms, leases)


def counted(event: ev.LeaseCounted, leases: Leases) -> None:
    """A locator was worth nothing."""
    tally = _tally_of(event.lease_id, leases)
    setattr(tally, event.what, getattr(tally, event.what) + 1)


def forget_declines(leases: Leases, peer: str | None = None, generation: int | None = None) -> None:
    """A peer sent new work, or a generation was opened: nobody cools down for what was before."""
    if peer is not None:
        leases.declines.pop(peer, None)
    for name, found in list(leases.declines.items()) if generation is not None else ():
        kept = [decline for decline in found if decline.generation != generation]
        if kept:
            leases.declines[name] = kept
        else:
            del leases.declines[name]


def _note_decline(lease: Lease, at_ms: int, leases: Leases) -> None:
    declines = leases.declines.setdefault(lease.peer, [])
    for found in declines:
        if (found.generation, found.priority) == (lease.generation, lease.priority):
            found.times += 1
            found.at_ms = at_ms
            return
    declines.append(Decline(lease.generation, lease.priority, 1, at_ms))


def _tally_of(lease_id: str, leases: Leases) -> Tally:
    priority: Priority | None = leases.consumed.get(lease_id)
    known = leases.live.get(lease_id) or leases.ended.get(lease_id)
    if known is not None:
        priority = known.priority
    return leases.unattributed if priority is None else leases.tallies[priority]
