"""Room on a device that is kept for somebody who has waited longer, or whose run holds less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .demand import Demand
from .room import Extra


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """What would be placed there, and for whom."""

    extra: Extra
    code: Literal["gpu_reserved", "fair_share"]
    whose: str
    """In words."""
    job: str | None = None
    """The job of this run that it is kept for; None for another run's."""
    needed_at_ms: float | None = None
    """When it will be needed at the earliest, CLOCK_BOOTTIME milliseconds; None is unknown."""


@dataclass(slots=True)
class Reservation:
    """Devices that drain for one job."""

    job: str
    demand: Demand
    uuids: tuple[str, ...]
    needed_at_ms: float | None
    """When it can start at the earliest, CLOCK_BOOTTIME milliseconds; None is unknown."""
    checked: tuple[int, int, int] | None = None
    """What it rests on, as `reservation.rests_on` told it when it was last looked at."""
    checked_until_ms: int = 0
    """After this it is looked at again in any case."""
