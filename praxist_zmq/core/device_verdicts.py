"""The device table of `explain`: every device against one demand, with the numbers that decide."""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.ids import job_of
from ..protocol.reports import DeviceSample
from ..protocol.views import DeviceVerdict
from .demand import Demand
from .device_load import DeviceLoad, load_of
from .devices import external_words
from .room import room
from .run_names import run_words
from .shortage import device_words
from .soft import SoftState
from .survey import Look

OTHERS_SHOWN = 3


def device_verdicts(
    demand: Demand, looks: Sequence[Look], soft: SoftState
) -> tuple[DeviceVerdict, ...]:
    """One row a device, in the driver's order."""
    return tuple(_verdict(demand, look, soft) for look in looks)


def _verdict(demand: Demand, look: Look, soft: SoftState) -> DeviceVerdict:
    load = look.load
    memory, busy = look.room.free_memory_mib, look.room.free_utilization_pct
    return DeviceVerdict(
        index=load.sample.index,
        uuid=load.sample.uuid,
        fits=look.fits,
        verdict=device_words(look, others_on(load, soft))[:500],
        need_memory_mib=demand.memory_mib,
        need_utilization_pct=demand.utilization_pct,
        memory_total_mib=load.sample.memory_total_mib,
        memory_limit_mib=load.memory_limit_mib,
        declared_memory_mib=load.declared_memory_mib,
        declared_utilization_pct=load.declared_utilization_pct,
        external_memory_mib=load.external_memory_mib,
        external_utilization_pct=load.external_utilization_pct,
        free_memory_mib=None if memory is None else max(0, memory),
        free_utilization_pct=None if busy is None else max(0.0, busy),
        jobs=jobs_on(load, soft),
        external=external_words(load.external),
    )


def jobs_on(load: DeviceLoad, soft: SoftState) -> tuple[str, ...]:
    """Jobs of this run that hold a device, in the order of their numbers."""
    ours = {job_of(holding.attempt) for holding in load.holdings if holding.run == soft.run_key}
    return tuple(sorted(ours, key=lambda job: int(job[2:])))


def others_on(load: DeviceLoad, soft: SoftState) -> str:
    """`run r2 (down)`: which other runs hold a device, the first few; its jobs are told apart."""
    keys = {holding.run for holding in load.holdings} - {soft.run_key}
    names = sorted(run_words(soft.host_view, key) for key in keys)
    more = f" and {len(names) - OTHERS_SHOWN} more" if len(names) > OTHERS_SHOWN else ""
    noun = "run" if len(names) == 1 else "runs"
    return f"{noun} {', '.join(names[:OTHERS_SHOWN])}{more}" if names else ""


def fit_when_empty(demand: Demand, devices: Sequence[DeviceSample]) -> int:
    """How many devices would take the demand if nobody used them."""
    empty = (
        device.model_copy(update={"memory_used_mib": 0, "utilization_pct": 0.0, "processes": ()})
        for device in devices
    )
    return sum(room(load_of(device, ()), demand).fits for device in empty)
