"""Which devices an attempt gets: of those that fit, the emptiest.

One survey admits, explains and forecasts. Source: seed 000 "Task Contract" (bounds, order by the
tighter headroom), design 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import nsmallest

from ..protocol.claims import DeviceFacts, Envelope
from ..protocol.policy import Profile
from ..protocol.reports import HostSampled
from ..protocol.views import Blocker
from .demand import Demand, demand_of, memory_limit_mib
from .device_load import DeviceLoad, load_of, without
from .room import room
from .shortage import device_blockers
from .soft import SoftState
from .state import Attempt, BrokerState
from .survey import ANYONE, Look, Newcomer, Survey, look_at

CPU_ENVELOPE = Envelope(device_uuids=(), exclusive=False, memory_mib=None, utilization_pct=None)
SAMPLE_AGE_MAX_MS = 5_000
"""Samples come once a second. An older one says what the devices were, not what they are."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Either an envelope with the facts it rests on, or why not."""

    envelope: Envelope | None
    facts: tuple[DeviceFacts, ...] = ()
    unknown: Blocker | None = None
    """Why nothing can be said of the devices as a whole."""
    demand: Demand | None = None
    looks: tuple[Look, ...] = ()
    """Every device against the demand, when they can be judged and too few fit."""
    now_ms: int = 0
    """When that was."""

    @property
    def blockers(self) -> tuple[Blocker, ...]:
        """Every blocker with its numbers; worked out only for who reads them."""
        if self.unknown is not None:
            return (self.unknown,)
        if self.demand is None:
            return ()
        return device_blockers(self.demand, self.looks, self.now_ms)

    @property
    def may_be_passed(self) -> bool:
        """Whether a place that is kept until some time is in the way: shorter work may pass."""
        return any(look.kept is not None and look.kept.needed_at_ms for look in self.looks)

    @property
    def settling(self) -> bool:
        """Whether a look at the devices may be all that is missing."""
        return self.unknown is not None or any(look.settling for look in self.looks)


def stale_sample(soft: SoftState) -> str | None:
    """In words, that the newest sample is too old to be believed; else None."""
    age_ms = soft.sample_age_ms()
    if age_ms is None or age_ms <= SAMPLE_AGE_MAX_MS:
        return None
    return f"the last sample is {age_ms // 1000} s old"


def stale_due_ms(soft: SoftState) -> int | None:
    """When the newest sample will be too old, if no other comes; None when nothing waits."""
    if soft.sample is None or not soft.queue or stale_sample(soft) is not None:
        return None
    return soft.sample.sampled_at_mono_ms + SAMPLE_AGE_MAX_MS + 1


def choose(
    profile: Profile, state: BrokerState, soft: SoftState, newcomer: Newcomer = ANYONE
) -> Placement:
    """A placement for one attempt of `profile`, or what stands against it."""
    if profile.accelerator == "cpu":
        return Placement(CPU_ENVELOPE)
    unknown = probe_blocker(soft)
    if unknown is not None:
        return Placement(None, unknown=unknown)
    survey = survey_of(profile, state, soft)
    demand = survey.demand
    looks: Mapping[str, Look] = survey.looks
    fitting = survey.fitting
    if newcomer is not ANYONE:
        # Whose place it is and who may pass it depends on who asks.
        others = {
            uuid: look_at(uuid, demand, state, soft, newcomer)
            for uuid in soft.fleet.places
            if uuid in looks
        }
        looks = {**looks, **others}
        fitting = {uuid: key for uuid, key in fitting.items() if uuid not in others}
        fitting.update((uuid, look.key) for uuid, look in others.items() if look.fits)
    if demand.devices > 1 and not demand.exclusive:
        looks = _alike(demand, looks, fitting)
        fitting = {uuid: looks[uuid].key for uuid in fitting if looks[uuid].fits}
    if len(fitting) < demand.devices:
        return Placement(None, demand=demand, looks=tuple(looks.values()), now_ms=soft.now_ms)
    several = demand.devices > 1
    chosen = nsmallest(
        demand.devices,
        fitting,
        key=lambda uuid: (several and looks[uuid].room.alone, fitting[uuid]),
    )
    return placed(demand, [looks[uuid] for uuid in chosen])


def _alike(demand: Demand, looks: Mapping[str, Look], fitting: Iterable[str]) -> Mapping[str, Look]:
    """An envelope is alone on all its devices or on none. If too few can be shared, the others are
    judged as it would hold them: alone."""
    alone = {uuid for uuid in fitting if looks[uuid].room.alone}
    shared = [uuid for uuid in fitting if uuid not in alone]
    if len(shared) >= demand.devices or not alone:
        return looks
    whole = replace(demand, memory_mib=None)
    judged = {uuid: replace(looks[uuid], room=room(looks[uuid].load, whole)) for uuid in shared}
    return {**looks, **judged}


def survey_of(profile: Profile, state: BrokerState, soft: SoftState) -> Survey:
    """The survey for what a profile declares, brought up to date: what did not change on the
    devices is not worked out again."""
    demand = demand_of(profile)
    survey = soft.surveys.get(demand)
    if survey is None:
        survey = soft.surveys[demand] = Survey(demand)
    survey.refresh(state, soft)
    return survey


def placed(demand: Demand, looks: Iterable[Look]) -> Placement:
    """The envelope of a demand on these devices, with what was seen of them."""
    looks = tuple(looks)
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
                foreign_memory_mib=_not_to_promise_mib(look.load),
                foreign_utilization_pct=look.load.external_utilization_pct,
            )
            for look in looks
        ),
    )


def _not_to_promise_mib(load: DeviceLoad) -> int | None:
    """Of the 95 % that the registry may promise: what others use, and what the driver keeps beyond
    the rest."""
    foreign, total = load.external_memory_mib, load.sample.memory_total_mib
    limit = load.memory_limit_mib
    if foreign is None or limit is None or total is None:
        return foreign
    return foreign + memory_limit_mib(total) - limit


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
            if (limit := load_of(device, ()).memory_limit_mib) is None or need <= limit
        )
        if fitting < profile.gpu_count:
            return (
                f"{_needs(profile)} with {profile.gpu_memory_gb:g} GiB "
                f"(at most 95 % of a device); this host has {fitting}"
            )
    return None


def _needs(profile: Profile) -> str:
    return f"needs {profile.gpu_count} GPU{'' if profile.gpu_count == 1 else 's'}"
