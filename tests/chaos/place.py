"""Where a round of chaos plays: one host scope with three devices, and two runs that share it.

The second run has a small disk of its own, and lives now on the host and now in a PID namespace
as a container has one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.run import Run, send
from tests.support.wait import wait_until

DEVICES = 3
DEVICE_GIB = 80
DISK = "size=32m"


@dataclass(frozen=True, slots=True)
class Demand:
    """What an experiment of one profile takes of each of its devices."""

    devices: int
    memory_gib: float
    utilization_pct: float
    alone: bool = False


DEMANDS: Mapping[str, Demand] = {
    "cpu": Demand(0, 0, 0),
    "gpu": Demand(1, DEVICE_GIB, 100, alone=True),
    "third": Demand(1, 25, 33),
    "half": Demand(1, 36, 50),
    "pair": Demand(2, 20, 40),
}
"""By profile; `cpu` and `gpu` are in the contract of every run of the tests."""


def _declared() -> list[str]:
    """The profiles that the contract has besides `cpu` and `gpu`."""
    return [
        f"  {name}: {{accelerator: gpu, gpu_count: {d.devices}, gpu_memory_gb: {d.memory_gib}, "
        f"gpu_utilization_pct: {d.utilization_pct}, pressure_domains: []}}"
        for name, d in DEMANDS.items()
        if name not in ("cpu", "gpu")
    ]


@dataclass
class Box:
    """A PID namespace with its own init, which never reaps, as many containers have it."""

    process: subprocess.Popen[bytes]

    @property
    def init(self) -> int | None:
        """Its first process, as the host sees it; None when the namespace is not there yet, or
        gone."""
        try:
            line = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        except FileNotFoundError:
            return None
        return int(line.split()[0]) if line.split() else None

    @property
    def gone(self) -> bool:
        """Whether the namespace has ended."""
        return self.process.poll() is not None

    def destroy(self) -> int:
        """Kill its init, and all that is in it with that. Gives the boot time just before: until
        then everything in it lived for certain."""
        wait_until(lambda: self.gone or self.init is not None, "the namespace to have an init")
        alive_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        init = self.init
        if init is not None:
            send(init, signal.SIGKILL)
        self.process.wait(timeout=30)
        return alive_ns


@dataclass
class Place:
    """Two runs of one host scope, and what was done to them that the judge must know."""

    base: Path
    runs: list[Run]
    small_disk: Path | None
    box: Box | None = None
    lost: dict[str, set[str]] = field(default_factory=dict)
    """By run: attempts whose shim or namespace was destroyed, so that nobody knows their end."""
    ends: dict[tuple[str, str], int] = field(default_factory=dict)
    """(run, attempt) to the boot time until which it lived in its namespace for certain."""

    def open_attempts(self, run: Run) -> set[str]:
        """Attempts that began and have not said that they end."""
        started = {words[1] for words in run.read_lines("start")}
        return started - {words[1] for words in run.read_lines("end")}

    def lose(self, run: Run, attempts: set[str]) -> None:
        """Nobody can know how these end."""
        self.lost.setdefault(run.dir.name, set()).update(attempts)

    def enter_box(self, run: Run) -> None:
        """Start the run's scheduler in a new namespace."""
        words = run.words("up", "--detach")
        log = self.base / "box.log"
        with log.open("ab") as stream:
            self.box = Box(
                subprocess.Popen(
                    ["unshare", "-pf", "--mount-proc", "--kill-child",
                     "sh", "-c", '"$@"; exec sleep 900', "sh", *words],
                    stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                    env=run.environment, cwd=run.dir.parent,
                )
            )  # fmt: skip

    def leave_box(self, run: Run) -> None:
        """The namespace dies with all that is in it, the experiments too."""
        if self.box is None:
            return
        box, self.box = self.box, None
        inside = self._inside(run, box)
        alive_ns = box.destroy()
        still_open = inside & self.open_attempts(run)
        self.lose(run, inside)
        for attempt in still_open:
            self.ends.setdefault((run.dir.name, attempt), alive_ns)

    def _inside(self, run: Run, box: Box) -> set[str]:
        """Attempts that may have a shim in the namespace: all that the run has a directory of."""
        return set() if box.gone else {entry.name for entry in run.paths.attempts.iterdir()}


@contextlib.contextmanager
def fresh_place(seed: int, *, keep: bool) -> Iterator[Place]:
    """Two runs that are up. Everything is ended and removed; with `keep`, the files stay where
    something failed."""
    base = Path(tempfile.mkdtemp(prefix=f"pz-chaos-{seed}-", dir="/tmp"))
    saved = dict(os.environ)
    for variable in [v for v in os.environ if v.startswith("PRAXIST_")]:
        if variable != "PRAXIST_ZMQ_VENV":
            del os.environ[variable]
    host = base / "h"
    host.mkdir(mode=0o700)
    os.environ.update(PRAXIST_ZMQ_RUNTIME_DIR=str(base), PRAXIST_ZMQ_HOST_DIR=str(host))
    small = _mount(base / "two" / "two")
    sim = f"gpus={DEVICES},memory={DEVICE_GIB}"
    runs = [
        Run(base / name / name, slots=8, retries=2, sim=sim, settings=_declared())
        for name in ("one", "two")
    ]
    place = Place(base, runs, small)
    try:
        for run in runs:
            run.up()
        yield place
        keep = False
    finally:
        _end(place)
        if keep:
            print(f"kept: {base}")
        else:
            _unmount(place.small_disk)
            shutil.rmtree(base, ignore_errors=True)
        os.environ.clear()
        os.environ.update(saved)


def _end(place: Place) -> None:
    """No process of the round is left."""
    if place.box is not None:
        place.box.destroy()
        place.box = None
    for run in place.runs:
        for name, pid in run.processes().items():
            send(pid, signal.SIGCONT)
            if name == "registry":
                send(pid, signal.SIGTERM)
    for run in place.runs:
        run.close()


def _mount(directory: Path) -> Path | None:
    """A small file system there; None where mounting is not permitted."""
    directory.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(directory)],
        capture_output=True,
        check=False,
    )
    return directory if done.returncode == 0 else None


def _unmount(directory: Path | None) -> None:
    if directory is not None:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def can_box() -> bool:
    """Whether PID namespaces may be made here."""
    done = subprocess.run(
        ["unshare", "-pf", "--mount-proc", "true"], capture_output=True, check=False
    )
    return done.returncode == 0


def until_box_serves(place: Place, run: Run) -> None:
    """Until the scheduler in the namespace answers, or the namespace is gone."""
    box = place.box
    assert box is not None
    wait_until(
        lambda: box.gone or run.answers(timeout_s=1.0),
        f"the scheduler in the namespace to answer\n{run.service_logs()}",
    )
