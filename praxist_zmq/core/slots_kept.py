"""Slots that are kept for jobs which go first and wait for nothing but a reading of the host.

A job that has just left a device, or attempts that have just begun, are not in the newest sample.
Who waits for that alone starts with the next one, some tenths of a second later. Until then a job
of a lower place may not take the slot that it needs: of the run, of the host, or below the cap of
its peer. Nobody keeps a slot for longer than a sample may be old: a driver that tells nothing must
not stop the others.

Who is held by the host's pressure is passed by work that does not mind it, which may be what keeps
the pressure up. After PATIENCE_MS it keeps one slot too. When that has been empty for EMPTY_MS and
the pressure has not fallen, it comes from elsewhere: the slot is given away, and patience begins
anew.
Source: design 5 ("No starvation"); seed 000 (queue order).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..protocol.views import Blocker
from .demand import ROUNDING, Demand
from .device_load import DeviceLoad
from .placement import SAMPLE_AGE_MAX_MS, Placement
from .queue import Lane, lane_of
from .room import free, room
from .slots import at_cap, free_slots, planned_by_peer, running_of
from .soft import Pressed, SoftState
from .state import BrokerState, Job
from .survey import Look

NAMES_SHOWN = 3
PATIENCE_MS, EMPTY_MS = 30_000, 5_000


@dataclass(slots=True)
class SlotsKept:
    """For whom slots are kept, in the order in which they go."""

    peers: dict[str, str] = field(default_factory=dict)
    """Job -> its peer."""
    pressed: set[str] = field(default_factory=set)
    """Those of them that wait for the host's pressure."""

    def refusal(self, peer: str, free: int, below_cap: int | None) -> Blocker | None:
        """Why one more attempt of a peer would take a slot that is kept; None when it would not.
        `free`: slots of the run and the host; `below_cap`: what the peer's cap leaves."""
        mine = [job for job, owner in self.peers.items() if owner == peer]
        if free <= len(self.peers):
            return self._refusal(list(self.peers), "free slot", free)
        if below_cap is not None and below_cap <= len(mine):
            return self._refusal(mine, f"place below the cap of {peer}", below_cap)
        return None

    def _refusal(self, jobs: Sequence[str], what: str, free: int) -> Blocker | None:
        if not jobs:
            return None
        shown = ", ".join(jobs[:NAMES_SHOWN])
        if len(jobs) > NAMES_SHOWN:
            shown += f" and {len(jobs) - NAMES_SHOWN} more"
        verb = "goes first and waits" if len(jobs) == 1 else "go first and wait"
        looks = not self.pressed.issuperset(jobs)
        awaited = "the next sample of the host" if looks else "the host's pressure to fall"
        return Blocker(
            code="queue_order",
            detail=f"the last {what} is kept for {shown}: {verb} only for {awaited}",
            need=1,
            free=max(0, free - len(jobs)),
            limit=max(0, free),
            unit="jobs",
        )


def going_first(state: BrokerState, soft: SoftState) -> list[tuple[Lane, str]]:
    """Who is looked at for a place, in order: the job for which devices are kept, then the head of
    every lane."""
    found = soft.queue.heads(state.policy.exploration_reserve > soft.active_non_mature)
    kept = soft.reservation
    if kept is not None and kept.job in soft.queue.waiting:
        found.insert(0, (lane_of(state.jobs[kept.job]), kept.job))
    return found


def keep_slots(
    kept: SlotsKept, lane: Lane, first: str, count: int, state: BrokerState, soft: SoftState
) -> None:
    """Slots for `count` jobs of a lane, `first` among them, that the next look may let start; else
    one, if the first has waited long enough for the host's pressure."""
    if not count:
        if not keeps_for_pressure(first, soft):
            return
        count = 1
        kept.pressed.add(first)
    planned = planned_by_peer(state, soft)
    for name in list(dict.fromkeys((first, *soft.queue.first(lane, count))))[:count]:
        peer = state.jobs[name].peer
        if not at_cap(peer, state, planned):
            planned[peer] = planned.get(peer, 0) + 1
            kept.peers.setdefault(name, peer)


def kept_blocker(kept: SlotsKept, job: Job, state: BrokerState, soft: SoftState) -> Blocker | None:
    """Why a job would take a slot that is kept for others; None when it would not."""
    if not kept.peers:
        return None
    cap = state.policy.max_parallel_runs_per_peer
    running = running_of(job.peer, state, planned_by_peer(state, soft))
    return kept.refusal(job.peer, free_slots(state, soft), None if cap is None else cap - running)


