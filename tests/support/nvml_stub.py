"""A scripted `libnvidia-ml.so.1` under the real binding, for the driver, a sampler or a whole run.

    stub = Stub(tmp_path, library)           # the fixtures `nvml_library` and `nvml_stub` do that
    stub.write(StubDevice("GPU-a"), StubDevice("GPU-b", processes=[StubProcess(pid, 4 * GIB)]))
    run.environment.update(stub.environment)
    stub.devices[1].errors["all"] = GPU_IS_LOST
    stub.write()                             # takes effect in the running process

The library reads its script again at every call. See tests/nvml/stub/nvml_stub.c for its words.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "nvml" / "stub" / "nvml_stub.c"
NAME = "libnvidia-ml.so.1"
MIB = 1024**2
GIB = 1024**3

UNINITIALIZED = 1
NOT_SUPPORTED = 3
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
UNKNOWN = 999
NOT_AVAILABLE = -1
"""As a process's memory: the driver does not tell."""


@dataclass
class StubProcess:
    """A process that the driver sees on a device."""

    pid: int
    memory: int = GIB
    """Bytes, or NOT_AVAILABLE."""
    busy: int | None = None
    """Its share in percent, read now at every call; None leaves it out, as the driver does with
    idle ones."""
    stamp: int = 0
    """Of that share, microseconds; 0 is always now."""
    graphics: bool = False


@dataclass
class StubDevice:
    """A device as the library tells it."""

    uuid: str
    memory_total: int = 80 * GIB
    memory_used: int = 0
    reserved: int | None = None
    """Bytes that the driver keeps for itself; None: the library cannot tell them apart."""
    utilization: int = 0
    samples: list[tuple[int, int]] = field(default_factory=list)
    """(stamp, percent); none: one reading of now."""
    processes: list[StubProcess] = field(default_factory=list)
    name: str = "NVIDIA H200"
    mig: bool = False
    errors: dict[str, int] = field(default_factory=dict)
    """NVML's code by call, or for `all`."""
    delays_ms: dict[str, int] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Its part of the script."""
        yield f"uuid {self.uuid}"
        yield f"name {self.name}"
        yield f"memory {self.memory_total} {self.memory_used}"
        if self.reserved is not None:
            yield f"reserved {self.reserved}"
        yield f"utilization {self.utilization}"
        yield f"mig {int(self.mig)} {int(self.mig)}"
        for stamp, percent in self.samples:
            yield f"sample {stamp} {percent}"
        for process in self.processes:
            kind = "graphics" if process.graphics else "compute"
            yield f"{kind} {process.pid} {process.memory}"
            if process.busy is not None:
                yield f"busy {process.pid} {process.stamp} {process.busy}"
        yield from (f"error {call} {code}" for call, code in self.errors.items())
        yield from (f"delay {call} {delay}" for call, delay in self.delays_ms.items())


class Stub:
    """One script, and what a process needs to load the library that reads it."""

    def __init__(self, directory: Path, library: Path) -> None:
        self.script = directory / "nvml.script"
        self.devices: list[StubDevice] = []
        self.order: list[int] | None = None
        """Indices into `devices` as the driver lists them; None: all, in their order."""
        self.errors: dict[str, int] = {}
        """NVML's code by call: `init`, `shutdown`, `count`."""
        self.delays_ms: dict[str, int] = {}
        self.environment = {
            "LD_LIBRARY_PATH": str(library.parent),
            "PRAXIST_ZMQ_NVML_STUB": str(self.script),
        }
        self._writes = 0
        self.write()

    def write(self, *devices: StubDevice) -> None:
        """Put the script in place in one step, with other devices when some are given."""
        if devices:
            self.devices = list(devices)
        order = range(len(self.devices)) if self.order is None else self.order
        lines = ["order " + " ".join(map(str, order))]
        lines += [f"error {call} {code}" for call, code in self.errors.items()]
        lines += [f"delay {call} {delay}" for call, delay in self.delays_ms.items()]
        for number, device in enumerate(self.devices):
            lines += [f"device {number} {line}" for line in device.lines()]
        self._writes += 1
        fresh = self.script.with_suffix(f".{self._writes % 2}")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(self.script)

    def calls(self, name: str) -> int:
        """How often `init` or `shutdown` succeeded."""
        log = self.script.with_name(self.script.name + ".calls")
        return log.read_text().split().count(name) if log.exists() else 0


def build(directory: Path) -> Path:
    """Compile the library into `directory`. Skips the test where there is no C compiler."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("no C compiler: the scripted NVIDIA library cannot be built")
    library = directory / NAME
    words = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, SOURCE]
    subprocess.run(words, check=True, timeout=60, env={"PATH": os.environ["PATH"]})
    return library


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled library, built once."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml_stub(tmp_path: Path, nvml_library: Path) -> Stub:
    """A script without devices yet."""
    return Stub(tmp_path, nvml_library)
