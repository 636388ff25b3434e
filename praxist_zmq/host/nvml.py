"""The NVIDIA driver, through `pynvml`.

Every device and every field is asked on its own, so that one lost card does not spoil the others;
everything is keyed by UUID because indices move. A field that NVML does not support is None. When
the driver as a whole fails (reload, library mismatch) NVML is shut down, and set up again after a
pause that grows; meanwhile the state is unknown. A library that was replaced on the disk is only
loaded by a fresh process: after FAILURES_MAX failures in a row, about two minutes, the reading
asks for one. It never uses host memory in place of device memory, and never signals or trusts a
process id that NVML names.
Source: NVIDIA's NVML API reference (return codes); public faults of exporters and device plugins.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import replace
from itertools import count
from typing import Any

from ..protocol.reports import DeviceSample
from .clock import Clock, SystemClock
from .device_driver import MIB, DeviceDriver, DriverReading, bounded_reason, silent_device
from .lineage import LineageReader
from .nvml_absent import AbsentDriver, absent_reading
from .nvml_faults import DeviceCalls, DeviceFailed, DeviceState, NotTold, is_of_driver, say
from .nvml_processes import ProcessReader
from .nvml_utilization import UtilizationReader

UUID_PATTERN = re.compile(r"^[A-Za-z0-9._:/-]{1,96}$")
RETRY_FIRST_MS = 1_000
RETRY_MAX_MS = 60_000
FAILURES_MAX = 8
DEVICES_MAX = 1024


def open_nvml() -> DeviceDriver:
    """The driver of this host: NVML, or none when its Python binding is not installed."""
    if importlib.util.find_spec("pynvml") is None:
        return AbsentDriver("the Python module pynvml is not installed")
    return NvmlDriver()


class NvmlDriver:
    """The devices that NVML names. `pynvml` is imported at the first sample, not before."""

    name = "nvml"
    simulated = False

    def __init__(
        self,
        clock: Clock | None = None,
        lineages: LineageReader | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._lineages = lineages or LineageReader()
        self._nvml: Any = None
        self._ready = False
        self._worked = False
        self._failures = 0
        self._retry_at_ms = 0
        self._pause_ms = RETRY_FIRST_MS
        self._failure = DriverReading("unknown", "NVML is not set up yet")
        self._known: dict[str, DeviceSample] = {}
        self._unnamed: list[str] = []
        self._processes = ProcessReader()
        self._utilization = UtilizationReader()

    def sample(self) -> DriverReading:
        """All devices once; sets NVML up first when that is due."""
        if not self._ready:
            if self._clock.mono_ms() < self._retry_at_ms:
                return self._failure
            failure = self._set_up()
            if failure is not None:
                return self._fail(failure)
        try:
            devices = self._devices()
        except self._nvml.NVMLError as error:
            self._shut_down()
            return self._fail(DriverReading("unknown", say("NVML failed", error)))
        return self._reading(self._with_lineages(devices))

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
            # A mismatch is of the library that this process has loaded, also at its first try.
            self._worked |= error.value == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
            return DriverReading("unknown", say("NVML cannot be initialised", error))
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
            self._failure = DriverReading("unknown", say("NVML cannot be shut down", error))

    def _fail(self, failure: DriverReading) -> DriverReading:
        """Remember the failure until the next try. Known devices stay listed, as unknown."""
        self._retry_at_ms = self._clock.mono_ms() + self._pause_ms
        self._pause_ms = min(self._pause_ms * 2, RETRY_MAX_MS)
        self._failures += 1
        devices = tuple(
            silent_device(known, "unknown", failure.reason or "the driver does not answer")
            for known in sorted(self._known.values(), key=_by_index)
        )
        # Where NVML never worked, a fresh process finds the same and would only be restarted.
        exhausted = self._worked and self._failures >= FAILURES_MAX
        self._failure = replace(failure, devices=devices, exhausted=exhausted)
        return self._failure

    # -- devices --------------------------------------------------------------------------------

    def _devices(self) -> list[DeviceSample]:
        """Every device NVML still lists. Raises NVMLError when the driver as a whole failed."""
        nvml = self._nvml
        devices: dict[str, DeviceSample] = {}
        self._unnamed = []
        for index in range(min(nvml.nvmlDeviceGetCount(), DEVICES_MAX)):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = str(nvml.nvmlDeviceGetUUID(handle))
            except (nvml.NVMLError, UnicodeDecodeError) as error:
                if isinstance(error, nvml.NVMLError) and is_of_driver(nvml, error):
                    raise
                self._unnamed.append(say(f"device {index} does not tell its UUID", error))
                continue
            if not UUID_PATTERN.match(uuid) or uuid in devices:
                self._unnamed.append(f"device {index} has a UUID we cannot use")
                continue
            devices[uuid] = self._device(index, uuid, handle)
        return list(devices.values())

    def _device(self, index: int, uuid: str, handle: Any) -> DeviceSample:
        """One device, as far as it tells."""
        calls = DeviceCalls(self._nvml, handle)
        asked_at_ms = self._clock.mono_ms()
        known = self._known.get(uuid)
        told: dict[str, Any] = {"name": known.name if known else None}
        state: DeviceState = "available"
        try:
            told["name"] = self._name(calls)
            told.update(_memory(calls))
            if _mig_enabled(calls):
                state = "unsupported"
                calls.notes.append("MIG is on: no automatic placement")
            else:
                read = self._utilization.read(calls, uuid, asked_at_ms)
                told["utilization_pct"], told["utilization_read_us"] = read.busy_pct, read.read_us
                total = told.get("memory_total_mib")
                told["processes"] = self._processes.read(calls, uuid, total, asked_at_ms)
        except DeviceFailed as failure:
            state = failure.state
            total = known.memory_total_mib if known else None
            told = {"name": told["name"], "memory_total_mib": told.get("memory_total_mib", total)}
            calls.notes.append(failure.reason)
        return DeviceSample(
            index=index,
            uuid=uuid,
            state=state,
            read_at_mono_ms=asked_at_ms,
            reason=bounded_reason("; ".join(calls.notes)) if calls.notes else None,
            **told,
        )

    def _name(self, calls: DeviceCalls) -> str | None:
        answer = calls.ask("nvmlDeviceGetName")
        if isinstance(answer, NotTold):
            calls.unknown("name", answer.text)
            return None
        return str(answer)[:200]

    def _with_lineages(self, devices: list[DeviceSample]) -> list[DeviceSample]:
        """Name the ancestors of every process: one look at /proc for all devices."""
        pids = {process.pid for device in devices for process in device.processes or ()}
        if not pids:
            return devices
        lineages = self._lineages.look(pids)
        return [
            device.model_copy(
                update={
                    "processes": tuple(
                        process.model_copy(update=lineages[process.pid].fields)
                        for process in device.processes
                    )
                }
            )
            if device.processes
            else device
            for device in devices
        ]

    # -- the answer -------------------------------------------------------------------------------

    def _reading(self, devices: list[DeviceSample]) -> DriverReading:
        """Add the devices that are no longer listed, and judge the whole."""
        present = {device.uuid for device in devices}
        taken = {device.index for device in devices}
        for uuid, known in self._known.items():
            if uuid not in present:
                gone = silent_device(known, "lost", "the driver no longer lists this device")
                if gone.index in taken:
                    # Another has its number now, and no two are to be told by the same one.
                    free = next(n for n in count(len(present)) if n not in taken)
                    gone = gone.model_copy(update={"index": free})
                taken.add(gone.index)
                devices.append(gone)
        self._known.update({device.uuid: device for device in devices})
        devices.sort(key=_by_index)
        if devices and all(device.state == "unknown" for device in devices):
            self._shut_down()
            return self._fail(DriverReading("unknown", "every device reports an unknown error"))
        self._pause_ms, self._failures, self._worked = RETRY_FIRST_MS, 0, True
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


def _memory(calls: DeviceCalls) -> dict[str, int]:
    """What is told of the memory, in MiB: all of it rounded down; what is in use, and what the
    driver keeps for itself, rounded up. Only the second form of the question tells those apart."""
    info = calls.ask("nvmlDeviceGetMemoryInfo", calls.nvml.nvmlMemory_v2)
    if isinstance(info, NotTold):
        info = calls.ask("nvmlDeviceGetMemoryInfo")
    if isinstance(info, NotTold):
        calls.unknown("memory", info.text)
        return {}
    total, used = int(info.total), int(info.used)
    reserved = getattr(info, "reserved", None)
    if total < MIB:
        calls.unknown("memory", "the driver says that there is none")
        return {}
    told = {"memory_total_mib": total // MIB}
    if used + (reserved or 0) > total:
        calls.unknown("memory in use", "the driver says more than there is")
        return told
    told["memory_used_mib"] = min(-(-used // MIB), total // MIB)
    if reserved is not None:
        told["memory_reserved_mib"] = -(-int(reserved) // MIB)
    return told


def _mig_enabled(calls: DeviceCalls) -> bool:
    nvml = calls.nvml
    answer = calls.ask("nvmlDeviceGetMigMode")
    if isinstance(answer, NotTold):
        if answer.code in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            return False
        raise DeviceFailed("unknown", f"MIG mode unknown: {answer.text}")
    current, _pending = answer
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)
