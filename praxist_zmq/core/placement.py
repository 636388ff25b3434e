"""Which devices an attempt gets. In this release every device is held by one attempt alone.

The seam for packing by declared demand is `free_devices` and `choose`; nothing else knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.claims import Envelope
from ..protocol.policy import Profile
from ..protocol.views import Blocker
from .soft import SoftState
from .state import BrokerState

CPU_ENVELOPE = Envelope(device_uuids=(), exclusive=False, memory_mib=None, utilization_pct=None)


SAMPLE_AGE_MAX_MS = 5_000
"""Samples come once a second. An older one says what the devices were, not what they are."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Either an envelope, or why not."""

    envelope: Envelope | None
    blockers: tuple[Blocker, ...] = ()


def stale_sample(soft: SoftState) -> str | None:
    """In words, that the newest sample is too old to be believed; else None."""
    age_ms = soft.sample_age_ms()
    if age_ms is None or age_ms <= SAMPLE_AGE_MAX_MS:
        return None
    return f"the last sample is {age_ms // 1000} s old"


def free_devices(state: BrokerState, soft: SoftState) -> list[str]:
    """Devices that nobody holds, by index. None while what is known of them is too old."""
    if soft.sample is None or stale_sample(soft) is not None:
        return []
    return [
        device.uuid
        for device in sorted(soft.sample.devices, key=lambda d: (d.index, d.uuid))
        if device.state == "available"
        and device.uuid not in state.device_holders
        and device.uuid not in soft.planned_devices
        and device.uuid not in soft.foreign_devices
    ]


def choose(profile: Profile, state: BrokerState, soft: SoftState) -> Placement:
    """A placement for one attempt of `profile`, or every blocker with its numbers."""
    if profile.accelerator == "cpu":
        return Placement(CPU_ENVELOPE)
    sample, stale = soft.sample, stale_sample(soft)
    if sample is None or stale is not None or sample.probe_state == "unknown":
        reason = stale or (sample.probe_reason if sample is not None else "no sample yet")
        detail = f"the devices are not known: {reason or 'no reason given'}"
        return Placement(None, (Blocker(code="probe_unknown", detail=detail),))
    if sample.probe_state != "available":
        detail = f"no usable accelerator: {sample.probe_reason or sample.probe_state}"
        return Placement(None, (Blocker(code="probe_unavailable", detail=detail),))
    free = free_devices(state, soft)
    if len(free) < profile.gpu_count:
        known = len(sample.devices)
        return Placement(
            None,
            (
                Blocker(
                    code="gpu_count_short",
                    detail=f"needs {profile.gpu_count} of {known} devices, {len(free)} free",
                    need=profile.gpu_count,
                    free=len(free),
                    limit=known,
                    unit="devices",
                ),
            ),
        )
    memory = None if profile.gpu_memory_gb is None else round(profile.gpu_memory_gb * 1024)
    return Placement(
        Envelope(
            device_uuids=tuple(free[: profile.gpu_count]),
            exclusive=True,
            memory_mib=memory,
            utilization_pct=profile.gpu_utilization_pct,
        )
    )


def never_fits(profile: Profile, soft: SoftState) -> str | None:
    """Why `profile` can never run on this host, or None when it may or when that is unknown."""
    sample = soft.sample
    if profile.accelerator == "cpu" or sample is None or sample.probe_state == "unknown":
        return None
    if stale_sample(soft) is not None:
        return None
    if sample.probe_state != "available":
        return f"needs {profile.gpu_count} GPU; {sample.probe_reason or sample.probe_state}"
    if len(sample.devices) < profile.gpu_count:
        return f"needs {profile.gpu_count} GPUs; this host has {len(sample.devices)}"
    if profile.gpu_memory_gb is not None:
        need = profile.gpu_memory_gb * 1024
        fitting = sum(
            1
            for device in sample.devices
            if device.memory_total_mib is None or need <= 0.95 * device.memory_total_mib
        )
        if fitting < profile.gpu_count:
            return (
                f"needs {profile.gpu_count} GPUs with {profile.gpu_memory_gb:g} GiB "
                f"(at most 95 % of a device); this host has {fitting}"
            )
    return None
