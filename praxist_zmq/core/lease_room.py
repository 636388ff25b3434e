"""How much room leases may promise now, and the largest shape that one of them may offer.

Work goes first: a slot that a queued job could take is not idle. Leases count as if they held what
they offer, so that N free slots wake at most N peers and no device is offered twice. Source: seed
000 "Mature Evidence And Idle Supply Feedback"; the reference of the original system, "Supply
leases" (claim rule).
"""

from __future__ import annotations

import math
from heapq import nsmallest

from ..protocol.claims import Envelope
from .admission import profile_gates, run_gates
from .concurrency import occupied
from .demand import Demand, demand_of
from .lease_memory import Proposal
from .placement import CPU_ENVELOPE, Placement, placed
from .queue import Lane, lane_of
from .room import Extra, room
from .soft import SoftState
from .state import BrokerState
from .survey import look_round


def free_slots(state: BrokerState, soft: SoftState) -> int:
    """Slots that neither jobs, nor queued work that could start, nor leases fill."""
    memory = soft.leases
    lanes = _lanes_that_could_start(state, soft)
    waiting = sum(soft.queue.sizes[lane] for lane in lanes)
    waiting += sum(1 for job in memory.answered if lane_of(state.jobs[job]) not in lanes)
    leases = len(state.leases.live) + len(memory.offers) + len(memory.releasing)
    free = state.limit - occupied(state, soft) - waiting - leases
    view = soft.host_view
    if view is not None and view.limit:
        others = sum(1 for row in view.leases if row.run_key != soft.run_key)
        held = soft.others_hold + occupied(state, soft) + others
        free = min(free, view.limit - held - waiting - leases)
    return max(0, free)


def _lanes_that_could_start(state: BrokerState, soft: SoftState) -> set[Lane]:
    """Lanes of the queue that nothing but a slot, or a fresh look at the host, keeps waiting."""
    found = set()
    for lane in soft.queue.sizes:
        head = soft.queue.head(lane)
        if head is None:
            continue
        gates = profile_gates(lane[1], state.jobs[head], state, soft)
        if gates.envelope is not None or gates.may_wait_for_a_sample:
            found.add(lane)
    return found


def propose(state: BrokerState, soft: SoftState) -> Proposal | None:
    """The profiles that a lease could name now; None when there are none."""
    if run_gates(state, soft).blockers:
        return None
    could: dict[str, Demand] = {}
    cpu: list[str] = []
    for name, profile in state.policy.profiles.items():
        if profile_gates(name, None, state, soft).envelope is None:
            continue
        if profile.accelerator == "cpu":
            cpu.append(name)
        else:
            could[name] = demand_of(profile)
    for demand in sorted(could.values(), key=_size, reverse=True):
        placement = _beside_leases(demand, state, soft)
        if placement.envelope is None:
            continue
        inside = [name for name, other in could.items() if _fits_inside(other, demand)]
        names = [name for name in state.policy.profiles if name in inside or name in cpu]
        return Proposal(tuple(names), placement.envelope, placement.facts)
    return Proposal(tuple(cpu), CPU_ENVELOPE, ()) if cpu else None


def _size(demand: Demand) -> tuple[bool, int, float, float]:
    """Unknown demand is the largest, then more devices, more memory, more of the device's time."""
    memory = math.inf if demand.memory_mib is None else demand.memory_mib
    busy = math.inf if demand.utilization_pct is None else demand.utilization_pct
    return demand.exclusive, demand.devices, memory, busy


def _fits_inside(small: Demand, large: Demand) -> bool:
    if small.devices > large.devices:
        return False
    if large.exclusive:
        return True
    return (
        not small.exclusive
        and (small.memory_mib or 0) <= (large.memory_mib or 0)
        and (small.utilization_pct or 0.0) <= (large.utilization_pct or 0.0)
    )


def _beside_leases(demand: Demand, state: BrokerState, soft: SoftState) -> Placement:
    """A placement where the leases of all runs, and those asked for, hold what they offer."""
    extras = _offered(soft)
    fitting = {}
    for look in look_round(demand, state, soft):
        extra = extras.get(look.load.sample.uuid)
        if not look.fits or (extra is not None and not room(look.load, demand, extra).fits):
            continue
        fitting[look.load.sample.uuid] = look
    if len(fitting) < demand.devices:
        return Placement(None)
    chosen = nsmallest(demand.devices, fitting, key=lambda uuid: fitting[uuid].key)
    return placed(demand, [fitting[uuid] for uuid in chosen])


def _offered(soft: SoftState) -> dict[str, Extra]:
    """What leases hold of each device."""
    rows: list[Envelope] = [offer.proposal.envelope for offer in soft.leases.offers.values()]
    rows += [hold.proposal.envelope for hold in soft.leases.holds.values()]
    if soft.host_view is not None:
        rows += [row.envelope for row in soft.host_view.leases if row.run_key != soft.run_key]
    found: dict[str, Extra] = {}
    for envelope in rows:
        alone = (
            envelope.exclusive or envelope.memory_mib is None or envelope.utilization_pct is None
        )
        for uuid in envelope.device_uuids:
            before = found.get(uuid, Extra(0, 0.0, False))
            found[uuid] = Extra(
                (before.memory_mib or 0) + (envelope.memory_mib or 0),
                (before.utilization_pct or 0.0) + (envelope.utilization_pct or 0.0),
                before.exclusive or alone,
            )
    return found
