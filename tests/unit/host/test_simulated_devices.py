"""Simulated devices and the file that loads and breaks them."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.host import simulation_file
from praxist_zmq.host.nvml_simulated import SimulatedDriver, simulated_uuid
from tests.support.wait import wait_until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "host" / "simulation.json"


def test_devices_are_idle_and_healthy_without_a_file(path: Path) -> None:
    reading = SimulatedDriver(2, 80, path).sample()
    assert (reading.state, reading.reason) == ("available", None)
    first = reading.devices[0]
    assert first.uuid == "GPU-00000000-0000-4000-8000-000000000000"
    assert simulated_uuid(26).endswith("-00000000001a")
    assert (first.memory_total_mib, first.memory_used_mib) == (81920, 0)
    assert first.utilization_pct == 0.0


def test_load_is_set_kept_and_cleared(path: Path) -> None:
    driver = SimulatedDriver(2, 80, path)
    simulation_file.set_load(path, 1, utilization_pct=40)
    simulation_file.set_load(path, 1, memory_gb=10.5)
    simulation_file.set_load(path, 0, memory_gb=1000)
    full, loaded = driver.sample().devices
    assert (loaded.utilization_pct, loaded.memory_used_mib) == (40.0, 10752)
    assert full.memory_used_mib == full.memory_total_mib
    simulation_file.clear(path)
    assert [device.utilization_pct for device in driver.sample().devices] == [0.0, 0.0]


def test_faults_of_one_device_leave_the_others(path: Path) -> None:
    driver = SimulatedDriver(4, 8, path)
    simulation_file.set_load(path, 0, 20, 2)
    for gpu, kind in enumerate(("lost", "memory_unsupported", "utilization_unsupported")):
        simulation_file.set_fault(path, gpu, kind)
    reading = driver.sample()
    lost, no_memory, no_utilization, healthy = reading.devices
    assert reading.state == "available"
    assert (lost.state, lost.memory_used_mib, lost.utilization_pct) == ("lost", None, None)
    assert (no_memory.state, no_memory.memory_total_mib) == ("available", None)
    assert no_memory.memory_used_mib is None
    assert no_utilization.utilization_pct is None
    assert no_utilization.memory_total_mib == 8192
    assert all(device.reason for device in reading.devices[:3])
    assert (healthy.reason, healthy.utilization_pct) == (None, 0.0)


def test_a_failed_init_is_unknown_never_idle(path: Path) -> None:
    simulation_file.set_fault(path, 1, "init")
    reading = SimulatedDriver(2, 8, path).sample()
    assert reading.state == "unknown"
    assert {device.utilization_pct for device in reading.devices} == {None}
    assert {device.state for device in reading.devices} == {"unknown"}


@pytest.mark.parametrize("end", ["clear", "close"])
def test_a_hang_blocks_until_it_is_cleared_or_closed(path: Path, end: str) -> None:
    driver = SimulatedDriver(1, 8, path)
    simulation_file.set_fault(path, 0, "hang")
    with ThreadPoolExecutor(1) as pool:
        try:
            answer = pool.submit(driver.sample)
            assert not threading.Event().wait(0.25)
            assert not answer.done()
        finally:
            if end == "clear":
                simulation_file.clear(path)
            else:
                driver.close()
        expected = "available" if end == "clear" else "unknown"
        assert answer.result(5).state == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b"{" * 300_000,
        b'{"format_version":"2.0"}',
        b'{"format_version":"1.0","devices":[]}',
        b'{"format_version":"1.0","device":{}}',
        b'{"format_version":"1.0","devices":{"x":{}}}',
        b'{"format_version":"1.0","devices":{"01":{}}}',
        b'{"format_version":"1.0","devices":{"-1":{}}}',
        b'{"format_version":"1.0","devices":{"0":7}}',
        b'{"format_version":"1.0","devices":{"0":{"fault":"melted"}}}',
        b'{"format_version":"1.0","devices":{"0":{"fault":["lost"]}}}',
        b'{"format_version":"1.0","devices":{"0":{"utilization_pct":true}}}',
        b'{"format_version":"1.0","devices":{"0":{"utilization_pct":101}}}',
        b'{"format_version":"1.0","devices":{"0":{"memory_gb":-1}}}',
        b'{"format_version":"1.0","devices":{"0":{"memory_gb":NaN}}}',
        b'{"format_version":"1.0","devices":{"0":{"memory_gb":1e999}}}',
        b'{"format_version":"1.0","devices":{"0":{"extra":1}}}',
        b'{"format_version":"1.0","devices":{"0":{},"0":{}}}',
    ],
)
def test_a_malformed_file_makes_the_state_unknown(path: Path, body: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(body)
    reading = SimulatedDriver(1, 8, path).sample()
    assert reading.state == "unknown"
    assert reading.reason is not None
    assert str(path) in reading.reason or len(str(path)) > 250
    assert reading.devices[0].utilization_pct is None
    with pytest.raises(PraxistError):
        simulation_file.set_load(path, 0, 10)
    simulation_file.clear(path)
    assert SimulatedDriver(1, 8, path).sample().state == "available"


@pytest.mark.parametrize("kind", ["fifo", "directory", "link"])
def test_what_is_no_regular_file_is_refused_at_once(path: Path, kind: str) -> None:
    path.parent.mkdir()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    assert SimulatedDriver(1, 8, path).sample().state == "unknown"


def test_wrong_values_are_usage_errors(path: Path) -> None:
    for call in (
        lambda: simulation_file.set_load(path, -1, 5),
        lambda: simulation_file.set_load(path, 0, 101),
        lambda: simulation_file.set_load(path, 0, float("nan")),
        lambda: simulation_file.set_load(path, 0, None, float("inf")),
        lambda: simulation_file.set_fault(path, 0, "smoke"),
        lambda: SimulatedDriver(-1, 8, path),
        lambda: SimulatedDriver(1, 0, path),
    ):
        with pytest.raises(PraxistError) as caught:
            call()
        assert caught.value.code == "usage"
    assert not path.exists()


def test_writers_at_once_lose_nothing_and_readers_see_whole_files(path: Path) -> None:
    simulation_file.clear(path)
    with ThreadPoolExecutor(8) as pool:
        writers = [pool.submit(simulation_file.set_load, path, gpu, gpu, 1) for gpu in range(40)]
        wait_until(lambda: simulation_file.load(path).devices, "a first device in the file")
        for writer in writers:
            writer.result(10)
    document = json.loads(path.read_text())
    assert sorted(map(int, document["devices"])) == list(range(40))
    assert [p.name for p in path.parent.iterdir() if p.name.startswith(".")] == []
