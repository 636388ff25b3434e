"""Which process NVML shows on which device, for `binding check`.

Each device is asked on its own. It signals no process, and compares nothing. A call may hang for as
long as the driver does; the caller keeps it in a thread of its own.
Source: NVIDIA's NVML API reference.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from ..errors import PraxistError
from .device_driver import bounded_reason


@dataclass(frozen=True, slots=True)
class DeviceOwners:
    """One device and the pids on it; `pids` is None when the driver does not tell, see `reason`."""

    index: int
    uuid: str
    pids: frozenset[int] | None
    reason: str = ""


class OwnerDriver:
    """NVML, opened at the first look. Used by one thread at a time."""

    def __init__(self) -> None:
        self._nvml: Any = None

    def look(self) -> dict[str, DeviceOwners]:
        """All devices by UUID. Raises PraxistError `no_driver`, also when NVML as a whole fails."""
        nvml = self._nvml or self._open()
        try:
            found = [self._owners(index) for index in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            raise PraxistError("no_driver", bounded_reason(f"NVML failed: {error}")) from None
        return {device.uuid: device for device in found if device is not None}

    def _open(self) -> Any:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            raise PraxistError("no_driver", "the Python module pynvml is missing") from None
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise PraxistError("no_driver", bounded_reason(f"NVML: {error}")) from None
        self._nvml = nvml
        return nvml

    def _owners(self, index: int) -> DeviceOwners | None:
        """One device; None for one that fell off the bus, which must not spoil the others."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = str(nvml.nvmlDeviceGetUUID(handle))
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                return None
            raise
        try:
            found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except nvml.NVMLError as error:
            reason = bounded_reason(f"NVML does not tell its processes: {error}")
            return DeviceOwners(index, uuid, None, reason)
        return DeviceOwners(index, uuid, frozenset(int(process.pid) for process in found))
