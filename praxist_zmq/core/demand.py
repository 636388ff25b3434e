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
"""A device is idle enough for exclusive work up to here: a driver keeps some for itself."""
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


def memory_limit_mib(total_mib: int) -> int:
    """What allocations and foreign processes together may use of a device."""
    return total_mib * MEMORY_LIMIT_PCT // 100
