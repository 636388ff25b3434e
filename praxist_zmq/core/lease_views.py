"""Leases, their counts and the maturity they serve, as readers see them."""

from __future__ import annotations

from typing import Any

from ..protocol.replies import LeaseReply, LeasesReply
from ..protocol.views import LeaseView, SupplyCounts, SupplyStats
from .lease_state import Lease, Tally
from .maturity import maturity
from .soft import SoftState
from .state import BrokerState
from .timestamps import timestamp


def lease_view(lease: Lease, soft: SoftState) -> LeaseView:
    """One lease."""
    memory = soft.leases
    due_ms = memory.due_ms.get(lease.lease_id) if lease.state == "out" else None
    cooling_ms = None
    if lease.state == "declined":
        key = (lease.peer, lease.generation, lease.priority)
        cooling_ms = memory.cooling_ms.get(key)
    return LeaseView(
        lease_id=lease.lease_id,
        peer=lease.peer,
        generation=lease.generation,
        priority=lease.priority,
        profiles=lease.profiles,
        state=lease.state,  # type: ignore[arg-type]
        reason=lease.reason,
        job=lease.job,
        issued_at=timestamp(lease.granted_at_ms),
        expires_at=timestamp(lease.expires_at_ms),
        left_s=None if due_ms is None else max(0, due_ms - soft.now_ms) / 1000,
        release_pending=lease.lease_id in memory.releasing,
        detail=lease.detail,
        cooling_s=(
            None
            if cooling_ms is None or cooling_ms <= soft.now_ms
            else (cooling_ms - soft.now_ms) / 1000
        ),
    )


def ended_words(lease: Lease, at_ms: int) -> str:
    """What became of an offer: `expired 7 s ago`, `was revoked: generation frozen`."""
    if lease.state == "expired":
        return f"expired {max(0, at_ms - lease.expires_at_ms) // 1000} s ago"
    if lease.state == "consumed":
        return f"was answered before by {lease.job}"
    if lease.state == "declined":
        return "was declined"
    return f"was revoked: {(lease.reason or 'no reason told').replace('_', ' ')}"


def lease_reply(peer: str, state: BrokerState, soft: SoftState) -> LeaseReply:
    """A peer's live lease at this moment."""
    lease = state.leases.of_peer(peer)
    ended = reversed(state.leases.ended.values())
    last = None if lease is not None else next((one for one in ended if one.peer == peer), None)
    cooling_ms = max(
        (ms for key, ms in soft.leases.cooling_ms.items() if key[0] == peer), default=0
    )
    return LeaseReply(
        peer=peer,
        lease=None if lease is None else lease_view(lease, soft),
        waiting=peer in soft.leases.idle,
        epoch=state.epoch,
        sequence=soft.leases.sequence,
        last=None if last is None else lease_view(last, soft),
        cooling_s=(cooling_ms - soft.now_ms) / 1000 if cooling_ms > soft.now_ms else None,
    )


def leases_reply(state: BrokerState, soft: SoftState) -> LeasesReply:
    """All leases in memory."""
    leases = [*state.leases.live.values(), *reversed(state.leases.ended.values())]
    return LeasesReply(
        leases=tuple(lease_view(lease, soft) for lease in leases),
        idle=tuple(soft.leases.idle),
        stats=stats(state),
    )


def stats(state: BrokerState) -> SupplyStats:
    """What became of offers, over all restarts of the run."""
    leases = state.leases
    every = [*leases.tallies.values(), leases.unattributed]
    whole = {
        name: sum(getattr(tally, name) for tally in every) for name in Tally.__dataclass_fields__
    }
    out = {
        priority: sum(1 for lease in leases.live.values() if lease.priority == priority)
        for priority in leases.tallies
    }
    return SupplyStats(
        **whole,
        outstanding=len(leases.live),
        conversion_rate=_rate(whole["consumed"], whole["granted"]),
        by_priority={
            priority: SupplyCounts(
                **{name: getattr(tally, name) for name in Tally.__dataclass_fields__},
                outstanding=out[priority],
                conversion_rate=_rate(tally.consumed, tally.granted),
            )
            for priority, tally in leases.tallies.items()
        },
    )


def resource_supply(state: BrokerState, soft: SoftState) -> dict[str, Any]:
    """The part of `status`: leases that are out or whose room is still to be given back, waiters,
    counts, and the maturity of every generation that takes work."""
    shown = [*state.leases.live.values()]
    shown += [
        state.leases.ended[name] for name in soft.leases.releasing if name in state.leases.ended
    ]
    return {
        "leases": [lease_view(lease, soft).model_dump(mode="json") for lease in shown],
        "idle_waiters": len(soft.leases.idle),
        "stats": stats(state).model_dump(mode="json"),
        "maturity": {
            str(found.number): maturity(
                found, state, state.leases.mature_peers(found.number)
            ).model_dump(mode="json")
            for found in state.generations.values()
            if found.phase in ("open", "assessment")
        },
    }


def _rate(consumed: int, granted: int) -> float | None:
    return None if not granted else round(consumed / granted, 4)
