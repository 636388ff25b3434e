"""The place that is kept for the oldest job that waits for devices, so that it cannot starve.

Smaller jobs could pass it for ever. Its devices are therefore kept: others may go there only if
they fit beside it, or will have ended before it could start (backfill), by the calibrated run
times. Places that other runs wait for, and hold less than we do, are kept in the same way.
Source: design 5 ("No starvation", "Fair between runs").
"""

from __future__ import annotations

import math

from ..protocol.claims import HostView
from .demand import Demand, demand_of, is_exclusive
from .device_load import DeviceLoad, Holding, without
from .kept_place import KeptPlace, Reservation
from .room import Extra, room
from .run_names import run_words
from .soft import SoftState
from .state import Attempt, BrokerState, Job
from .survey import Newcomer

BACKFILL_SHARE = 0.9
"""A newcomer counts as ended when this share of its kind has."""
CHECKED_MS = 1_000
DEPARTURE_SHARE = 0.5
"""A running attempt is expected to end at its median."""


def reservation_for(
    job: Job, demand: Demand, state: BrokerState, soft: SoftState
) -> Reservation | None:
    """The devices on which the job can start soonest. None when foreign load keeps it out: then
    no drain of ours would help it."""
    found: list[tuple[float, int, int, str]] = []
    for load in soft.fleet.loads(state):
        uuid = load.sample.uuid
        if soft.storms.resting("device", uuid) is not None:
            continue
        if not room(without(load, load.holdings), demand).fits:
            continue
        at_ms, leaving = starts_at(load, demand, state, soft)
        found.append((at_ms, leaving, load.sample.index, uuid))
    if len(found) < demand.devices:
        return None
    found.sort()
    chosen = found[: demand.devices]
    latest = max(at_ms for at_ms, _, _, _ in chosen)
    return Reservation(
        job.job,
        demand,
        tuple(uuid for _, _, _, uuid in chosen),
        None if math.isinf(latest) else latest,
    )


def still_holds(reservation: Reservation, state: BrokerState, soft: SoftState) -> bool:
    """Whether its job waits on, and could start on its devices once they have drained. Brings the
    time at which it could start up to date."""
    job = state.jobs.get(reservation.job)
    if job is None or job.state != "queued" or job.job not in soft.queue.waiting:
        return False
    profile = state.policy.profiles.get(job.profile)
    if profile is None or demand_of(profile) != reservation.demand:
        return False
    if rests_on(state, soft) == reservation.checked and soft.now_ms < reservation.checked_until_ms:
        return True
    latest = 0.0
    for uuid in reservation.uuids:
        if uuid not in soft.fleet.devices or soft.storms.resting("device", uuid) is not None:
            return False
        load = soft.fleet.load(uuid, state)
        if not room(without(load, load.holdings), reservation.demand).fits:
            return False
        latest = max(latest, starts_at(load, reservation.demand, state, soft)[0])
    reservation.needed_at_ms = None if math.isinf(latest) else latest
    reservation.checked_until_ms = soft.now_ms + CHECKED_MS
    return True


def rests_on(state: BrokerState, soft: SoftState) -> tuple[int, int, int]:
    """Another value when devices changed or run times were learnt: who may pass is judged by the
    same run times as when the place will be needed."""
    return soft.fleet.epoch, len(soft.fleet.changes), state.calibration.learnt


def starts_at(
    load: DeviceLoad, demand: Demand, state: BrokerState, soft: SoftState
) -> tuple[float, int]:
    """(when the demand fits on the device, how many must leave before): CLOCK_BOOTTIME
    milliseconds, infinite when an end on the way is unknown."""
    if room(load, demand).fits:
        return float(soft.now_ms), 0
    leaving: list[Holding] = []
    at_ms = float(soft.now_ms)
    for end_ms, holding in departures(load, state, soft):
        leaving.append(holding)
        at_ms = max(at_ms, end_ms)
        if room(without(load, leaving), demand).fits:
            break
    return at_ms, len(leaving)


def departures(
    load: DeviceLoad, state: BrokerState, soft: SoftState
) -> list[tuple[float, Holding]]:
    """The holdings of a device by their expected end; those that are unknown come last."""
    found = []
    for holding in load.holdings:
        attempt = state.attempts.get(holding.attempt) if holding.run == soft.run_key else None
        found.append((expected_end_ms(attempt, state, soft, DEPARTURE_SHARE), holding))
    found.sort(key=lambda item: (item[0], item[1].attempt))
    return found


def expected_end_ms(
    attempt: Attempt | None, state: BrokerState, soft: SoftState, share: float
) -> float:
    """When `share` of such attempts have ended, CLOCK_BOOTTIME milliseconds; infinite: unknown."""
    if attempt is None:
        return math.inf
    job = state.jobs[attempt.job]
    time = state.calibration.run_time(job.profile, job.eta_ms)
    if time is None:
        return math.inf
    elapsed_ms = max(0, soft.now_at_ms - attempt.allocated_at_ms)
    return soft.now_ms + time.remaining_ms(elapsed_ms, share)


def newcomer(job: Job, state: BrokerState, soft: SoftState) -> Newcomer:
    """A job that would start now: by when it will have ended, as far as one may rely on it."""
    time = state.calibration.run_time(job.profile, job.eta_ms)
    ends = None if time is None else soft.now_ms + time.remaining_ms(0, BACKFILL_SHARE)
    return Newcomer(job.job, ends)


def kept_places(
    reservation: Reservation | None, view: HostView | None, state: BrokerState, soft: SoftState
) -> dict[str, list[KeptPlace]]:
    """Every place that is kept for somebody, by device."""
    places: dict[str, list[KeptPlace]] = {}
    if reservation is not None:
        extra = _extra(reservation.demand)
        whose = f"{reservation.job}, which has waited longest for devices"
        place = KeptPlace(extra, "gpu_reserved", whose, reservation.job, reservation.needed_at_ms)
        for uuid in reservation.uuids:
            places.setdefault(uuid, []).append(place)
    if view is None or not view.wants:
        return places
    ours = sum(1 for attempt in state.attempts.values() if attempt.device_uuids)
    ours += sum(1 for plan in soft.plans.values() if plan.envelope.device_uuids)
    for waiting in view.wants:
        envelope = waiting.want.envelope
        if envelope is None or waiting.run_key == soft.run_key or waiting.held >= ours:
            continue
        extra = Extra(
            envelope.memory_mib,
            envelope.utilization_pct,
            is_exclusive(envelope),
        )
        whose = f"run {run_words(view, waiting.run_key)}, which holds fewer"
        for uuid in envelope.device_uuids:
            places.setdefault(uuid, []).append(KeptPlace(extra, "fair_share", whose))
    return places


def _extra(demand: Demand) -> Extra:
    return Extra(demand.memory_mib, demand.utilization_pct, demand.exclusive)
