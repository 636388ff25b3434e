"""A real sampler process, started as the supervisor starts it, and its samples."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.host.clock import SystemClock
from praxist_zmq.protocol.codec import decode
from praxist_zmq.protocol.reports import HostSampled
from praxist_zmq.service.sample_link import SampleLink

from .wait import wait_until

ROOT = Path(__file__).parents[2]
SECRET = "0" * 32
CLOCK = SystemClock().mono_ms


class SamplerProcess:
    """A sampler with a pipe for stdin and a link to its samples."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.simulation = directory / "host" / "simulation.json"
        self.samples = SampleLink(str(directory / "samples.sock"), bytes.fromhex(SECRET), CLOCK)
        self._bodies: list[bytes] = []
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
            "secret": SECRET,
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

    @property
    def pid(self) -> int:
        """The sampler's pid."""
        assert self.process is not None
        return self.process.pid

    def next(self) -> HostSampled | None:
        """The next sample in their order, if it has arrived."""
        self._bodies += self.samples.drain()
        if not self._bodies:
            return None
        self.seen.append(decode(HostSampled, self._bodies.pop(0)))
        return self.seen[-1]

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
        self.samples.close()
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait(60)


@pytest.fixture
def sampler() -> Iterator[SamplerProcess]:
    """One that is not started yet."""
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="pz"))
    process = SamplerProcess(directory)
    try:
        yield process
    finally:
        process.finish()
        shutil.rmtree(directory)
