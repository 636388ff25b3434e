"""The NVIDIA driver, through `pynvml`.

Every device and every field is asked on its own, so that one lost card does not spoil the others;
everything is keyed by UUID because indices move. A field that NVML does not support is None. When
the driver as a whole fails (reload, library mismatch) NVML is shut down, and set up again after a
pause that grows; meanwhile the state is unknown. It never uses host memory in place of device
memory, and never signals or trusts a process id that NVML names.
Source: NVIDIA's NVML API reference (return codes); public faults of exporters and device plugins.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import time
from collections.abc import Callable
from typing import Any, Literal

from ..protocol.reports import DeviceSample
from .device_driver import MIB, DeviceDriver, DriverReading, bounded_reason
from .nvml_absent import AbsentDriver, absent_reading

UUID_PATTERN = re.compile(r"^[A-Za-z0-9._:/-]{1,96}$")
RETRY_FIRST_S = 1.0
RETRY_MAX_S = 60.0

DeviceState = Literal["available", "unavailable", "unsupported", "unknown", "lost"]


def open_nvml() -> DeviceDriver:
    """The driver of this host: NVML, or none when its Python binding is not installed."""
    if importlib.util.find_spec("pynvml") is None:
        return AbsentDriver("the Python module pynvml is not installed")
    return NvmlDriver()


class _DeviceFailed(Exception):
    """One device cannot be used; the others can."""

    def __init__(self, state: DeviceState, reason: str) -> None:
        super().__init__(reason)
        self.state: DeviceState = state
        self.reason = reason


class NvmlDriver:
    """The devices that NVML names. `pynvml` is imported at the first sample, not before."""

    name = "nvml"
    simulated = False

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._nvml: Any = None
        self._ready = False
        self._retry_at = float("-inf")
        self._pause_s = RETRY_FIRST_S
        self._failure = DriverReading("unknown", "NVML is not set up yet")
        self._known: dict[str, DeviceSample] = {}
        self._unnamed: list[str] = []

    def sample(self) -> DriverReading:
        """All devices once; sets NVML up first when that is due."""
        if not self._ready:
            if self._monotonic() < self._retry_at:
                return self._failure
            failure = self._set_up()
            if failure is not None:
                return self._fail(failure)
        try:
            devices = self._devices()
        except self._nvml.NVMLError as error:
            self._shut_down()
            return self._fail(DriverReading("unknown", _say("NVML failed", error)))
        return self._reading(devices)

    def close(self) -> None:
        """Shut NVML down when it is up."""
        self._shut_down()

    # -- life of the library ------------------------------------------------------------------

    def _set_up(self) -> DriverReading | None:
        """Load and initialise; the failure, or None."""
        if self._nvml is None:
            self._nvml = importlib.import_module("pynvml")
        nvml = self._nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                return absent_reading("libnvidia-ml.so.1 was not found: no NVIDIA driver here")
            return DriverReading("unknown", _say("NVML cannot be initialised", error))
        self._ready = True
        return None

    def _shut_down(self) -> None:
        if not self._ready:
            return
        self._ready = False
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            # A driver that went away refuses the shutdown too; the next nvmlInit decides.
            self._failure = DriverReading("unknown", _say("NVML cannot be shut down", error))

    def _fail(self, failure: DriverReading) -> DriverReading:
        """Remember the failure until the next try. Known devices stay listed, as unknown."""
        self._retry_at = self._monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, RETRY_MAX_S)
        devices = tuple(
            _silent(known, "unknown", failure.reason or "the driver does not answer")
            for known in sorted(self._known.values(), key=_by_index)
        )
        self._failure = DriverReading(failure.state, failure.reason, devices)
        return self._failure

    # -- devices --------------------------------------------------------------------------------

    def _devices(self) -> list[DeviceSample]:
        """Every device NVML still lists. Raises NVMLError when the driver as a whole failed."""
        nvml = self._nvml
        devices: list[DeviceSample] = []
        self._unnamed = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = str(nvml.nvmlDeviceGetUUID(handle))
            except nvml.NVMLError as error:
                if self._is_of_driver(error):
                    raise
                self._unnamed.append(_say(f"device {index} does not tell its UUID", error))
                continue
            if not UUID_PATTERN.match(uuid):
                self._unnamed.append(f"device {index} has a UUID we cannot use")
                continue
            devices.append(self._device(index, uuid, handle))
        return devices

    def _device(self, index: int, uuid: str, handle: Any) -> DeviceSample:
        notes: list[str] = []
        name = self._name(handle, notes)
        total: int | None = None
        used: int | None = None
        utilization: float | None = None
        state: DeviceState = "available"
        try:
            total, used = self._memory(handle, notes)
            if self._mig_enabled(handle):
                state = "unsupported"
                notes.append("MIG is on: no automatic placement")
            else:
                utilization = self._utilization(handle, notes)
        except _DeviceFailed as failure:
            state, used, utilization = failure.state, None, None
            notes.append(failure.reason)
        return DeviceSample(
            index=index,
            uuid=uuid,
            name=name,
            state=state,
            memory_total_mib=total,
            memory_used_mib=used,
            utilization_pct=utilization,
            reason=bounded_reason("; ".join(notes)) if notes else None,
        )

    def _name(self, handle: Any, notes: list[str]) -> str | None:
        try:
            return str(self._nvml.nvmlDeviceGetName(handle))[:200]
        except self._nvml.NVMLError as error:
            if self._is_of_driver(error):
                raise
            notes.append(_say("name unknown", error))
            return None

    def _memory(self, handle: Any, notes: list[str]) -> tuple[int | None, int | None]:
        """(total, used) in MiB: total rounded down, used rounded up."""
        nvml = self._nvml
        try:
            info = nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:
            self._refuse_if_lost(error)
            notes.append(_say("memory unknown", error))
            return None, None
        total, used = int(info.total), int(info.used)
        if total <= 0:
            notes.append("memory unknown: the driver says 0 in all")
            return None, None
        if used > total:
            notes.append("memory in use unknown: the driver says more than there is")
            return total // MIB, None
        return total // MIB, -(-used // MIB)

    def _utilization(self, handle: Any, notes: list[str]) -> float | None:
        nvml = self._nvml
        try:
            busy = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except nvml.NVMLError as error:
            self._refuse_if_lost(error)
            notes.append(_say("utilisation unknown", error))
            return None
        if not 0.0 <= busy <= 100.0:
            notes.append(f"utilisation unknown: the driver says {busy:g} %")
            return None
        return busy

    def _mig_enabled(self, handle: Any) -> bool:
        nvml = self._nvml
        try:
            current, _pending = nvml.nvmlDeviceGetMigMode(handle)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
                return False
            self._refuse_if_lost(error)
            raise _DeviceFailed("unknown", _say("MIG mode unknown", error)) from None
        return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)

    # -- faults -----------------------------------------------------------------------------------

    def _is_of_driver(self, error: Any) -> bool:
        """Whether an error is of the driver as a whole and not of one device."""
        nvml = self._nvml
        return error.value in (
            nvml.NVML_ERROR_UNINITIALIZED,
            nvml.NVML_ERROR_DRIVER_NOT_LOADED,
            nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        )

    def _refuse_if_lost(self, error: Any) -> None:
        """Raise when the error leaves nothing to ask the device; return when it is one field's."""
        nvml = self._nvml
        if self._is_of_driver(error):
            raise error
        if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
            raise _DeviceFailed("lost", "the device fell off the bus") from None
        if error.value == nvml.NVML_ERROR_RESET_REQUIRED:
            raise _DeviceFailed("unavailable", "the device needs a reset") from None
        if error.value == nvml.NVML_ERROR_UNKNOWN:
            raise _DeviceFailed("unknown", "the driver reports an unknown error") from None

    # -- the answer -------------------------------------------------------------------------------

    def _reading(self, devices: list[DeviceSample]) -> DriverReading:
        """Add the devices that are no longer listed, and judge the whole."""
        present = {device.uuid for device in devices}
        for uuid, known in self._known.items():
            if uuid not in present:
                devices.append(_silent(known, "lost", "the driver no longer lists this device"))
        self._known.update({device.uuid: device for device in devices})
        devices.sort(key=_by_index)
        if devices and all(device.state == "unknown" for device in devices):
            self._shut_down()
            return self._fail(DriverReading("unknown", "every device reports an unknown error"))
        self._pause_s = RETRY_FIRST_S
        reason = bounded_reason("; ".join(self._unnamed)) if self._unnamed else None
        if not devices:
            if self._unnamed:
                return DriverReading("unknown", reason)
            return DriverReading("unavailable", "the NVIDIA driver lists no device")
        if all(device.state == "unsupported" for device in devices):
            return DriverReading("unsupported", devices[0].reason, tuple(devices))
        return DriverReading("available", reason, tuple(devices))


def _by_index(device: DeviceSample) -> tuple[int, str]:
    return (device.index, device.uuid)


def _say(what: str, error: Exception) -> str:
    return bounded_reason(f"{what}: {error}")


def _silent(known: DeviceSample, state: Literal["lost", "unknown"], reason: str) -> DeviceSample:
    """A device seen before that tells nothing now: what cannot change stays, the rest is None."""
    return known.model_copy(
        update={
            "state": state,
            "memory_used_mib": None,
            "utilization_pct": None,
            "reason": reason,
        }
    )
