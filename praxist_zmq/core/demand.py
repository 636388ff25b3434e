"""What one attempt needs of each of its devices, and the bounds that no device passes.

The broker and the registry judge by different facts, but by these bounds.

Source: seed 000 "Task Contract": declared utilisation and foreign load at most 100 %, declared
memory and foreign memory at most 95 % of the device; demand that is not declared is exclusive.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.claims import Envelope
from ..protocol.policy import Profile

UTILIZATION_LIMIT_PCT = 100.0
MEMORY_LIMIT_PCT = 95
QUIET_MEMORY_MIB = 256
QUIET_UTILIZATION_PCT = 5.0
"""A device is idle enough for exclusive work up to here."""
DRIVER_MEMORY_PCT, DRIVER_MEMORY_MIB_MAX = 5, 1024
"""So much of a device nobody's process holds may be the driver's own, where it does not tell."""
ROUNDING = 1e-6
"""Percent points. Sums of floats: 33.4 + 33.3 + 33.3 is a hundred."""
MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True)
class Demand:
    """Of each device; None is unknown, and then the device is needed alone."""

    devices: int
    memory_mib: int | None
    utilization_pct: float | None

    @property
    def exclusive(self) -> bool:
        """Whether nobody else may be on the devices."""
        return self.memory_mib is None or self.utilization_pct is None


def demand_of(profile: Profile) -> Demand:
    """The demand that a profile declares. Memory is rounded up."""
    memory = profile.gpu_memory_gb
    return Demand(
        devices=profile.gpu_count if profile.accelerator == "gpu" else 0,
        memory_mib=None if memory is None else -int(-memory * MIB_PER_GIB // 1),
        utilization_pct=profile.gpu_utilization_pct,
    )


def is_exclusive(envelope: Envelope) -> bool:
    """Whether nobody else may share the devices of an envelope. Unknown demand is exclusive."""
    return envelope.exclusive or envelope.memory_mib is None or envelope.utilization_pct is None


def memory_limit_mib(total_mib: int, driver_mib: int = 0) -> int:
    """What allocations and foreign processes together may use of a device, of which the driver
    keeps some for itself: that is nobody's use, and cannot be promised."""
    return min(total_mib * MEMORY_LIMIT_PCT // 100, max(0, total_mib - driver_mib))


def driver_memory_mib_max(total_mib: int) -> int:
    """How much memory without a process is taken for the driver's own."""
    share = min(total_mib * DRIVER_MEMORY_PCT // 100, DRIVER_MEMORY_MIB_MAX)
    return max(QUIET_MEMORY_MIB, share)
