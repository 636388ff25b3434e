"""Whether an envelope fits on a device beside what all runs hold there.

Decides from declared sums, the device's size and what the asking run saw of foreign use; never
from an unknown figure taken as zero. It keeps no rows: a device's load is a running sum, so the
answer costs the same whoever holds how much. Source of the rules: design 2, promise 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..protocol.claims import AllocationRow, DeviceFacts, Envelope, LeaseRow
from .demand import (
    MEMORY_LIMIT_PCT,
    ROUNDING,
    UTILIZATION_LIMIT_PCT,
    is_exclusive,
    memory_limit_mib,
)

_UNITS_A_PCT = 10**9
"""Shares are summed as whole numbers, so that what is added and taken away again leaves nothing."""
_UTILIZATION_UNITS_MAX = round((UTILIZATION_LIMIT_PCT + ROUNDING) * _UNITS_A_PCT)


def _units(pct: float) -> int:
    return round(pct * _UNITS_A_PCT)


@dataclass(slots=True)
class DeviceSums:
    """The sum of all allocations on one device."""

    rows: int = 0
    exclusive_rows: int = 0
    memory_mib: int = 0
    utilization_units: int = 0
    sizes: dict[int, int] = field(default_factory=dict)
    """How many rows were told which size of the device, in MiB."""

    def add(self, envelope: Envelope, size_mib: int | None, times: int = 1) -> None:
        """Count one allocation; `times` -1 takes it away again."""
        self.rows += times
        self.exclusive_rows += times * is_exclusive(envelope)
        self.memory_mib += times * (envelope.memory_mib or 0)
        self.utilization_units += times * _units(envelope.utilization_pct or 0.0)
        if size_mib is not None:
            left = self.sizes.get(size_mib, 0) + times
            if left:
                self.sizes[size_mib] = left
            else:
                del self.sizes[size_mib]

    def beside(self, envelope: Envelope, size_mib: int | None) -> DeviceSums:
        """The load as it would be with one more allocation."""
        load = DeviceSums(
            self.rows,
            self.exclusive_rows,
            self.memory_mib,
            self.utilization_units,
            dict(self.sizes),
        )
        load.add(envelope, size_mib)
        return load

    def size_mib(self, told_mib: int | None) -> int | None:
        """The smallest size that anybody saw: no run can enlarge a device."""
        return min([*self.sizes, *([] if told_mib is None else [told_mib])], default=None)


def devices_of(row: AllocationRow | LeaseRow) -> Iterator[tuple[str, int | None]]:
    """The row's devices, each with the size that its run was told."""
    sizes = row.device_memory_mib
    for position, device in enumerate(row.envelope.device_uuids):
        yield device, sizes[position] if position < len(sizes) else None


def misfit(
    device: str, load: DeviceSums, envelope: Envelope, facts: DeviceFacts | None, *, again: bool
) -> str | None:
    """In words, why `envelope` cannot join `load`; None when it can.

    `again`: it runs there already and is claimed anew, without facts. What is not known of the
    device then counts for nothing; else an unknown figure lets the device take one row only.
    """
    if load.rows and is_exclusive(envelope):
        return f"device {device} is held by {_holders(load.rows)}; this one needs it alone"
    if load.exclusive_rows:
        return f"device {device} is held by an allocation that shares it with nobody"
    size = load.size_mib(facts.memory_total_mib if facts is not None else None)
    foreign_mib = facts.foreign_memory_mib if facts is not None else None
    foreign_pct = facts.foreign_utilization_pct if facts is not None else None
    if load.rows and not again:
        unknown = _unknown(size, foreign_mib, foreign_pct)
        if unknown:
            return (
                f"device {device} is held by {_holders(load.rows)} and can take no other: "
                f"{unknown} unknown"
            )
    # Of one that is alone, what it declares must still fit.
    asked_mib, asked_pct = envelope.memory_mib or 0, envelope.utilization_pct or 0.0
    units = load.utilization_units + _units(asked_pct) + _units(foreign_pct or 0.0)
    if units > _UTILIZATION_UNITS_MAX:
        return (
            f"device {device} is short of {units / _UNITS_A_PCT - 100:g} % utilisation: "
            f"{load.utilization_units / _UNITS_A_PCT:g} % declared there, "
            f"{foreign_pct or 0.0:g} % foreign, {asked_pct:g} % asked, limit 100 %"
        )
    memory = load.memory_mib + asked_mib + (foreign_mib or 0)
    limit = None if size is None else memory_limit_mib(size)
    if limit is not None and memory > limit:
        return (
            f"device {device} is short of {memory - limit} MiB memory: "
            f"{load.memory_mib} MiB declared there, {foreign_mib or 0} MiB foreign, "
            f"{asked_mib} MiB asked, limit {limit} MiB "
            f"({MEMORY_LIMIT_PCT} % of {size} MiB)"
        )
    return None


def _holders(rows: int) -> str:
    return "an allocation" if rows == 1 else f"{rows} allocations"


def _unknown(size: int | None, foreign_mib: int | None, foreign_pct: float | None) -> str:
    figures = (
        ("its memory", size),
        ("foreign memory", foreign_mib),
        ("foreign utilisation", foreign_pct),
    )
    names = [name for name, figure in figures if figure is None]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}" if names else ""
