"""Simulated devices in the place of NVML: `up --sim gpus=N,memory=G`.

Device N has the UUID `GPU-00000000-0000-4000-8000-` and N in twelve hex digits. All devices are
alike, idle and healthy until the host scope's `simulation.json` says otherwise. Load on them is
foreign load only: no experiment of ours uses a simulated device, so no process is ever seen on one
and what is in use belongs to strangers. A file that cannot be read makes
the driver's state unknown; it is never taken for an idle host.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal

from ..errors import PraxistError
from ..protocol.reports import DeviceSample
from .clock import Clock, SystemClock
from .device_driver import DriverReading, bounded_reason
from .simulation_file import Simulation, load

GPUS_MAX = 1024
MEMORY_GIB_MAX = 1_000_000
HANG_LOOK_S = 0.1


def simulated_uuid(index: int) -> str:
    """`3` -> `GPU-00000000-0000-4000-8000-000000000003`."""
    return f"GPU-00000000-0000-4000-8000-{index:012x}"


class SimulatedDriver:
    """`gpus` devices of `memory_gib` GiB each. Raises PraxistError `usage` for other numbers."""

    name = "simulated"
    simulated = True

    def __init__(
        self,
        gpus: int,
        memory_gib: float,
        path: Path,
        clock: Clock | None = None,
    ) -> None:
        if not 0 <= gpus <= GPUS_MAX:
            raise PraxistError("usage", f"{gpus} simulated devices; the limit is {GPUS_MAX}")
        if not 0 < memory_gib <= MEMORY_GIB_MAX:
            raise PraxistError("usage", f"{memory_gib:g} GiB is no memory size for a device")
        self._gpus = gpus
        self._memory_mib = int(memory_gib * 1024)
        self._path = path
        self._clock = clock or SystemClock()
        self._closed = threading.Event()

    def sample(self) -> DriverReading:
        """The devices as the file has them now. Blocks while a device has the fault `hang`."""
        while True:
            try:
                simulation = load(self._path)
            except PraxistError as error:
                return self._all_unknown(error.detail)
            if not self._has(simulation, "hang"):
                break
            if self._closed.wait(HANG_LOOK_S):
                return self._all_unknown("the driver was closed")
        if self._has(simulation, "init"):
            return self._all_unknown("the simulated driver cannot be initialised")
        if not self._gpus:
            return DriverReading("unavailable", "no device is simulated")
        devices = tuple(self._device(index, simulation) for index in range(self._gpus))
        if all(device.state == "unsupported" for device in devices):
            return DriverReading("unsupported", devices[0].reason, devices)
        return DriverReading("available", None, devices)

    def close(self) -> None:
        """End a `sample` that hangs."""
        self._closed.set()

    def _has(self, simulation: Simulation, fault: str) -> bool:
        return any(simulation.of(index).fault == fault for index in range(self._gpus))

    def _device(self, index: int, simulation: Simulation) -> DeviceSample:
        load = simulation.of(index)
        lost, mig = load.fault == "lost", load.fault == "mig"
        no_memory = load.fault == "memory_unsupported"
        no_utilization = load.fault == "utilization_unsupported"
        no_processes = load.fault == "processes_unsupported"
        used = min(round(load.memory_gb * 1024), self._memory_mib)
        reasons = {
            "lost": "the device fell off the bus (simulated)",
            "memory_unsupported": "memory unknown: Not Supported (simulated)",
            "utilization_unsupported": "utilisation unknown: Not Supported (simulated)",
            "processes_unsupported": "processes unknown: Not Supported (simulated)",
            "mig": "MIG is on: no automatic placement (simulated)",
        }
        return DeviceSample(
            index=index,
            uuid=simulated_uuid(index),
            name="Simulated GPU",
            state="lost" if lost else "unsupported" if mig else "available",
            memory_total_mib=None if no_memory else self._memory_mib,
            memory_used_mib=None if lost or no_memory else used,
            utilization_pct=None if lost or mig or no_utilization else load.utilization_pct,
            processes=None if lost or mig or no_processes else (),
            read_at_mono_ms=self._clock.mono_ms(),
            reason=reasons.get(load.fault or ""),
        )

    def _all_unknown(self, reason: str) -> DriverReading:
        text = bounded_reason(reason)
        state: Literal["unknown"] = "unknown"
        devices = tuple(
            DeviceSample(
                index=index,
                uuid=simulated_uuid(index),
                name="Simulated GPU",
                state=state,
                memory_total_mib=self._memory_mib,
                reason=text,
            )
            for index in range(self._gpus)
        )
        return DriverReading("unknown", text, devices)
