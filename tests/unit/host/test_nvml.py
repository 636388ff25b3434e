"""The NVML driver: on this machine's library, or its absence, and on a scripted binding."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from praxist_zmq.host.nvml import FAILURES_MAX, NvmlDriver, open_nvml
from praxist_zmq.host.nvml_absent import AbsentDriver, absent_reading

GIB = 1024**3


class FakeBinding:
    """A fake pynvml: real error classes and codes, scripted answers by (device, call)."""

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.order = list(range(gpus))
        self.faults: dict[tuple[int | None, str], int] = {}
        self.answers: dict[tuple[int, str], Any] = {}
        self.inits = self.shutdowns = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def _raise(self, device: int | None, call: str) -> None:
        code = self.faults.get((device, call), self.faults.get((device, "all")))
        if code is not None:
            raise pynvml.NVMLError(code)

    def nvmlInit(self) -> None:
        self._raise(None, "init")
        self.inits += 1

    def nvmlShutdown(self) -> None:
        self.shutdowns += 1
        self._raise(None, "shutdown")

    def nvmlDeviceGetCount(self) -> int:
        self._raise(None, "count")
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        self._raise(self.order[index], "handle")
        return self.order[index]

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        self._raise(handle, "uuid")
        return str(self.answers.get((handle, "uuid"), f"GPU-{handle}"))

    def nvmlDeviceGetName(self, handle: int) -> str:
        self._raise(handle, "name")
        return "NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> Any:
        self._raise(handle, "memory")
        total, used = self.answers.get((handle, "memory"), (80 * GIB + 5, GIB + 5))
        if version is not None:
            if (handle, "reserved") not in self.answers:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            reserved = self.answers[handle, "reserved"]
            return SimpleNamespace(total=total, reserved=reserved, used=used)
        return SimpleNamespace(total=total, used=used, free=total - used)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        self._raise(handle, "utilization")
        return SimpleNamespace(gpu=self.answers.get((handle, "utilization"), 37), memory=1)

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        self._raise(handle, "mig")
        if (handle, "mig") in self.answers:
            return [1, 1]
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetSamples(self, handle: int, kind: int, mark: int) -> Any:
        self._raise(handle, "samples")
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetProcessUtilization(self, handle: int, mark: int) -> Any:
        self._raise(handle, "busy")
        return [s for s in self.answers.get((handle, "busy"), ()) if s.timeStamp > mark]

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: int) -> Any:
        self._raise(handle, "compute")
        return self.answers.get((handle, "compute"), [])

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: int) -> Any:
        self._raise(handle, "graphics")
        return self.answers.get((handle, "graphics"), [])


class Bench:
    """A driver over a fake binding, with a fake clock that stands still until it is set."""

    def __init__(self, gpus: int) -> None:
        self.binding = FakeBinding(gpus)
        self.now = 0
        self.driver = NvmlDriver(self)
        self.driver._nvml = self.binding

    def wall_ms(self) -> int:
        return self.now

    def mono_ms(self) -> int:
        return self.now


def test_healthy_devices() -> None:
    bench = Bench(2)
    reading = bench.driver.sample()
    assert (reading.state, reading.reason) == ("available", None)
    first = reading.devices[0]
    assert (first.uuid, first.index, first.name) == ("GPU-0", 0, "NVIDIA H200")
    assert (first.memory_total_mib, first.memory_used_mib) == (81920, 1025)
    assert (first.utilization_pct, first.state, first.reason) == (37.0, "available", None)


def test_what_the_driver_keeps_for_itself_is_told_apart_where_the_library_can() -> None:
    bench = Bench(2)
    bench.binding.answers[0, "reserved"] = 517 * 1024**2 + 1
    first, second = bench.driver.sample().devices
    assert (first.memory_used_mib, first.memory_reserved_mib) == (1025, 518)
    assert (second.memory_used_mib, second.memory_reserved_mib) == (1025, None)
    bench.binding.answers[0, "reserved"] = 80 * GIB
    assert bench.driver.sample().devices[0].memory_used_mib is None


@pytest.mark.parametrize("call", ["memory", "utilization"])
def test_a_field_that_is_not_supported_is_unknown(call: str) -> None:
    bench = Bench(2)
    bench.binding.faults[0, call] = pynvml.NVML_ERROR_NOT_SUPPORTED
    first, second = bench.driver.sample().devices
    assert first.state == "available"
    assert first.reason is not None
    assert "Not Supported" in first.reason
    assert (first.memory_total_mib is None) == (call == "memory")
    assert (first.memory_used_mib is None) == (call == "memory")
    assert (first.utilization_pct is None) == (call == "utilization")
    assert second.reason is None


@pytest.mark.parametrize(("total", "used"), [(0, 0), (GIB, 2 * GIB)])
def test_memory_figures_that_make_no_sense_are_unknown(total: int, used: int) -> None:
    bench = Bench(1)
    bench.binding.answers[0, "memory"] = (total, used)
    (device,) = bench.driver.sample().devices
    assert device.memory_used_mib is None
    assert device.memory_total_mib == (total // 1024**2 or None)
    assert device.reason is not None


def test_mig_is_unsupported_and_utilisation_unknown_not_zero() -> None:
    bench = Bench(1)
    bench.binding.answers[0, "mig"] = True
    reading = bench.driver.sample()
    assert reading.state == "unsupported"
    assert (reading.devices[0].state, reading.devices[0].utilization_pct) == ("unsupported", None)


@pytest.mark.parametrize("call", ["all", "memory", "utilization", "mig"])
def test_a_lost_device_leaves_the_others(call: str) -> None:
    bench = Bench(4)
    bench.driver.sample()
    bench.binding.faults[1, call] = pynvml.NVML_ERROR_GPU_IS_LOST
    reading = bench.driver.sample()
    assert reading.state == "available"
    assert [d.state for d in reading.devices] == ["available", "lost", "available", "available"]
    assert [d.uuid for d in reading.devices] == [f"GPU-{i}" for i in range(4)]
    assert reading.devices[1].memory_used_mib is None
    assert reading.devices[1].utilization_pct is None


def test_a_device_that_leaves_the_list_stays_known_as_lost_and_may_come_back() -> None:
    bench = Bench(4)
    bench.driver.sample()
    bench.binding.gpus, bench.binding.order = 3, [0, 2, 3]
    states = {d.uuid: d.state for d in bench.driver.sample().devices}
    assert states == {
        "GPU-0": "available",
        "GPU-1": "lost",
        "GPU-2": "available",
        "GPU-3": "available",
    }
    bench.binding.gpus, bench.binding.order = 4, [3, 2, 1, 0]
    reading = bench.driver.sample()
    assert {d.state for d in reading.devices} == {"available"}
    assert [d.uuid for d in reading.devices] == ["GPU-3", "GPU-2", "GPU-1", "GPU-0"]


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        pynvml.NVML_ERROR_UNKNOWN,
    ],
)
@pytest.mark.parametrize("place", [(None, "count"), (0, "all")])
def test_a_driver_that_went_away_is_set_up_again_after_a_pause(
    code: int, place: tuple[int | None, str]
) -> None:
    bench = Bench(1)
    bench.driver.sample()
    bench.binding.faults[place] = code
    bench.binding.faults[None, "shutdown"] = code
    reading = bench.driver.sample()
    if reading.state == "available":  # UNKNOWN at the handle: the device is lost until it answers
        assert (place, reading.devices[0].state) == ((0, "all"), "lost")
        return
    assert reading.state == "unknown"
    assert reading.devices[0].state == "unknown"
    assert reading.devices[0].utilization_pct is None
    assert bench.binding.shutdowns == 1
    bench.binding.faults.clear()
    assert bench.driver.sample().state == "unknown"
    assert bench.binding.inits == 1
    bench.now = 1500
    assert bench.driver.sample().state == "available"
    assert bench.binding.inits == 2


def test_the_pause_grows_to_a_minute() -> None:
    bench = Bench(1)
    bench.binding.faults[None, "init"] = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    for pause in (1, 2, 4, 8, 16, 32, 60, 60):
        reading = bench.driver.sample()
        assert reading.state == "unknown"
        assert "mismatch" in (reading.reason or "")
        assert bench.driver._retry_at_ms - bench.now == pause * 1000
        bench.now += pause * 1000


@pytest.mark.parametrize(
    ("worked", "code", "exhausts"),
    [
        (True, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, True),
        (False, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, False),
        (False, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, True),
    ],
)
def test_after_failures_in_a_row_only_a_fresh_process_helps(
    worked: bool, code: int, exhausts: bool
) -> None:
    bench = Bench(1)
    if worked:
        assert bench.driver.sample().state == "available"
    bench.binding.faults[None, "init"] = bench.binding.faults[None, "count"] = code
    for _ in range(FAILURES_MAX - 1):
        assert not bench.driver.sample().exhausted
        bench.now += 60_000
    assert bench.driver.sample().exhausted == exhausts
    assert 100_000 < sum(min(60_000, 1000 << n) for n in range(FAILURES_MAX - 1)) < 180_000


def test_a_host_without_a_library_is_never_exhausted() -> None:
    bench = Bench(1)
    bench.binding.faults[None, "init"] = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    for _ in range(FAILURES_MAX * 2):
        assert not bench.driver.sample().exhausted
        bench.now += 60_000


def test_no_device_and_unusable_names() -> None:
    assert Bench(0).driver.sample().state == "unavailable"
    bench = Bench(1)
    bench.binding.answers[0, "uuid"] = "GPU \n"
    reading = bench.driver.sample()
    assert (reading.state, reading.devices) == ("unknown", ())


def test_without_a_library_the_inventory_is_empty() -> None:
    if ctypes.util.find_library("nvidia-ml"):
        pytest.skip("this machine has NVIDIA's library")
    driver = open_nvml()
    assert driver.name == "nvml"
    for _ in range(2):
        reading = driver.sample()
        assert reading.state == ("unsupported" if os.path.exists("/dev/kfd") else "unavailable")
        assert "libnvidia-ml.so.1" in (reading.reason or "")
        assert reading.devices == ()
    driver.close()


def test_the_binding_is_imported_only_when_needed() -> None:
    code = "import sys, praxist_zmq.host.nvml; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0


def test_an_absent_driver_says_so(tmp_path: Any) -> None:
    driver = AbsentDriver("no driver here")
    assert driver.sample().devices == ()
    driver.close()
    reading = absent_reading("no driver here", str(tmp_path))
    assert reading.state == "unsupported"
    assert "AMD" in (reading.reason or "")


def test_without_the_binding_the_driver_is_the_absent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    reading = open_nvml().sample()
    assert reading.devices == ()
    assert "pynvml is not installed" in (reading.reason or "")
