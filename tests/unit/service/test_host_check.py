"""One reading of the host in a process of its own, and the verdict on each profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.host.default_scope import host_scope
from praxist_zmq.host.paths import HostPaths
from praxist_zmq.host.simulation_file import set_fault
from praxist_zmq.protocol.policy import Profile
from praxist_zmq.service.child_config import SimulatedDevices
from praxist_zmq.service.host_check import judge, read_host

PROFILES = {
    "cpu": Profile(),
    "one": Profile(accelerator="gpu", gpu_count=1, gpu_memory_gb=20),
    "big": Profile(accelerator="gpu", gpu_count=1, gpu_memory_gb=78),
    "three": Profile(accelerator="gpu", gpu_count=3),
}


@pytest.fixture(autouse=True)
def _own_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAXIST_ZMQ_HOST_DIR", str(tmp_path / "host"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "host").mkdir(mode=0o700)


def test_simulated_devices_are_judged_like_real_ones() -> None:
    sample = read_host(SimulatedDevices(gpus=2, memory_gib=80))
    assert sample.simulated
    verdicts = {each.profile: each for each in judge(PROFILES, sample)}
    assert {name: each.can_run for name, each in verdicts.items()} == {
        "cpu": True,
        "one": True,
        "big": False,
        "three": False,
    }
    assert "78 GiB" in (verdicts["big"].reason or "")
    assert "has 2" in (verdicts["three"].reason or "")


def test_a_memory_that_is_not_known_leaves_the_verdict_open() -> None:
    sample = read_host(SimulatedDevices(gpus=2, memory_gib=80))
    first = sample.devices[0].model_copy(update={"memory_total_mib": None})
    devices = (first, sample.devices[1])
    sample = sample.model_copy(update={"devices": devices})
    two = Profile(accelerator="gpu", gpu_count=2, gpu_memory_gb=20)
    known, open_ = judge({"one": PROFILES["one"], "two": two}, sample)
    assert known.can_run is True
    assert (open_.can_run, open_.reason) == (None, "the memory of a device is not known")


def test_this_host_is_read() -> None:
    sample = read_host(None)
    assert not sample.simulated
    assert sample.memory_pct is not None
    assert judge({"cpu": Profile()}, sample)[0].can_run is True


def test_a_driver_that_hangs_leaves_the_verdict_open() -> None:
    set_fault(HostPaths(host_scope()).simulation, 0, "hang")
    sample = read_host(SimulatedDevices(gpus=1, memory_gib=80), driver_s=1.0)
    assert sample.probe_state == "unknown"
    verdicts = {each.profile: each for each in judge(PROFILES, sample)}
    assert verdicts["cpu"].can_run is True
    assert verdicts["one"].can_run is None
    assert "not answered" in (verdicts["one"].reason or "")


def test_a_reading_that_does_not_come_is_an_error() -> None:
    with pytest.raises(PraxistError) as caught:
        read_host(None, driver_s=0, start_s=0.001)
    assert caught.value.code == "start_failed"
