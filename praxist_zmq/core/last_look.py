"""The last look at its devices and at the host before an attempt may run.

A placement rests on a sample that can be a second old, and what others took since is not in it. So
an attempt on devices, or of a profile that declares a kind of host pressure, gets GO only when
those were read at about the time of its plan or later. The look is asked for with the plan, and has
mostly come before the attempt waits at its barrier. Nobody is held for long by a driver that tells
nothing, or a sampler that is gone: then what was decided stays.
Source: the fault list of the reference (another process takes the memory between sample and
launch); seed 000 (the final launch always rechecks live pressure).
"""

from __future__ import annotations

from .placement import SAMPLE_AGE_MAX_MS, probe_blocker, stale_sample, still_fits
from .pressure import at_high_mark, declares_pressure
from .soft import Awaited, SoftState
from .state import Attempt, BrokerState

FRESH_MS = 100
"""A reading that is this much older than the plan will do: samples do not come faster."""


def expect_look(
    state: BrokerState,
    soft: SoftState,
    attempt: str,
    profile: str,
    uuids: tuple[str, ...],
    since_ms: int,
) -> None:
    """The host, if the profile declares pressure, and these devices are to be read again before the
    attempt may run, unless they just were. `since_ms`: CLOCK_BOOTTIME of its plan."""
    pressure = declares_pressure(state.policy.profiles.get(profile))
    awaited = Awaited(since_ms, uuids, pressure)
    if not _looked(soft, awaited):
        soft.unlooked[attempt] = awaited


def take_look(soft: SoftState) -> None:
    """There is a new sample: whom it serves waits no more."""
    for attempt, awaited in list(soft.unlooked.items()):
        if _looked(soft, awaited):
            del soft.unlooked[attempt]


def waits_for_look(soft: SoftState, attempt: str) -> bool:
    """Whether GO has to wait for a newer reading of the host or of the attempt's devices."""
    awaited = soft.unlooked.get(attempt)
    if awaited is None or soft.now_ms - awaited.since_ms > SAMPLE_AGE_MAX_MS:
        return False
    if soft.sample is None:
        return True
    if stale_sample(soft) is not None:
        return False
    return not _host_looked(soft, awaited) or probe_blocker(soft) is None


def look_wanted(soft: SoftState) -> bool:
    """Whether a newer reading is waited for, now or when an attempt is at its barrier."""
    return any(
        soft.now_ms - awaited.since_ms <= SAMPLE_AGE_MAX_MS for awaited in soft.unlooked.values()
    )


def room_is_there(attempt: Attempt, state: BrokerState, soft: SoftState) -> bool:
    """Whether the newest look leaves the attempt its devices, and no pressure that its profile
    declares holds it back."""
    profile = state.policy.profiles.get(state.jobs[attempt.job].profile)
    sample = None if stale_sample(soft) is not None else soft.sample
    return still_fits(attempt, state, soft) and not at_high_mark(profile, state.policy, sample)


def _looked(soft: SoftState, awaited: Awaited) -> bool:
    if soft.sample is None:
        return not awaited.uuids and not awaited.pressure
    if not _host_looked(soft, awaited):
        return False
    for uuid in awaited.uuids:
        device = soft.fleet.devices.get(uuid)
        if device is None or device.state != "available":
            continue  # nothing more will be read of it; the check before GO says so
        read_ms = device.read_at_mono_ms or soft.sample.sampled_at_mono_ms
        if read_ms < awaited.since_ms - FRESH_MS:
            return False
    return True


def _host_looked(soft: SoftState, awaited: Awaited) -> bool:
    if not awaited.pressure or soft.sample is None:
        return not awaited.pressure
    return soft.sample.sampled_at_mono_ms >= awaited.since_ms - FRESH_MS
