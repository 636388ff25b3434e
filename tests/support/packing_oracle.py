"""What may be on a device, by naive sums straight from the rules; nothing of the core's arithmetic.

The rules: declared utilisation and foreign utilisation at most 100 %, declared memory and foreign
memory at most 95 % of the device; who takes more than declared counts with what is seen; demand
that is not declared is alone on its device; an unknown reading is never zero, so a device that does
not tell all its figures takes one at a time, and only while nobody seems to use it. Foreign is all
that the driver reads and no process of an allocation accounts for; where every process is ours, the
busy share that it reads is ours too. Source: seed 000 "Task Contract", promise 5 of the design.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from praxist_zmq.protocol.claims import AllocationRow
from praxist_zmq.protocol.policy import Profile
from praxist_zmq.protocol.reports import DeviceProcess, DeviceSample

QUIET_MIB = 256
QUIET_PCT = 5
SLACK = Fraction(1, 100_000)
"""Floats are summed in another order elsewhere."""


@dataclass(frozen=True)
class Held:
    """One allocation, as far as a device is concerned."""

    name: tuple[str, str]
    devices: tuple[str, ...]
    memory_mib: int | None
    utilization_pct: float | None
    alone: bool
    processes: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class Need:
    """What a profile wants of each of so many devices."""

    devices: int
    memory_mib: int | None
    utilization_pct: float | None

    @property
    def alone(self) -> bool:
        """Not declared: nobody else may be there."""
        return self.memory_mib is None or self.utilization_pct is None


@dataclass(frozen=True)
class Load:
    """One device's sums. None is unknown."""

    limit_mib: int | None
    memory_mib: Fraction | None
    utilization_pct: Fraction | None
    foreign_mib: int | None
    foreign_pct: Fraction | None
    foreigners: int

    @property
    def free_mib(self) -> Fraction | None:
        """Below 95 %."""
        if self.limit_mib is None or self.memory_mib is None:
            return None
        return self.limit_mib - self.memory_mib

    @property
    def free_pct(self) -> Fraction | None:
        """Below 100 %."""
        return None if self.utilization_pct is None else 100 - self.utilization_pct


