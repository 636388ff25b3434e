"""Which devices an attempt gets: a survey of all of them, and the emptiest that fit.

One survey admits, explains and forecasts. A place that is kept, for the oldest job of this run that
waits for devices or for a run that holds less, counts as taken unless the newcomer ends before it
is needed. Source: seed 000 "Task Contract" (bounds, order by the tighter headroom), design 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.claims import DeviceFacts, Envelope
from ..protocol.policy import Profile
from ..protocol.reports import HostSampled
from ..protocol.views import Blocker
from .demand import Demand, demand_of, memory_limit_mib
from .device_load import DeviceLoad, without
from .kept_place import KeptPlace
from .room import Room, room, tightness
from .shortage import device_blockers
from .soft import SoftState
from .state import Attempt, BrokerState

CPU_ENVELOPE = Envelope(device_uuids=(), exclusive=False, memory_mib=None, utilization_pct=None)
SAMPLE_AGE_MAX_MS = 5_000
"""Samples come once a second. An older one says what the devices were, not what they are."""


@dataclass(frozen=True, slots=True)
class Look:
    """One device against one demand."""

    load: DeviceLoad
    room: Room
    settling: bool = False
    kept: KeptPlace | None = None
    """The place for somebody else that is in the way."""

    @property
    def fits(self) -> bool:
        """Whether the demand can be placed here now."""
        return self.room.fits and not self.settling and self.kept is None


@dataclass(frozen=True, slots=True)
class Placement:
    """Either an envelope with the facts it rests on, or why not."""

    envelope: Envelope | None
    blockers: tuple[Blocker, ...] = ()
    facts: tuple[DeviceFacts, ...] = ()


def stale_sample(soft: SoftState) -> str | None:
    """In words, that the newest sample is too old to be believed; else None."""
    age_ms = soft.sample_age_ms()
    if age_ms is None or age_ms <= SAMPLE_AGE_MAX_MS:
        return None
    return f"the last sample is {age_ms // 1000} s old"


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Who asks: nobody's place is kept from itself, and what ends in time may pass."""

    job: str | None = None
    ends_by_ms: float | None = None
    """When it will have ended, CLOCK_BOOTTIME milliseconds; None is unknown."""


ANYONE = Newcomer()


def survey(
    demand: Demand, state: BrokerState, soft: SoftState, newcomer: Newcomer = ANYONE
) -> list[Look]:
    """Every device against a demand, in the driver's order."""
    if soft.sample is None:
        return []
    sampled_at_ms = soft.sample.sampled_at_mono_ms
    looks = []
    for load in soft.fleet.loads(state):
        uuid = load.sample.uuid
        verdict = room(load, demand)
        looks.append(
            Look(
                load,
                verdict,
                soft.fleet.settling(uuid, sampled_at_ms),
                _in_the_way(load, demand, soft, newcomer) if verdict.fits else None,
            )
        )
    return looks


def _in_the_way(
    load: DeviceLoad, demand: Demand, soft: SoftState, newcomer: Newcomer
) -> KeptPlace | None:
    """The first kept place that the newcomer would take away."""
    for place in soft.fleet.places.get(load.sample.uuid, ()):
        if place.job is not None and place.job == newcomer.job:
            continue
        needed, ends = place.needed_at_ms, newcomer.ends_by_ms
        if needed is not None and ends is not None and ends <= needed:
            continue
        if not room(load, demand, place.extra).fits:
            return place
    return None


def choose(
    profile: Profile, state: BrokerState, soft: SoftState, newcomer: Newcomer = ANYONE
) -> Placement:
    """A placement for one attempt of `profile`, or every blocker with its numbers."""
    if profile.accelerator == "cpu":
        return Placement(CPU_ENVELOPE)
    unknown = probe_blocker(soft)
    if unknown is not None:
        return Placement(None, (unknown,))
    demand = demand_of(profile)
    looks = survey(demand, state, soft, newcomer)
    fitting = [look for look in looks if look.fits]
    if len(fitting) < demand.devices:
        return Placement(None, device_blockers(demand, looks))
    fitting.sort(key=lambda look: (*tightness(look.load), look.load.sample.index))
    return placed(demand, fitting[: demand.devices])


def placed(demand: Demand, looks: list[Look]) -> Placement:
    """The envelope on these devices."""
    return Placement(
        Envelope(
            device_uuids=tuple(look.load.sample.uuid for look in looks),
            exclusive=demand.exclusive or any(look.room.alone for look in looks),
            memory_mib=demand.memory_mib,
            utilization_pct=demand.utilization_pct,
        ),
        facts=tuple(
            DeviceFacts(
                uuid=look.load.sample.uuid,
                memory_total_mib=look.load.sample.memory_total_mib,
                foreign_memory_mib=look.load.external_memory_mib,
                foreign_utilization_pct=look.load.external_utilization_pct,
            )
            for look in looks
        ),
    )


def still_fits(attempt: Attempt, state: BrokerState, soft: SoftState) -> bool:
    """The last look before GO: whether the room it was given is still there. What nothing is known
    of now is left as it was decided."""
    if not attempt.device_uuids or probe_blocker(soft) is not None:
        return True
    demand = Demand(
        len(attempt.device_uuids),
        None if attempt.exclusive else attempt.memory_mib,
        attempt.utilization_pct,
    )
    for uuid in attempt.device_uuids:
        if uuid not in soft.fleet.devices:
            return False
        load = soft.fleet.load(uuid, state)
        mine = [h for h in load.holdings if (h.run, h.attempt) == (soft.run_key, attempt.attempt)]
        if not room(without(load, mine), demand).fits:
            return False
    return True


def probe_blocker(soft: SoftState) -> Blocker | None:
    """Why nothing can be said of the devices as a whole; None when they can be judged."""
    sample, stale = soft.sample, stale_sample(soft)
    if sample is None or stale is not None or sample.probe_state == "unknown":
        reason = stale or (sample.probe_reason if sample is not None else "no sample yet")
        detail = f"the devices are not known: {reason or 'no reason given'}"
        return Blocker(code="probe_unknown", detail=detail)
    if sample.probe_state != "available":
        detail = f"no usable accelerator: {sample.probe_reason or sample.probe_state}"
        return Blocker(code="probe_unavailable", detail=detail)
    return None


def never_fits(profile: Profile, sample: HostSampled) -> str | None:
    """Why `profile` can never run on this host, or None when it may or when that is unknown."""
    if profile.accelerator == "cpu" or sample.probe_state == "unknown":
        return None
    if sample.probe_state != "available":
        return f"{_needs(profile)}; {sample.probe_reason or sample.probe_state}"
    if len(sample.devices) < profile.gpu_count:
        return f"{_needs(profile)}; this host has {len(sample.devices)}"
    # A device that is lost or silent may come back; one that is not supported stays so.
    usable = [device for device in sample.devices if device.state != "unsupported"]
    if len(usable) < profile.gpu_count:
        return f"{_needs(profile)}; {len(usable)} of this host's can be placed on"
    need = demand_of(profile).memory_mib
    if need is not None:
        fitting = sum(
            1
            for device in usable
            if device.memory_total_mib is None or need <= memory_limit_mib(device.memory_total_mib)
        )
        if fitting < profile.gpu_count:
            return (
                f"{_needs(profile)} with {profile.gpu_memory_gb:g} GiB "
                f"(at most 95 % of a device); this host has {fitting}"
            )
    return None


def _needs(profile: Profile) -> str:
    return f"needs {profile.gpu_count} GPU{'' if profile.gpu_count == 1 else 's'}"
