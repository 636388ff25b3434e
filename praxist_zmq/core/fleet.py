"""The devices of the host with everything that holds them, as this run knows it at this moment.

Holdings are our attempts, our plans under way, and the rows of other runs in the host view. A
device's load is worked out when it is asked for and kept until something on it changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..protocol.claims import AllocationRow, Envelope
from ..protocol.process import ProcessIdentity
from ..protocol.reports import DeviceSample
from .demand import is_exclusive
from .device_load import DeviceLoad, Holding, Root, load_of
from .kept_place import KeptPlace
from .state import Attempt, BrokerState

CHANGES_MAX = 4_096


@dataclass(slots=True)
class Fleet:
    """All devices, and what holds each. Whatever changes one of them goes through a method here, so
    that what was worked out of the others still holds."""

    run_key: str = ""
    devices: dict[str, DeviceSample] = field(default_factory=dict)
    """By uuid, in the driver's order."""
    rows_of_others: dict[str, list[AllocationRow]] = field(default_factory=dict)
    """Device -> what other runs hold there."""
    plans: dict[str, dict[str, Envelope]] = field(default_factory=dict)
    """Device -> attempt -> envelope of plans under way."""
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Device that another host scope holds -> by whom, in words."""
    released_at_ms: dict[str, int] = field(default_factory=dict)
    """When something last left a device, CLOCK_BOOTTIME milliseconds."""
    places: dict[str, list[KeptPlace]] = field(default_factory=dict)
    """Room that is kept for others, by device."""
    epoch: int = 0
    """Grows when all of it may have changed."""
    changes: list[str] = field(default_factory=list)
    """Devices that changed since then, in order: what was worked out of others still holds."""
    known: dict[str, DeviceLoad] = field(default_factory=dict)

    def take_sample(self, devices: tuple[DeviceSample, ...], sampled_at_ms: int) -> None:
        """A new look at the devices. What left before it is in it."""
        before, self.devices = (
            self.devices,
            {d.uuid: d for d in sorted(devices, key=lambda d: (d.index, d.uuid))},
        )
        for uuid, at_ms in list(self.released_at_ms.items()):
            device = self.devices.get(uuid)
            read = sampled_at_ms if device is None else device.read_at_mono_ms or sampled_at_ms
            if at_ms < read:
                del self.released_at_ms[uuid]
                self._forget(uuid)
        if list(before) != list(self.devices):
            self._forget_all()
            return
        for uuid, device in self.devices.items():
            if not _reads_alike(before[uuid], device):
                self._forget(uuid)

    def take_rows(self, rows: list[AllocationRow], now_ms: int) -> None:
        """What others hold, as the registry tells. What left since the last time is noted."""
        before = self.rows_of_others
        self.rows_of_others = {}
        for row in rows:
            for uuid in row.envelope.device_uuids:
                self.rows_of_others.setdefault(uuid, []).append(row)
        for uuid, held in before.items():
            here = {(row.run_key, row.attempt) for row in self.rows_of_others.get(uuid, ())}
            if any((row.run_key, row.attempt) not in here for row in held):
                self.released_at_ms[uuid] = now_ms
        for uuid in {*before, *self.rows_of_others}:
            if before.get(uuid) != self.rows_of_others.get(uuid):
                self._forget(uuid)

    def take_elsewhere(self, elsewhere: dict[str, str]) -> None:
        """What other host scopes hold, as the registry tells."""
        before, self.elsewhere = self.elsewhere, elsewhere
        for uuid in {*before, *elsewhere}:
            if before.get(uuid) != elsewhere.get(uuid):
                self._forget(uuid)

    def plan(self, attempt: str, envelope: Envelope) -> None:
        """Count a plan on its devices."""
        for uuid in envelope.device_uuids:
            self.plans.setdefault(uuid, {})[attempt] = envelope
            self._forget(uuid)

    def drop_plan(self, attempt: str, envelope: Envelope) -> None:
        """A plan is over."""
        for uuid in envelope.device_uuids:
            plans = self.plans.get(uuid, {})
            plans.pop(attempt, None)
            if not plans:
                self.plans.pop(uuid, None)
            self._forget(uuid)

    def keep(self, places: dict[str, list[KeptPlace]]) -> None:
        """Room that is kept for others from now on."""
        before, self.places = self.places, places
        for uuid in {*before, *places}:
            if before.get(uuid) != places.get(uuid):
                self._forget(uuid)

    def changed(self, uuids: tuple[str, ...]) -> None:
        """One of our attempts on these devices changed."""
        for uuid in uuids:
            self._forget(uuid)

    def released(self, uuids: tuple[str, ...], now_ms: int) -> None:
        """One of our attempts left these devices."""
        for uuid in uuids:
            self.released_at_ms[uuid] = now_ms
        self.changed(uuids)

    def load(self, uuid: str, state: BrokerState) -> DeviceLoad:
        """One device that was sampled, with what holds it."""
        found = self.known.get(uuid)
        if found is None:
            found = load_of(
                self.devices[uuid],
                tuple(self._holdings(uuid, state)),
                self.elsewhere.get(uuid),
            )
            self.known[uuid] = found
        return found

    def loads(self, state: BrokerState) -> list[DeviceLoad]:
        """Every device, in the driver's order."""
        return [self.load(uuid, state) for uuid in self.devices]

    def settling(self, uuid: str, sampled_at_ms: int) -> bool:
        """Whether something left the device since the driver was last asked: its memory may still
        be in use, and the driver has not had the chance to say so."""
        at_ms = self.released_at_ms.get(uuid)
        if at_ms is None:
            return False
        device = self.devices[uuid]
        return at_ms >= (device.read_at_mono_ms or sampled_at_ms)

    def _forget(self, uuid: str) -> None:
        self.known.pop(uuid, None)
        self.changes.append(uuid)
        if len(self.changes) > CHANGES_MAX:
            self._forget_all()

    def _forget_all(self) -> None:
        self.known.clear()
        self.changes.clear()
        self.epoch += 1

    def _holdings(self, uuid: str, state: BrokerState) -> Iterator[Holding]:
        for name in state.device_holders.get(uuid, ()):
            yield of_attempt(self.run_key, state.attempts[name])
        for attempt, envelope in self.plans.get(uuid, {}).items():
            if attempt not in state.attempts:
                yield Holding(
                    self.run_key,
                    attempt,
                    envelope.memory_mib,
                    envelope.utilization_pct,
                    envelope.exclusive,
                )
        for row in self.rows_of_others.get(uuid, ()):
            yield of_row(row)


