"""What is remembered of attempts that ended with 75 quickly, and what rests for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple


class PlaceKey(NamedTuple):
    """What can be at fault for all that is placed there: a profile, or a device."""

    kind: Literal["profile", "device"]
    name: str
    """The profile's name, or the device's UUID."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt that this broker has planned, until it ends."""

    job: str
    profile: str
    uuids: tuple[str, ...]
    at_ms: int
    """CLOCK_BOOTTIME milliseconds of its plan."""

    @property
    def keys(self) -> tuple[PlaceKey, ...]:
        """All that it is placed on."""
        return (
            PlaceKey("profile", self.profile),
            *(PlaceKey("device", uuid) for uuid in self.uuids),
        )


@dataclass(frozen=True, slots=True)
class QuickEnd:
    """One attempt that ended with 75 quickly."""

    of: Begun
    at_ms: int


@dataclass(frozen=True, slots=True)
class QuickFailures:
    """Jobs of a profile that failed one after the other by another code than 75, each quickly."""

    jobs: tuple[str, ...]
    at_ms: int


@dataclass(slots=True)
class Rest:
    """A placement that is paused."""

    ends: int
    """Quick ends in a row so far."""
    pause_ms: int
    until_ms: int
    """CLOCK_BOOTTIME milliseconds."""
    is_open: bool = False
    """Its time is over, and the next attempt tries it."""
    trial: str | None = None
    """The attempt that tries it."""
    tried: dict[str, int] = field(default_factory=dict)
    """How often which job has tried it."""


@dataclass(slots=True)
class Storms:
    """All of it. Not kept over a restart: a new broker learns it again by a few attempts."""

    begun: dict[str, Begun] = field(default_factory=dict)
    rows: dict[PlaceKey, list[QuickEnd]] = field(default_factory=dict)
    """Quick ends in a row, by placement."""
    rests: dict[PlaceKey, Rest] = field(default_factory=dict)
    failing: dict[str, QuickFailures] = field(default_factory=dict)
    """By profile; an end that is none of them takes it away."""

    def resting(self, kind: Literal["profile", "device"], name: str) -> Rest | None:
        """The pause that holds this placement now, if one does."""
        rest = self.rests.get(PlaceKey(kind, name)) if self.rests else None
        return None if rest is None or rest.is_open else rest

    def copy(self) -> Storms:
        """One that may go on by itself."""
        rests = {key: replace(rest) for key, rest in self.rests.items()}
        rows = {key: list(row) for key, row in self.rows.items()}
        return Storms(dict(self.begun), rows, rests, dict(self.failing))
