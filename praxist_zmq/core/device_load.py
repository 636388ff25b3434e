"""What is on one device: allocations of all runs, their real use, and what is nobody's of ours.

An allocation counts with what it declared or, if that is more, with what its processes are seen to
use: an envelope is kept through every phase, and a job that takes more than it said is counted by
its real use. Everything the driver sees that no allocation accounts for is foreign. A process that
cannot be mapped is foreign, so what cannot be told apart is counted twice rather than not at all.
Source: seed 000 "Task Contract" and "State And Compatibility"; promise 5 of the design.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..protocol.reports import DeviceProcess, DeviceSample
from ..protocol.views import Attribution
from .demand import QUIET_UTILIZATION_PCT, driver_memory_mib_max, memory_limit_mib

Root = tuple[int, int]
"""(pid, start ticks)."""


@dataclass(frozen=True, slots=True)
class Holding:
    """One allocation on a device."""

    run: str
    """Its run's key."""
    attempt: str
    memory_mib: int | None
    utilization_pct: float | None
    exclusive: bool
    roots: tuple[Root, ...] = ()
    """Processes whose descendants are the attempt's: its shim, its evaluator."""


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """One device at one moment."""

    sample: DeviceSample
    holdings: tuple[Holding, ...]
    attribution: Attribution
    external_memory_mib: int | None
    external_utilization_pct: float | None
    held_memory_mib: int
    """Over all holdings, the larger of declared and seen."""
    held_utilization_pct: float
    declared_memory_mib: int
    declared_utilization_pct: float
    external: tuple[DeviceProcess, ...]
    """Processes of nobody's on it."""
    driver_memory_mib: int = 0
    """What the driver keeps for itself: nobody's use, and not to be promised."""
    elsewhere: str | None = None
    """Which other host scope holds it, in words; then nothing is placed on it."""

    @property
    def memory_limit_mib(self) -> int | None:
        """What may be promised of it in all; None is unknown."""
        total = self.sample.memory_total_mib
        return None if total is None else memory_limit_mib(total, self.driver_memory_mib)

    @property
    def held_alone(self) -> bool:
        """Whether a holding keeps the device to itself."""
        return any(holding.exclusive for holding in self.holdings)


def owner_of(process: DeviceProcess, holdings: Iterable[Holding]) -> Holding | None:
    """The holding whose tree a process belongs to."""
    if not process.lineage:
        return None
    line = {(stamp.pid, stamp.start_ticks) for stamp in process.lineage}
    for holding in holdings:
        if any(root in line for root in holding.roots):
            return holding
    return None


def load_of(
    sample: DeviceSample, holdings: tuple[Holding, ...], elsewhere: str | None = None
) -> DeviceLoad:
    """Sort out who uses the device."""
    memory: dict[str, int] = {}
    busy: dict[str, float] = {}
    external: list[DeviceProcess] = []
    blind_memory = blind_busy = unmapped = False
    for process in sample.processes or ():
        owner = owner_of(process, holdings)
        unmapped = unmapped or not process.lineage
        if owner is None:
            external.append(process)
            continue
        key = f"{owner.run} {owner.attempt}"
        if process.memory_mib is None:
            blind_memory = True
        else:
            memory[key] = memory.get(key, 0) + process.memory_mib
        if process.utilization_pct is None:
            blind_busy = True
        else:
            busy[key] = busy.get(key, 0.0) + process.utilization_pct
    if sample.processes is None:
        attribution: Attribution = "unavailable"
    elif unmapped:
        attribution = "partial" if len(external) < len(sample.processes) else "unavailable"
    else:
        attribution = "partial" if blind_memory or blind_busy else "complete"
    # With nobody else's process on it, all that the driver reads is ours, figures or not.
    alone = bool(sample.processes) and not external and sample.utilization_pct is not None
    held_utilization_pct = sum(
        max(h.utilization_pct or 0.0, busy.get(f"{h.run} {h.attempt}", 0.0)) for h in holdings
    )
    if alone:
        held_utilization_pct = max(held_utilization_pct, sample.utilization_pct or 0.0)
    external_mib = _rest(sample.memory_used_mib, sum(memory.values()))
    external_pct = 0.0 if alone else _rest_pct(sample.utilization_pct, sum(busy.values()))
    driver_mib = sample.memory_reserved_mib
    if driver_mib is None:
        driver_mib = _unclaimed_mib(sample, external, external_mib, external_pct)
        external_mib = _rest(external_mib, driver_mib)
    return DeviceLoad(
        sample=sample,
        holdings=holdings,
        attribution=attribution,
        external_memory_mib=external_mib,
        external_utilization_pct=external_pct,
        held_memory_mib=sum(
            max(h.memory_mib or 0, memory.get(f"{h.run} {h.attempt}", 0)) for h in holdings
        ),
        held_utilization_pct=held_utilization_pct,
        declared_memory_mib=sum(h.memory_mib or 0 for h in holdings),
        declared_utilization_pct=sum(h.utilization_pct or 0.0 for h in holdings),
        external=tuple(external),
        driver_memory_mib=driver_mib,
        elsewhere=elsewhere,
    )


def _unclaimed_mib(
    sample: DeviceSample,
    external: Sequence[DeviceProcess],
    external_mib: int | None,
    external_pct: float | None,
) -> int:
    """The driver's own part of the memory in use, where it does not tell that: what is in use while
    nobody's process is there and nothing is busy, if it is no more than a driver keeps."""
    total = sample.memory_total_mib
    if sample.processes is None or external or external_mib is None or total is None:
        return 0
    if external_pct is None or external_pct > QUIET_UTILIZATION_PCT:
        return 0
    return external_mib if external_mib <= driver_memory_mib_max(total) else 0


def without(load: DeviceLoad, leaving: Sequence[Holding]) -> DeviceLoad:
    """The same device after some holdings have left."""
    gone = {(holding.run, holding.attempt) for holding in leaving}
    stay = tuple(h for h in load.holdings if (h.run, h.attempt) not in gone)
    if len(stay) == len(load.holdings):
        return load
    memory = sum(h.memory_mib or 0 for h in leaving)
    busy = sum(h.utilization_pct or 0.0 for h in leaving)
    # What the others are seen to use beyond what they declared stays counted.
    return replace(
        load,
        holdings=stay,
        held_memory_mib=max(0, load.held_memory_mib - memory) if stay else 0,
        held_utilization_pct=max(0.0, load.held_utilization_pct - busy) if stay else 0.0,
        declared_memory_mib=load.declared_memory_mib - memory,
        declared_utilization_pct=load.declared_utilization_pct - busy,
    )


def _rest(whole: int | None, ours: int) -> int | None:
    return None if whole is None else max(0, whole - ours)


def _rest_pct(whole: float | None, ours: float) -> float | None:
    return None if whole is None else max(0.0, whole - ours)
