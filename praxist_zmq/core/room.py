"""Whether one device has room for one demand, and what is short if not. Numbers, no words.

Used by admission, by the forecast of what would let a job start, and by the reservation of the
oldest job that waits for devices: the same function, so that they cannot disagree.
Source: seed 000 "Task Contract"; unknown readings as in the driver faults of the reference: a
device that does not tell its memory or its load takes one allocation at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from .demand import (
    QUIET_MEMORY_MIB,
    QUIET_UTILIZATION_PCT,
    ROUNDING,
    UTILIZATION_LIMIT_PCT,
    Demand,
)
from .device_load import DeviceLoad


@dataclass(frozen=True, slots=True)
class Extra:
    """Something more to count on a device than what is there: a plan, or a place that is kept."""

    memory_mib: int | None
    utilization_pct: float | None
    exclusive: bool


@dataclass(frozen=True, slots=True)
class Room:
    """The verdict on one device."""

    unusable: str | None = None
    """Why nothing can be placed on it now, whatever the demand: the driver's word, or another host
    scope that holds it."""
    held_alone: bool = False
    """A holding keeps it to itself."""
    not_quiet: bool = False
    """The demand needs it alone, and it is not empty and quiet."""
    memory_short_mib: int = 0
    utilization_short_pct: float = 0.0
    free_memory_mib: int | None = None
    """Below what may be promised of it; None is unknown."""
    free_utilization_pct: float | None = None
    alone: bool = False
    """The demand would have it to itself."""

    @property
    def fits(self) -> bool:
        """Whether the demand can be placed."""
        return (
            self.unusable is None
            and not self.held_alone
            and not self.not_quiet
            and self.memory_short_mib <= 0
            and self.utilization_short_pct <= 0
        )


def room(load: DeviceLoad, demand: Demand, extra: Extra | None = None) -> Room:
    """Judge one device. `extra` counts as if it held the device too."""
    memory, busy = free(load)
    device = load.sample
    if device.state != "available":
        reason = device.reason or "the driver gives no reason"
        return Room(
            unusable=f"{device.state}: {reason}", free_memory_mib=memory, free_utilization_pct=busy
        )
    if load.elsewhere is not None:
        return Room(unusable=load.elsewhere, free_memory_mib=memory, free_utilization_pct=busy)
    if extra is not None:
        memory = None if memory is None else memory - (extra.memory_mib or 0)
        busy = None if busy is None else busy - (extra.utilization_pct or 0.0)
    held = bool(load.holdings) or extra is not None
    blind = memory is None or busy is None
    alone = demand.exclusive or blind
    held_alone = load.held_alone or (extra is not None and extra.exclusive)
    if memory is None:
        # What is in use is not told; the whole of it is the most that there can be.
        memory = load.memory_limit_mib
    short_mib, short_pct = 0, 0.0
    if memory is not None and demand.memory_mib is not None:
        short_mib = max(0, demand.memory_mib - memory)
    if busy is not None and demand.utilization_pct is not None:
        short_pct = max(0.0, demand.utilization_pct - busy)
    return Room(
        held_alone=held_alone,
        not_quiet=alone and (held or not _quiet(load)),
        memory_short_mib=short_mib,
        utilization_short_pct=short_pct if short_pct > ROUNDING else 0.0,
        free_memory_mib=memory,
        free_utilization_pct=busy,
        alone=alone,
    )


def free(load: DeviceLoad) -> tuple[int | None, float | None]:
    """(MiB below what may be promised, percent points below 100) that nobody holds or uses. Can be
    negative."""
    memory, limit = None, load.memory_limit_mib
    if limit is not None and load.external_memory_mib is not None:
        memory = limit - load.external_memory_mib - load.held_memory_mib
    busy: float | None = None
    if load.external_utilization_pct is not None:
        busy = UTILIZATION_LIMIT_PCT - load.external_utilization_pct - load.held_utilization_pct
    return memory, busy


def _quiet(load: DeviceLoad) -> bool:
    """Whether nobody uses the device, as far as the driver tells; it must tell something.

    For demand that is declared, and a device that does not tell one of its figures, foreign memory
    that leaves room is no obstacle.
    """
    memory, busy = load.external_memory_mib, load.external_utilization_pct
    if memory is None and busy is None and load.sample.processes is None:
        return False
    if load.external and (memory is None or busy is None):
        return False
    if busy is not None and busy > QUIET_UTILIZATION_PCT:
        return False
    return memory is None or memory <= QUIET_MEMORY_MIB


def tightness(load: DeviceLoad) -> tuple[float, float, float]:
    """How full a device is: the tighter of memory and utilisation as a share of its bound, then
    what is seen, then what is held. The emptiest comes first. Source: seed 000 "Task Contract"."""
    memory, busy = free(load)
    limit = load.memory_limit_mib
    memory_share = 0.0 if memory is None or not limit else 1.0 - memory / limit
    busy_share = 0.0 if busy is None else 1.0 - busy / UTILIZATION_LIMIT_PCT
    seen = load.sample.utilization_pct or 0.0
    return max(memory_share, busy_share), seen, load.declared_utilization_pct
