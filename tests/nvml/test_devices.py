"""Devices through the real binding: each field and each device on its own."""

from __future__ import annotations

import pytest

from tests.nvml.driver_process import DriverProcess
from tests.support import nvml_stub as nvml
from tests.support.nvml_stub import GIB, MIB, Stub, StubDevice


def states(driver: DriverProcess) -> dict[str, str]:
    return {device.uuid: device.state for device in driver.look().devices}


def test_healthy_devices_are_told_whole(nvml_stub: Stub, driver: DriverProcess) -> None:
    nvml_stub.write(StubDevice("GPU-a", utilization=37, memory_used=GIB + 1), StubDevice("GPU-b"))
    driver.look()
    reading = driver.look()
    assert (reading.state, reading.reason) == ("available", None)
    first, second = reading.devices
    assert (first.index, first.uuid, first.name) == (0, "GPU-a", "NVIDIA H200")
    assert (first.memory_total_mib, first.memory_used_mib) == (81920, 1025)
    assert (first.utilization_pct, first.processes, first.reason) == (37.0, (), None)
    assert first.read_at_mono_ms == driver.now_ms
    assert first.utilization_read_us is not None
    assert (second.utilization_pct, second.memory_used_mib) == (0.0, 0)
    assert nvml_stub.calls("init") == 1


@pytest.mark.parametrize("code", [nvml.NOT_SUPPORTED, nvml.NOT_FOUND, nvml.FUNCTION_NOT_FOUND, 4])
@pytest.mark.parametrize("call", ["name", "memory", "compute", "busy"])
def test_a_field_that_is_refused_is_unknown_and_the_rest_is_told(
    nvml_stub: Stub, driver: DriverProcess, call: str, code: int
) -> None:
    process = nvml.StubProcess(4_000_000, 2 * GIB, busy=20)
    bad = StubDevice("GPU-a", utilization=37, processes=[process], errors={call: code})
    nvml_stub.write(bad, StubDevice("GPU-b", utilization=7))
    driver.look()
    first, second = driver.look().devices
    assert (first.state, first.utilization_pct) == ("available", 37.0)
    assert (first.name is None) == (call == "name")
    assert (first.memory_total_mib is None) == (call == "memory")
    assert (first.processes is None) == (call == "compute")
    if first.processes is not None:
        (seen,) = first.processes
        idle = call == "busy" and code == nvml.NOT_FOUND  # the answer of a driver that saw nobody
        assert seen.utilization_pct == (0.0 if idle else None if call == "busy" else 20.0)
        assert seen.memory_mib == 2048
    if not (call == "busy" and code == nvml.NOT_FOUND):
        assert first.reason is not None
        assert "unknown" in first.reason
    assert (second.reason, second.utilization_pct) == (None, 7.0)


def test_unified_memory_is_unknown_not_free(nvml_stub: Stub, driver: DriverProcess) -> None:
    nvml_stub.write(
        StubDevice("GPU-a", name="NVIDIA GB10", errors={"memory": nvml.NOT_SUPPORTED}),
        StubDevice("GPU-b", memory_total=0),
        StubDevice("GPU-c", memory_total=8 * GIB, memory_used=9 * GIB),
    )
    unified, nothing, lying = driver.look().devices
    for device in (unified, nothing):
        assert (device.state, device.memory_total_mib, device.memory_used_mib) == (
            "available",
            None,
            None,
        )
        assert "memory unknown" in (device.reason or "")
    assert (lying.memory_total_mib, lying.memory_used_mib) == (8192, None)


@pytest.mark.parametrize("call", ["all", "handle", "uuid", "memory", "samples", "compute", "busy"])
def test_a_lost_device_leaves_the_others_and_may_come_back(
    nvml_stub: Stub, driver: DriverProcess, call: str
) -> None:
    devices = [StubDevice(f"GPU-{letter}", utilization=9) for letter in "abcd"]
    nvml_stub.write(*devices)
    healthy = {device.uuid: "available" for device in devices}
    assert states(driver) == healthy
    devices[1].errors[call] = nvml.GPU_IS_LOST
    nvml_stub.write()
    assert states(driver) == {**healthy, "GPU-b": "lost"}
    lost = driver.look().devices[1]
    assert (lost.memory_total_mib, lost.memory_used_mib) == (81920, None)
    assert (lost.utilization_pct, lost.processes) == (None, None)
    nvml_stub.order = [0, 2, 3]
    nvml_stub.write()
    assert states(driver) == {**healthy, "GPU-b": "lost"}
    nvml_stub.order = None
    devices[1].errors.clear()
    nvml_stub.write()
    assert states(driver) == healthy


def test_a_device_that_needs_a_reset_is_unavailable(nvml_stub: Stub, driver: DriverProcess) -> None:
    nvml_stub.write(
        StubDevice("GPU-a", errors={"memory": nvml.RESET_REQUIRED}), StubDevice("GPU-b")
    )
    assert states(driver) == {"GPU-a": "unavailable", "GPU-b": "available"}


