"""The processes on a device through the real binding, and their ancestors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from praxist_zmq.host.identity import own_namespace, read_stat
from praxist_zmq.host.lineage import FIRST_PID_NAMESPACE
from praxist_zmq.protocol.reports import DeviceProcess
from tests.nvml.driver_process import DriverProcess
from tests.support import nvml_stub as nvml
from tests.support.nvml_stub import GIB, MIB, Stub, StubDevice, StubProcess

ABSENT = 4_100_000
"""Over the largest pid that a kernel gives."""


@pytest.fixture
def child() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


def seen(driver: DriverProcess, after_ms: int = 1_000) -> dict[int, DeviceProcess]:
    (device,) = driver.look(after_ms).devices
    assert device.processes is not None, device.reason
    return {process.pid: process for process in device.processes}


def shares(driver: DriverProcess, after_ms: int = 1_000) -> dict[int, float | None]:
    return {pid: process.utilization_pct for pid, process in seen(driver, after_ms).items()}


def test_compute_and_graphics_are_merged_by_pid(nvml_stub: Stub, driver: DriverProcess) -> None:
    pid = ABSENT
    nvml_stub.write(
        StubDevice(
            "GPU-a",
            processes=[
                StubProcess(pid, 3 * GIB),
                StubProcess(pid, 3 * GIB, graphics=True),
                StubProcess(pid + 1, nvml.NOT_AVAILABLE),
                StubProcess(pid + 2, MIB + 1, graphics=True),
                StubProcess(pid + 3, 500 * GIB),
            ],
        )
    )
    memory = {key: process.memory_mib for key, process in seen(driver).items()}
    assert memory == {pid: 3072, pid + 1: None, pid + 2: 2, pid + 3: None}


def test_a_list_that_is_not_whole_is_unknown(nvml_stub: Stub, driver: DriverProcess) -> None:
    device = StubDevice("GPU-a", processes=[StubProcess(ABSENT)])
    nvml_stub.write(device)
    for graphics, known in (
        (nvml.NOT_SUPPORTED, True),
        (nvml.FUNCTION_NOT_FOUND, True),
        (4, False),
    ):
        device.errors = {"graphics": graphics}
        nvml_stub.write()
        told = driver.look().devices[0]
        assert (told.processes is not None) == known
        assert ("processes unknown" in (told.reason or "")) != known
    device.errors = {}
    device.processes = [StubProcess(ABSENT + n) for n in range(250)]
    nvml_stub.write()
    assert len(seen(driver)) == 250


def test_ancestors_are_named_for_those_that_proc_knows(
    nvml_stub: Stub, driver: DriverProcess, child: int
) -> None:
    if own_namespace() != FIRST_PID_NAMESPACE:
        pytest.skip("not in the first pid namespace, where nobody has a lineage")
    nvml_stub.write(StubDevice("GPU-a", processes=[StubProcess(child), StubProcess(ABSENT)]))
    processes = seen(driver)
    stamps = [(stamp.pid, stamp.start_ticks) for stamp in processes[child].lineage]
    for place, pid in enumerate((child, os.getpid())):
        stat = read_stat(pid)
        assert stat is not None
        assert stamps[place] == (pid, stat.start_ticks)
    assert processes[child].user
    assert "python" in (processes[child].name or "")
    foreign = processes[ABSENT]
    assert (foreign.lineage, foreign.name, foreign.user) == ((), None, None)
    assert foreign.memory_mib == 1024


def test_busy_shares_follow_the_drivers_stamps(nvml_stub: Stub, driver: DriverProcess) -> None:
    first, second = StubProcess(ABSENT, busy=90, stamp=5_000), StubProcess(ABSENT + 1)
    nvml_stub.write(StubDevice("GPU-a", processes=[first, second]))
    assert shares(driver) == {ABSENT: None, ABSENT + 1: None}  # of the time before we looked
    assert shares(driver) == {ABSENT: 0.0, ABSENT + 1: 0.0}  # nothing newer: none was busy
    first.busy, first.stamp = 30, 6_000
    nvml_stub.write()
    assert shares(driver) == {ABSENT: 30.0, ABSENT + 1: 0.0}
    # Looks that follow at once share the answer; one that came since is not known yet.
    nvml_stub.devices[0].processes.append(StubProcess(ABSENT + 2))
    nvml_stub.write()
    assert shares(driver, 100) == {ABSENT: 30.0, ABSENT + 1: 0.0, ABSENT + 2: None}
    assert shares(driver) == {ABSENT: 0.0, ABSENT + 1: 0.0, ABSENT + 2: 0.0}


def test_nobody_in_the_list_of_busy_ones_at_the_start_is_idle(
    nvml_stub: Stub, driver: DriverProcess
) -> None:
    nvml_stub.write(StubDevice("GPU-a", processes=[StubProcess(ABSENT)]))
    assert shares(driver) == {ABSENT: 0.0}


def test_a_nonsense_share_is_unknown_for_that_process(
    nvml_stub: Stub, driver: DriverProcess
) -> None:
    processes = [StubProcess(ABSENT, busy=101), StubProcess(ABSENT + 1, busy=100)]
    nvml_stub.write(StubDevice("GPU-a", processes=processes))
    driver.look()
    assert shares(driver) == {ABSENT: None, ABSENT + 1: 100.0}


def test_a_clock_that_was_set_back_hides_no_one_for_long(
    nvml_stub: Stub, driver: DriverProcess
) -> None:
    process = StubProcess(ABSENT, busy=50, stamp=9_000_000)
    nvml_stub.write(StubDevice("GPU-a", processes=[process]))
    driver.look()
    process.stamp = 9_500_000
    nvml_stub.write()
    assert shares(driver) == {ABSENT: 50.0}
    process.stamp = 4_000
    nvml_stub.write()
    assert shares(driver, 10_000) == {ABSENT: None}
    process.stamp, process.busy = 5_000, 60
    nvml_stub.write()
    assert shares(driver) == {ABSENT: 60.0}


def test_one_device_without_shares_leaves_the_others(
    nvml_stub: Stub, driver: DriverProcess
) -> None:
    devices = [StubDevice(f"GPU-{n}", processes=[StubProcess(ABSENT, busy=40)]) for n in range(2)]
    devices[0].errors["busy"] = nvml.NOT_SUPPORTED
    nvml_stub.write(*devices)
    driver.look()
    told = driver.look().devices
    found = [[p.utilization_pct for p in device.processes or ()] for device in told]
    assert found == [[None], [40.0]]
    assert "use by process unknown" in (told[0].reason or "")