def keeps_for_pressure(job: str, soft: SoftState) -> bool:
    """Whether a job has waited long enough for the host's pressure to keep a slot."""
    held = soft.pressed.get(job)
    return held is not None and soft.now_ms - held.since_ms >= PATIENCE_MS


def note_pressed(heads: dict[str, bool], state: BrokerState, soft: SoftState) -> None:
    """Once a turn: the heads that were looked at, and which of them nothing but pressure holds."""
    for name in [name for name in soft.pressed if name not in soft.queue.waiting]:
        del soft.pressed[name]
    empty = free_slots(state, soft) > 0
    for name, held in heads.items():
        if not held:
            soft.pressed.pop(name, None)
            continue
        known = soft.pressed.setdefault(name, Pressed(soft.now_ms))
        if not empty or not keeps_for_pressure(name, soft):
            soft.pressed[name] = Pressed(known.since_ms)
        elif known.empty_ms is None:
            soft.pressed[name] = Pressed(known.since_ms, soft.now_ms)
        elif soft.now_ms - known.empty_ms >= EMPTY_MS:
            soft.pressed[name] = Pressed(soft.now_ms)


def look_missing(soft: SoftState) -> bool:
    """Whether the newest sample lacks something, or pressure holds somebody: else no slot is
    kept."""
    unseen = soft.begun_ms or soft.fleet.released_at_ms or soft.pressed
    return bool(unseen) or _devices_awaited(soft)


def starts_after_look(pressure: Sequence[Blocker], placement: Placement, soft: SoftState) -> int:
    """How many attempts of a profile the next look may let start; 0 when something else is
    missing too, when none is needed, and when it has been waited for long enough."""
    burst = None
    if pressure:
        oldest_ms = min(soft.begun_ms.values(), default=None)
        high = any(blocker.unit != "jobs" for blocker in pressure)
        if high or oldest_ms is None or not _awaited(soft, oldest_ms):
            return 0
        burst = min(int(blocker.limit or 1) for blocker in pressure)
    places = _places(placement, soft)
    return min(found for found in (burst, places, len(soft.queue)) if found is not None)


def _places(placement: Placement, soft: SoftState) -> int | None:
    """How many more the devices may take once they are looked at; None when they are no question:
    there is room now, or none is needed."""
    if placement.envelope is not None:
        return None
    if placement.unknown is not None:
        unknown = placement.unknown.code == "probe_unknown"
        return 1 if unknown and _devices_awaited(soft) else 0
    demand = placement.demand
    if demand is None:
        return 0
    found = [_places_on(look, demand, soft) for look in placement.looks]
    # An attempt on several devices needs each of them.
    enough = sum(places > 0 for places in found) >= demand.devices
    return sum(found) // demand.devices if enough else 0


def _places_on(look: Look, demand: Demand, soft: SoftState) -> int:
    """How many of a demand one device takes, if all that nobody holds has left it."""
    load, kept = look.load, look.kept is not None or look.rest is not None
    if look.settling and not kept:
        left_ms = soft.fleet.released_at_ms.get(load.sample.uuid)
        if left_ms is None or not _awaited(soft, left_ms):
            return 0
        load = _unused(load)
    elif not look.fits:
        return 0
    verdict = room(load, demand)
    if not verdict.fits:
        return 0
    if verdict.alone:
        return 1
    memory, busy = free(load)
    counts = [
        int((left + ROUNDING) // needed)
        for left, needed in ((memory, demand.memory_mib), (busy, demand.utilization_pct))
        if left is not None and needed
    ]
    return min(counts, default=1)


def _unused(load: DeviceLoad) -> DeviceLoad:
    """The device without what nobody holds: it may be the rest of what has just left."""
    memory, busy = load.external_memory_mib, load.external_utilization_pct
    return replace(
        load,
        external_memory_mib=None if memory is None else 0,
        external_utilization_pct=None if busy is None else 0.0,
        external=(),
    )


def _devices_awaited(soft: SoftState) -> bool:
    """Whether the devices became unknown, or the run began, so lately that the next look may tell
    of them."""
    unknown = soft.sample is None or soft.sample.probe_state == "unknown"
    return unknown and _awaited(soft, soft.probe_known_ms)


def _awaited(soft: SoftState, since_ms: int) -> bool:
    return soft.now_ms - since_ms <= SAMPLE_AGE_MAX_MS
