"""The driver over the real binding, in a process of its own: a line in, a reading out.

`python -m tests.nvml.driver_process` answers each line on stdin, a time in milliseconds, with one
JSON line: the reading at a clock that stands there. `LD_LIBRARY_PATH` decides which library it
loads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from praxist_zmq.host.device_driver import DriverReading
from praxist_zmq.host.nvml import NvmlDriver
from praxist_zmq.protocol.reports import DeviceSample

ROOT = Path(__file__).resolve().parents[2]


class StillClock:
    """A fake clock that stands where the asker put it."""

    def __init__(self) -> None:
        self.now = 0

    def wall_ms(self) -> int:
        return self.now

    def mono_ms(self) -> int:
        return self.now


class DriverProcess:
    """Asks the driver in the other process. Every look is a second after the one before."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.nvml.driver_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
        self.now_ms = 0

    @property
    def pid(self) -> int:
        """The process that holds the driver."""
        return self._process.pid

    def look(self, after_ms: int = 1_000) -> DriverReading:
        """One reading, `after_ms` after the last one."""
        self.now_ms += after_ms
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{self.now_ms}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        devices = tuple(map(DeviceSample.model_validate_json, answer.pop("devices")))
        return DriverReading(devices=devices, **answer)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def main() -> None:
    """Answer until stdin ends."""
    clock = StillClock()
    driver = NvmlDriver(clock)
    for line in sys.stdin:
        clock.now = int(line)
        reading = driver.sample()
        answer: dict[str, Any] = {
            "state": reading.state,
            "reason": reading.reason,
            "exhausted": reading.exhausted,
            "devices": [device.model_dump_json() for device in reading.devices],
        }
        print(json.dumps(answer), flush=True)
    driver.close()


if __name__ == "__main__":
    main()
