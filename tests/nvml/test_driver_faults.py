"""The driver as a whole fails, is reloaded, is replaced; through the real binding."""

from __future__ import annotations

import pytest

from praxist_zmq.host.nvml import FAILURES_MAX
from tests.nvml.driver_process import DriverProcess
from tests.support import nvml_stub as nvml
from tests.support.nvml_stub import GIB, Stub, StubDevice

OF_THE_DRIVER = (nvml.UNINITIALIZED, nvml.DRIVER_NOT_LOADED, nvml.LIB_RM_VERSION_MISMATCH)


def test_a_failed_init_is_unknown_and_tried_again(nvml_stub: Stub, driver: DriverProcess) -> None:
    nvml_stub.errors["init"] = nvml.DRIVER_NOT_LOADED
    nvml_stub.write(StubDevice("GPU-a"))
    reading = driver.look()
    assert (reading.state, reading.devices) == ("unknown", ())
    assert "Driver Not Loaded" in (reading.reason or "")
    nvml_stub.errors.clear()
    nvml_stub.write()
    assert driver.look(500).state == "unknown"  # not at once
    assert driver.look(500).state == "available"


@pytest.mark.parametrize("call", ["count", "handle", "memory", "busy"])
@pytest.mark.parametrize("code", OF_THE_DRIVER)
def test_a_reloaded_driver_is_set_up_again(
    nvml_stub: Stub, driver: DriverProcess, call: str, code: int
) -> None:
    nvml_stub.write(StubDevice("GPU-a", memory_used=GIB), StubDevice("GPU-b"))
    assert driver.look().state == "available"
    place = nvml_stub.errors if call == "count" else nvml_stub.devices[1].errors
    place[call] = code
    nvml_stub.write()
    reading = driver.look()
    assert reading.state == "unknown"
    assert reading.reason
    for device in reading.devices:
        assert (device.state, device.memory_total_mib) == ("unknown", 81920)
        assert (device.memory_used_mib, device.utilization_pct) == (None, None)
        assert device.processes is None
    assert nvml_stub.calls("shutdown") == 1
    place.clear()
    nvml_stub.write()
    assert driver.look().state == "available"
    assert nvml_stub.calls("init") == 2


def test_an_unknown_error_of_every_device_is_the_drivers(
    nvml_stub: Stub, driver: DriverProcess
) -> None:
    devices = [StubDevice("GPU-a"), StubDevice("GPU-b")]
    nvml_stub.write(*devices)
    driver.look()
    devices[0].errors["memory"] = nvml.UNKNOWN
    nvml_stub.write()
    assert [device.state for device in driver.look().devices] == ["unknown", "available"]
    assert nvml_stub.calls("shutdown") == 0
    devices[1].errors["mig"] = nvml.UNKNOWN
    nvml_stub.write()
    assert driver.look().state == "unknown"
    assert nvml_stub.calls("shutdown") == 1


def test_a_replaced_library_asks_for_a_fresh_process_in_the_end(
    nvml_stub: Stub, driver: DriverProcess
) -> None:
    nvml_stub.write(StubDevice("GPU-a"))
    driver.look()
    nvml_stub.errors = dict.fromkeys(("init", "count"), nvml.LIB_RM_VERSION_MISMATCH)
    nvml_stub.write()
    for _ in range(FAILURES_MAX - 1):
        reading = driver.look(60_000)
        assert (reading.state, reading.exhausted) == ("unknown", False)
    assert driver.look(60_000).exhausted
    assert [device.uuid for device in driver.look().devices] == ["GPU-a"]


def test_a_library_without_devices_is_no_failure(nvml_stub: Stub, driver: DriverProcess) -> None:
    for _ in range(FAILURES_MAX + 1):
        reading = driver.look(60_000)
        assert (reading.state, reading.devices, reading.exhausted) == ("unavailable", (), False)