def _reads_alike(one: DeviceSample, other: DeviceSample) -> bool:
    """Whether two readings of a device differ in nothing but their time."""
    return (
        one.state == other.state
        and one.memory_used_mib == other.memory_used_mib
        and one.utilization_pct == other.utilization_pct
        and one.memory_total_mib == other.memory_total_mib
        and one.memory_reserved_mib == other.memory_reserved_mib
        and one.index == other.index
        and one.processes == other.processes
        and one.reason == other.reason
    )


def of_attempt(run_key: str, attempt: Attempt) -> Holding:
    """What an attempt of ours holds of each of its devices."""
    return Holding(
        run_key,
        attempt.attempt,
        attempt.memory_mib,
        attempt.utilization_pct,
        attempt.exclusive,
        _roots(attempt.shim, attempt.leader),
    )


def of_row(row: AllocationRow) -> Holding:
    """What an attempt of any run holds of each of its devices, as the registry tells."""
    envelope = row.envelope
    return Holding(
        row.run_key,
        row.attempt,
        envelope.memory_mib,
        envelope.utilization_pct,
        is_exclusive(envelope),
        _roots(row.bound),
    )


def _roots(*identities: ProcessIdentity | None) -> tuple[Root, ...]:
    return tuple((i.pid, i.start_ticks) for i in identities if i is not None)
