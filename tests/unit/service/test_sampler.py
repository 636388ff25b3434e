"""The sampler as a process: what it publishes, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.host import simulation_file
from praxist_zmq.host.nvml_simulated import simulated_uuid
from praxist_zmq.protocol.codec import decode
from praxist_zmq.protocol.reports import HostSampled
from praxist_zmq.transport.publication import Subscriber
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[3]


class SamplerProcess:
    """A sampler with a pipe for stdin and a subscriber on its samples."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.simulation = directory / "host" / "simulation.json"
        self.subscriber = Subscriber(directory / "samples.sock", [b"host"])
        self.process: subprocess.Popen[bytes] | None = None
        self.seen: list[HostSampled] = []

    def start(self, sim: dict[str, int] | None, **environment: str) -> None:
        """Start it and wait for its readiness message."""
        read, write = os.pipe()
        config: dict[str, Any] = {
            "run_dir": str(self.directory / "run"),
            "run_id": "run",
            "front": "f",
            "events": "e",
            "core": "c",
            "samples": str(self.directory / "samples.sock"),
            "host_dir": str(self.directory / "host"),
            "secret": "0" * 32,
            "ready_fd": write,
            "supervisor": {"boot_id": "b", "pid_namespace": 1, "pid": 1, "start_ticks": 1},
            "sim": sim,
        }
        scheduler = self.directory / "run" / "resource_scheduler" / "log"
        scheduler.mkdir(parents=True, exist_ok=True)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
        with (self.directory / "stderr").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "praxist_zmq.service.sampler"],
                stdin=subprocess.PIPE,
                stderr=log,
                pass_fds=[write],
                cwd=ROOT,
                env={**inherited, **environment},
            )
        os.close(write)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(config).encode() + b"\n")
        self.process.stdin.flush()
        with os.fdopen(read, "rb") as ready:
            line = ready.readline()
        assert b'"ready"' in line, (line, (self.directory / "stderr").read_text())

    def next(self) -> HostSampled | None:
        """The newest sample that has arrived since the last call."""
        for topic, body in self.subscriber.drain():
            assert topic == b"host"
            self.seen.append(decode(HostSampled, body))
            return self.seen[-1]
        return None

    def sample_where(self, condition: Any, what: str) -> HostSampled:
        """Wait for a sample for which `condition` holds."""

        def look() -> HostSampled | None:
            sample = self.next()
            return sample if sample is not None and condition(sample) else None

        found = wait_until(look, what)
        assert found is not None
        return found

    def finish(self) -> None:
        """End whatever is left."""
        self.subscriber.close()
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait(60)


@pytest.fixture
def sampler() -> Iterator[SamplerProcess]:
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="pz"))
    process = SamplerProcess(directory)
    try:
        yield process
    finally:
        process.finish()
        shutil.rmtree(directory)


def test_it_publishes_host_and_simulated_devices(sampler: SamplerProcess) -> None:
    sampler.start({"gpus": 2, "memory_gib": 80})
    first = sampler.sample_where(lambda s: s.cpu_pct is not None, "a sample with CPU")
    assert first.simulated
    assert (first.probe_state, len(first.devices)) == ("available", 2)
    assert first.memory_pct is not None
    simulation_file.set_load(sampler.simulation, 1, 55, 10)
    loaded = sampler.sample_where(lambda s: s.devices[1].utilization_pct == 55, "the load")
    assert loaded.devices[1].memory_used_mib == 10240
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