def need_of(profile: Profile) -> Need:
    """The declared demand; memory in whole MiB, rounded up."""
    gib = profile.gpu_memory_gb
    mib = None if gib is None else -(-Fraction(gib) * 1024 // 1)
    count = profile.gpu_count if profile.accelerator == "gpu" else 0
    return Need(count, None if mib is None else int(mib), profile.gpu_utilization_pct)


def held(row: AllocationRow, more: Iterable[tuple[int, int]] = ()) -> Held:
    """An allocation from the registry's row; `more`: processes known beside its shim."""
    known = set(more)
    if row.bound is not None:
        known.add((row.bound.pid, row.bound.start_ticks))
    envelope = row.envelope
    undeclared = envelope.memory_mib is None or envelope.utilization_pct is None
    return Held(
        (row.run_key, row.attempt),
        envelope.device_uuids,
        envelope.memory_mib,
        envelope.utilization_pct,
        envelope.exclusive or undeclared,
        frozenset(known),
    )


def load(device: DeviceSample, rows: Sequence[Held]) -> Load:
    """Sum up one device."""
    here = [row for row in rows if device.uuid in row.devices]
    of = {process: _owner(process, here) for process in device.processes or ()}
    seen_mib = {row.name: 0 for row in here}
    seen_pct = {row.name: Fraction(0) for row in here}
    for process, owner in of.items():
        if owner is not None:
            seen_mib[owner] += process.memory_mib or 0
            seen_pct[owner] += Fraction(process.utilization_pct or 0)
    foreigners = sum(owner is None for owner in of.values())
    reading = None if device.utilization_pct is None else Fraction(device.utilization_pct)
    ours_pct = sum((max(Fraction(r.utilization_pct or 0), seen_pct[r.name]) for r in here), _ZERO)
    ours_mib = sum(max(r.memory_mib or 0, seen_mib[r.name]) for r in here)
    foreign_pct = None if reading is None else max(_ZERO, reading - sum(seen_pct.values()))
    if of and not foreigners and reading is not None:
        ours_pct, foreign_pct = max(ours_pct, reading), _ZERO
    foreign_mib = None
    if device.memory_used_mib is not None:
        foreign_mib = max(0, device.memory_used_mib - sum(seen_mib.values()))
    total = device.memory_total_mib
    reserved = device.memory_reserved_mib or 0
    if device.memory_reserved_mib is None and total is not None and foreign_mib is not None:
        # Nobody is there and nothing is busy: a little of it is the driver's own.
        little = foreign_mib <= max(256, min(1024, total // 20))
        idle = foreign_pct is not None and foreign_pct <= QUIET_PCT
        if little and idle and not foreigners and device.processes is not None:
            reserved, foreign_mib = foreign_mib, 0
    return Load(
        limit_mib=None if total is None else min(total * 95 // 100, total - reserved),
        memory_mib=None if foreign_mib is None else Fraction(ours_mib + foreign_mib),
        utilization_pct=None if foreign_pct is None else ours_pct + foreign_pct,
        foreign_mib=foreign_mib,
        foreign_pct=foreign_pct,
        foreigners=foreigners,
    )


_ZERO = Fraction(0)


def _owner(process: DeviceProcess, rows: Sequence[Held]) -> tuple[str, str] | None:
    line = {(stamp.pid, stamp.start_ticks) for stamp in process.lineage}
    return next((row.name for row in rows if line & row.processes), None)


def quiet(device: DeviceSample, rows: Sequence[Held]) -> bool:
    """Nobody seems to use the device, and it tells at least something."""
    sums = load(device, rows)
    if sums.foreign_mib is None and sums.foreign_pct is None and device.processes is None:
        return False
    # How much there is in all does not matter to whether anybody uses it.
    unknown = device.memory_used_mib is None or device.utilization_pct is None
    if unknown and sums.foreigners:
        return False
    if sums.foreign_pct is not None and sums.foreign_pct > QUIET_PCT:
        return False
    return sums.foreign_mib is None or sums.foreign_mib <= QUIET_MIB


def refusals(device: DeviceSample, rows: Sequence[Held], need: Need) -> set[str]:
    """Why the need has no place beside `rows`; empty when it has."""
    if device.state != "available":
        return {"unusable"}
    found = set()
    here = [row for row in rows if device.uuid in row.devices]
    if any(row.alone for row in here):
        found.add("held_alone")
    sums = load(device, rows)
    if (need.alone or blind(device, rows)) and (here or not quiet(device, rows)):
        found.add("not_quiet")
    if need.memory_mib is not None and sums.limit_mib is not None:
        free = sums.limit_mib if sums.free_mib is None else sums.free_mib
        if need.memory_mib > free:
            found.add("memory")
    asked_pct = Fraction(need.utilization_pct or 0)
    if asked_pct and sums.free_pct is not None and asked_pct > sums.free_pct + SLACK:
        found.add("compute")
    return found


def places(devices: Iterable[DeviceSample], rows: Sequence[Held], need: Need) -> list[str]:
    """The devices on which the need has a place: all of them shared, or all of them alone."""
    fits = [device for device in devices if not refusals(device, rows, need)]
    shared = [device.uuid for device in fits if not blind(device, rows)]
    if need.devices < 2 or need.alone or len(shared) in (len(fits), *range(need.devices, 99)):
        return shared if len(shared) >= need.devices > 1 else [device.uuid for device in fits]
    return [device.uuid for device in fits if not refusals(device, rows, alone(need))]


def alone(need: Need) -> Need:
    """The same, with nobody else on its devices."""
    return Need(need.devices, None, need.utilization_pct)


def blind(device: DeviceSample, rows: Sequence[Held]) -> bool:
    """The device does not tell all its figures: whoever gets it has it alone."""
    sums = load(device, rows)
    return sums.free_mib is None or sums.free_pct is None


def overpromised(device: DeviceSample, rows: Sequence[Held], newest: Held) -> list[str]:
    """What the newest allocation breaks on a device where it was just placed."""
    others = [row for row in rows if row.name != newest.name]
    need = Need(1, newest.memory_mib, newest.utilization_pct)
    if newest.alone:
        need = Need(1, None, newest.utilization_pct)
        big = load(device, others).limit_mib
        if newest.memory_mib is not None and big is not None and newest.memory_mib > big:
            return [f"{device.uuid}: {newest.memory_mib} MiB on a device that has {big}"]
    broken = refusals(device, others, need)
    return (
        [f"{device.uuid}: {newest.name} is placed in spite of {sorted(broken)}"] if broken else []
    )
