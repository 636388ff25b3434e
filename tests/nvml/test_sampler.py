"""A real sampler process on the scripted library: a hang, a lost card, the end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from praxist_zmq.protocol.reports import HostSampled
from tests.support import nvml_stub as nvml
from tests.support.nvml_stub import GIB, Stub, StubDevice, StubProcess
from tests.support.sampler_process import SamplerProcess, sampler

__all__ = ["sampler"]


def healthy(sample: HostSampled) -> bool:
    return sample.probe_state == "available" and {d.state for d in sample.devices} == {"available"}


@pytest.fixture
def devices(nvml_stub: Stub, sampler: SamplerProcess) -> list[StubDevice]:
    """Two devices that a running sampler has seen healthy."""
    found = [StubDevice("GPU-a", utilization=30, memory_used=GIB), StubDevice("GPU-b")]
    nvml_stub.write(*found)
    sampler.start(None, **nvml_stub.environment)
    sampler.sample_where(healthy, "two healthy devices")
    return found


def test_a_call_that_hangs_is_told_with_seconds_and_recovers_by_itself(
    nvml_stub: Stub, sampler: SamplerProcess, devices: list[StubDevice]
) -> None:
    pid = sampler.pid
    devices[1].delays_ms["memory"] = 60_000
    nvml_stub.write()
    late = sampler.sample_where(lambda s: s.probe_state == "unknown", "the late driver")
    assert "the driver has not answered for" in (late.probe_reason or "")
    assert [device.state for device in late.devices] == ["unknown", "unknown"]
    assert [device.memory_used_mib for device in late.devices] == [None, None]
    assert late.memory_pct is not None
    more = sampler.sample_where(lambda s: s.probe_state == "unknown", "the next sample")
    assert more.sampled_at_mono_ms > late.sampled_at_mono_ms
    threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    sampler.sample_where(lambda s: s.probe_state == "unknown", "another sample")
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == threads  # none more a question
    devices[1].delays_ms.clear()
    devices[0].utilization = 44
    nvml_stub.write()
    sampler.sample_where(lambda s: healthy(s) and s.devices[0].utilization_pct == 44, "recovery")
    assert sampler.process is not None
    assert sampler.process.poll() is None
    assert nvml_stub.calls("init") == 1


@pytest.mark.parametrize("end", ["eof", "term"])
def test_it_ends_in_order_while_a_call_hangs(
    nvml_stub: Stub, sampler: SamplerProcess, devices: list[StubDevice], end: str
) -> None:
    devices[0].delays_ms["all"] = 60_000
    nvml_stub.write()
    sampler.sample_where(lambda s: s.probe_state == "unknown", "the late driver")
    process = sampler.process
    assert process is not None
    assert process.stdin is not None
    if end == "eof":
        process.stdin.close()
    else:
        process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert nvml_stub.calls("shutdown") == 0  # the hanging library was left alone
    assert not (sampler.directory / "samples.sock").exists()


def test_an_orderly_end_shuts_the_library_down(
    nvml_stub: Stub, sampler: SamplerProcess, devices: list[StubDevice]
) -> None:
    process = sampler.process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert nvml_stub.calls("shutdown") == 1


def test_a_slow_driver_is_not_a_hanging_one(
    nvml_stub: Stub, sampler: SamplerProcess, devices: list[StubDevice]
) -> None:
    devices[0].delays_ms["memory"] = 400
    devices[0].utilization = 61
    nvml_stub.write()
    told = sampler.sample_where(lambda s: s.devices[0].utilization_pct == 61, "a slow answer")
    assert healthy(told)
    read_at = told.devices[0].read_at_mono_ms
    assert read_at is not None
    assert told.sampled_at_mono_ms - read_at >= 400  # its age is told, not hidden


def test_faults_while_it_runs(
    nvml_stub: Stub, sampler: SamplerProcess, devices: list[StubDevice]
) -> None:
    devices[1].errors["all"] = nvml.GPU_IS_LOST
    devices[0].processes = [StubProcess(os.getpid(), GIB, busy=12)]
    nvml_stub.write()
    told = sampler.sample_where(lambda s: s.devices[1].state == "lost", "the lost device")
    assert (told.probe_state, told.devices[0].state) == ("available", "available")
    busy = sampler.sample_where(
        lambda s: s.devices[0].processes and s.devices[0].processes[0].utilization_pct == 12,
        "the busy process",
    )
    assert busy.devices[0].processes is not None
    assert busy.devices[0].processes[0].pid == os.getpid()
    nvml_stub.errors["count"] = nvml.UNINITIALIZED
    nvml_stub.write()
    sampler.sample_where(lambda s: s.probe_state == "unknown", "the driver's reload")
    nvml_stub.errors.clear()
    devices[1].errors.clear()
    nvml_stub.write()
    sampler.sample_where(healthy, "two healthy devices again")
    assert nvml_stub.calls("init") == 2
