"""The sampler as a process: what it publishes, and how it ends."""

from __future__ import annotations

import signal

import pytest

from praxist_zmq.host import simulation_file
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.host.device_driver import DriverReading
from praxist_zmq.host.nvml_simulated import simulated_uuid
from praxist_zmq.host.pressure import PressureReader
from praxist_zmq.host.visible_devices import VisibleDevices
from praxist_zmq.protocol.reports import HostSampled
from praxist_zmq.service.device_probe import DeviceProbe
from praxist_zmq.service.sample_link import SampleLink
from praxist_zmq.service.sampler import (
    INTERVAL_MS,
    NEAREST_MS,
    QUICK_SAMPLES,
    Sampler,
    serve,
)
from tests.support.sampler_process import CLOCK, SECRET, SamplerProcess, sampler
from tests.support.wait import wait_until

__all__ = ["sampler"]


def test_it_publishes_host_and_simulated_devices(sampler: SamplerProcess) -> None:
    sampler.start({"gpus": 2, "memory_gib": 80})
    first = sampler.sample_where(lambda s: s.cpu_pct is not None, "a sample with CPU")
    assert first.simulated
    assert (first.probe_state, len(first.devices)) == ("available", 2)
    assert first.memory_pct is not None
    simulation_file.set_load(sampler.simulation, 1, 55, 10)
    loaded = sampler.sample_where(lambda s: s.devices[1].utilization_pct == 55, "the load")
    assert loaded.devices[1].memory_used_mib == 10240
    assert loaded.devices[1].processes == ()  # seen by nobody: what is in use is a stranger's
    read_at = loaded.devices[1].read_at_mono_ms
    assert read_at is not None
    assert 0 <= loaded.sampled_at_mono_ms - read_at < 5_000
    assert loaded.cpus is not None
    assert loaded.sampled_at_mono_ms > first.sampled_at_mono_ms


def test_a_mask_limits_what_is_published(sampler: SamplerProcess) -> None:
    sampler.start({"gpus": 2, "memory_gib": 80}, CUDA_VISIBLE_DEVICES=simulated_uuid(1))
    sample = sampler.sample_where(lambda s: True, "a sample")
    assert [device.uuid for device in sample.devices] == [simulated_uuid(1)]


def test_without_simulation_and_driver_it_tells_an_empty_inventory(
    sampler: SamplerProcess,
) -> None:
    sampler.start(None)
    sample = sampler.sample_where(lambda s: True, "a sample")
    assert not sample.simulated
    if sample.probe_state == "unavailable":
        assert sample.probe_reason
        assert sample.devices == ()


@pytest.mark.parametrize("end", ["eof", "term"])
def test_a_hanging_driver_stops_neither_samples_nor_the_end(
    sampler: SamplerProcess, end: str
) -> None:
    sampler.start({"gpus": 1, "memory_gib": 8})
    sampler.sample_where(lambda s: s.probe_state == "available", "a healthy device")
    simulation_file.set_fault(sampler.simulation, 0, "hang")
    late = sampler.sample_where(lambda s: s.probe_state == "unknown", "the late driver")
    assert "has not answered" in (late.probe_reason or "")
    assert late.memory_pct is not None
    process = sampler.process
    assert process is not None
    assert process.stdin is not None
    if end == "eof":
        process.stdin.close()
    else:
        process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert not (sampler.directory / "samples.sock").exists()


def until_steady(sampler: SamplerProcess) -> None:
    """Past the quick samples at its start."""
    sampler.sample_where(lambda s: len(sampler.seen) > QUICK_SAMPLES, "the steady pace")


def test_a_sample_comes_when_it_is_asked_for(sampler: SamplerProcess) -> None:
    asking = SampleLink(str(sampler.directory / "samples.sock"), bytes.fromhex(SECRET), CLOCK)

    def asked() -> bool:
        asking.drain()
        return asking.ask()

    try:
        assert not asked()  # nobody is there
        sampler.start({"gpus": 1, "memory_gib": 8})
        wait_until(asked, "the link to the sampler")
        until_steady(sampler)
        begun = sampler.seen[-1].sampled_at_mono_ms
        for _ in range(6):
            wait_until(asked, "room for a request")
            for _ in range(50):
                asking.ask()
            sampler.sample_where(lambda s: True, "the sample")
        passed = sampler.seen[-1].sampled_at_mono_ms - begun
        # A burst of requests is one, and no two samples come within NEAREST_MS.
        assert 3 * NEAREST_MS < passed < 5 * INTERVAL_MS
    finally:
        asking.close()


class FailingDriver:
    """A fake driver that has failed for so long that only a fresh process may help."""

    name = "failing"
    simulated = False

    def sample(self) -> DriverReading:
        return DriverReading("unknown", "a mismatch", exhausted=True)

    def close(self) -> None:
        """Nothing is held."""


def test_it_ends_for_a_fresh_process_once_it_has_told_why() -> None:
    clock = SystemClock()
    probe, pressure = DeviceProbe(FailingDriver(), clock), PressureReader()
    try:
        sampler = Sampler(pressure, probe, VisibleDevices(None, False), clock)
        told: list[HostSampled] = []
        serve(sampler, told.append, lambda milliseconds: False)
        assert [(sample.probe_state, sample.probe_reason) for sample in told] == [
            ("unknown", "a mismatch")
        ]
    finally:
        probe.close(5)
        pressure.close()