def test_a_permuted_order_keeps_what_belongs_to_each_uuid(
    nvml_stub: Stub, driver: DriverProcess
) -> None:
    nvml_stub.write(*(StubDevice(f"GPU-{n}", utilization=n, memory_used=n * GIB) for n in range(4)))
    driver.look()
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]):
        nvml_stub.order = order
        nvml_stub.write()
        devices = driver.look().devices
        assert [device.uuid for device in devices] == [f"GPU-{n}" for n in order]
        for device in devices:
            number = int(device.uuid[-1])
            assert (device.utilization_pct, device.memory_used_mib) == (number, number * 1024)


def test_no_two_devices_have_one_number_when_the_list_gets_shorter(
    nvml_stub: Stub, driver: DriverProcess
) -> None:
    nvml_stub.write(*(StubDevice(f"GPU-{n}") for n in range(3)))
    driver.look()
    for order, numbers in (
        ([1, 2], {"GPU-1": 0, "GPU-2": 1, "GPU-0": 2}),
        ([2], {"GPU-2": 0, "GPU-1": 1, "GPU-0": 2}),
        ([], {"GPU-2": 0, "GPU-1": 1, "GPU-0": 2}),
        ([0, 1, 2], {"GPU-0": 0, "GPU-1": 1, "GPU-2": 2}),
    ):
        nvml_stub.order = order
        nvml_stub.write()
        assert {device.uuid: device.index for device in driver.look().devices} == numbers


def test_mig_is_unsupported_and_reads_unknown_not_idle(
    nvml_stub: Stub, driver: DriverProcess
) -> None:
    cut = StubDevice("GPU-a", mig=True, errors={"utilization": nvml.NOT_SUPPORTED})
    nvml_stub.write(cut, StubDevice("GPU-b"))
    reading = driver.look()
    assert reading.state == "available"
    device = reading.devices[0]
    assert (device.state, device.utilization_pct, device.processes) == ("unsupported", None, None)
    assert "MIG" in (device.reason or "")
    nvml_stub.write(cut)
    nvml_stub.order = [0]
    assert driver.look().devices[0].state == "unsupported"


@pytest.mark.parametrize("stamped", [True, False])
def test_a_share_over_100_is_unknown(nvml_stub: Stub, driver: DriverProcess, stamped: bool) -> None:
    device = StubDevice("GPU-a", utilization=50)
    if not stamped:
        device.errors["samples"] = nvml.NOT_SUPPORTED
    nvml_stub.write(device)
    driver.look()
    assert driver.look().devices[0].utilization_pct == 50
    device.utilization = 4_294_967_295
    nvml_stub.write()
    told = driver.look().devices[0]
    assert (told.state, told.utilization_pct) == ("available", None)
    assert "utilisation unknown" in (told.reason or "")


def test_a_reading_counts_once_by_its_stamp(nvml_stub: Stub, driver: DriverProcess) -> None:
    device = StubDevice("GPU-a", utilization=77, samples=[(1_000_000, 5)])
    nvml_stub.write(device)
    old = driver.look().devices[0]
    assert (old.utilization_pct, old.utilization_read_us) == (77, None)  # kept from before
    device.samples = [(1_000_000, 5), (9_000_000, 0), (11_500_000, 20), (12_000_000, 40)]
    nvml_stub.write()
    for _ in range(4):
        told = driver.look().devices[0]
        assert (told.utilization_pct, told.utilization_read_us) == (30, 12_000_000)
    for _ in range(2):  # too old to be believed: the present rate, which has no stamp
        told = driver.look(5_000).devices[0]
        assert (told.utilization_pct, told.utilization_read_us) == (77, None)
    device.samples = [(500, 61), (700, 63)]  # the clock was set back
    nvml_stub.write()
    driver.look(5_000)
    device.samples += [(900, 65)]
    nvml_stub.write()
    told = driver.look().devices[0]
    assert (told.utilization_pct, told.utilization_read_us) == (65, 900)


def test_names_that_are_no_names(nvml_stub: Stub, driver: DriverProcess) -> None:
    nvml_stub.write(
        StubDevice("GPU a"),
        StubDevice("GPU-b"),
        StubDevice("GPU-b", memory_total=MIB),
        StubDevice("GPU-c", name="\N{LATIN SMALL LETTER E WITH ACUTE}" * 300),
        StubDevice(""),
    )
    reading = driver.look()
    assert reading.state == "available"
    assert [device.uuid for device in reading.devices] == ["GPU-b", "GPU-c"]
    assert reading.devices[0].memory_total_mib == 81920
    assert reading.reason is not None
    assert "device 0 has a UUID we cannot use" in reading.reason
