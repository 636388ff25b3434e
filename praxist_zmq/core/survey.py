"""Every device against one demand, kept up to date as single devices change.

A place that is kept, for the oldest job of this run that waits for devices or for a run that holds
less, counts as taken unless the newcomer will have ended before it is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .demand import Demand
from .device_load import DeviceLoad
from .kept_place import KeptPlace
from .room import Room, room, tightness
from .soft import SoftState
from .state import BrokerState
from .storm_memory import Rest


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Who asks: nobody's place is kept from itself, and what ends in time may pass."""

    job: str | None = None
    ends_by_ms: float | None = None
    """When it will have ended, CLOCK_BOOTTIME milliseconds; None is unknown."""


ANYONE = Newcomer()


@dataclass(frozen=True, slots=True)
class Look:
    """One device against one demand."""

    load: DeviceLoad
    room: Room
    settling: bool = False
    """Something has left it since it was last sampled."""
    kept: KeptPlace | None = None
    """The place for somebody else that is in the way."""
    rest: Rest | None = None
    """The pause that keeps everything off it."""

    @property
    def fits(self) -> bool:
        """Whether the demand can be placed here now."""
        return self.room.fits and not self.settling and self.kept is None and self.rest is None

    @property
    def key(self) -> tuple[float, float, float, int]:
        """The place in the order of devices: the emptiest first."""
        return (*tightness(self.load), self.load.sample.index)


@dataclass(slots=True)
class Survey:
    """All devices against one demand, for a newcomer of whom nothing is known."""

    demand: Demand
    looks: dict[str, Look] = field(default_factory=dict)
    """In the driver's order."""
    fitting: dict[str, tuple[float, float, float, int]] = field(default_factory=dict)
    """Device -> its place in the order."""
    epoch: int = -1
    seen: int = 0

    def copy(self) -> Survey:
        """One that may go on with another fleet."""
        return replace(self, looks=dict(self.looks), fitting=dict(self.fitting))

    def refresh(self, state: BrokerState, soft: SoftState) -> None:
        """Look again at what changed since the last time."""
        fleet = soft.fleet
        if self.epoch != fleet.epoch:
            self.looks.clear()
            self.fitting.clear()
            changed = list(fleet.devices)
        elif self.seen == len(fleet.changes):
            return
        else:
            changed = list(dict.fromkeys(fleet.changes[self.seen :]))
        self.epoch, self.seen = fleet.epoch, len(fleet.changes)
        for uuid in changed:
            if uuid not in fleet.devices:
                continue
            look = look_at(uuid, self.demand, state, soft, ANYONE)
            self.looks[uuid] = look
            if look.fits:
                self.fitting[uuid] = look.key
            else:
                self.fitting.pop(uuid, None)


def look_round(
    demand: Demand, state: BrokerState, soft: SoftState, newcomer: Newcomer = ANYONE
) -> list[Look]:
    """Every device against a demand, in the driver's order, for who asks once."""
    return [look_at(uuid, demand, state, soft, newcomer) for uuid in soft.fleet.devices]


def look_at(
    uuid: str, demand: Demand, state: BrokerState, soft: SoftState, newcomer: Newcomer
) -> Look:
    """One device against a demand."""
    load = soft.fleet.load(uuid, state)
    verdict = room(load, demand)
    kept = _in_the_way(load, demand, soft, newcomer) if verdict.fits else None
    sampled_at_ms = soft.sample.sampled_at_mono_ms if soft.sample is not None else 0
    settling = soft.fleet.settling(uuid, sampled_at_ms)
    return Look(load, verdict, settling, kept, soft.storms.resting("device", uuid))


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
