"""A host that the last release serves, taken over by this one: its own code, its own processes.

The code comes from this repository's history. Where that is not there (an archive, a shallow
clone), the test says so and is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.host.identity import read_stat
from praxist_zmq.host.paths import HostPaths
from praxist_zmq.protocol.claims import CLAIMS_VERSION
from tests.support.wait import wait_until

LAST_RELEASE = "a61edfc"
CHECKOUT = Path(__file__).parents[2]
CONTRACT = """\
mode: central
max_concurrent_experiments: 3
min_concurrent_experiments: 3
initial_concurrent_experiments: 3
profiles:
  gpu: {accelerator: gpu, pressure_domains: []}
  cpu: {accelerator: cpu, pressure_domains: []}
default_profile: cpu
"""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last release's package, in a directory of its own."""
    place = tmp_path_factory.mktemp("released")
    git = ["git", "-C", str(CHECKOUT), "archive", "--format=tar", LAST_RELEASE, "praxist_zmq"]
    try:
        archive = subprocess.run(git, capture_output=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("git is not installed, so the last release's code cannot be had")
    if archive.returncode:
        pytest.skip(f"the last release, commit {LAST_RELEASE}, is not in this repository's history")
    subprocess.run(["tar", "-x", "-C", str(place)], input=archive.stdout, check=True, timeout=60)
    return place


class Command:
    """`praxist-zmq` of one release, for the runs below a directory."""

    def __init__(self, package: Path, work: Path) -> None:
        self._work = work
        self._environment = {**os.environ, "PYTHONPATH": str(package)}

    def __call__(self, *words: str, status: int = 0) -> str:
        """What it prints."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "praxist_zmq", *words],
            cwd=self._work,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done.stdout

    def json(self, *words: str, status: int = 0) -> Any:
        """What it prints, understood."""
        return json.loads(self(*words, "--json", status=status))

    def up(self, run: str) -> None:
        """Start a run's scheduler."""
        simulated = ("--sim", "gpus=2,memory=80")
        self("up", "--run-dir", run, "--detach", "--config", "contract.yaml", *simulated)

    def submit(self, run: str, tag: str, script: str, profile: str) -> None:
        """Submit a job that notes that it ran."""
        noted = f"echo {tag} >> ran; {script}"
        words = ("--peer", "p", "--tag", tag, "--profile", profile)
        self("submit", "-q", "--run-dir", run, *words, "--", "sh", "-c", noted)

    def states(self, run: str) -> dict[str, tuple[str, int | None]]:
        """Tag -> state and exit code, of all jobs."""
        jobs = self.json("queue", "-a", "--run-dir", run)["jobs"]
        return {job["tag"]: (job["state"], job["exit_code"]) for job in jobs}


@pytest.fixture
def work(tmp_path: Path, host_directory: Path) -> Iterator[Path]:
    """A directory for two runs; whatever they leave is ended by this release."""
    (tmp_path / "contract.yaml").write_text(CONTRACT)
    yield tmp_path
    command = Command(CHECKOUT, tmp_path)
    for run in ("a", "b"):
        if (tmp_path / run).exists():
            command("stop", "--run-dir", run, "--yes")
    info = HostPaths(host_directory).registry_info
    if info.exists():
        pid = json.loads(info.read_text())["pid"]
        wait_until(lambda: ended(pid), "the registry to end, unused")


def ended(pid: int) -> bool:
    """Also while nobody has reaped it."""
    stat = read_stat(pid)
    return stat is None or stat.state in "ZX"


def registry(host: HostPaths) -> tuple[int, int]:
    """(process, version) of the registry that serves."""
    info = json.loads(host.registry_info.read_text())
    return info["pid"], info.get("version", 1)


UNTIL_OPEN = "while [ ! -e gate ]; do sleep 0.1; done"


def test_this_release_takes_a_run_over_that_the_last_one_left(
    released: Path, work: Path, host_directory: Path
) -> None:
    host = HostPaths(host_directory)
    old, new = Command(released, work), Command(CHECKOUT, work)
    for run in ("a", "b"):
        old.up(run)
    old.submit("a", "live", f"{UNTIL_OPEN}; exit 7", "gpu")
    old.submit("b", "other", f"{UNTIL_OPEN}; exit 0", "gpu")
    wait_until(
        lambda: (work / "ran").exists() and len((work / "ran").read_text().split()) == 2, "both"
    )
    old.submit("a", "queued-1", "exit 3", "gpu")
    old.submit("a", "queued-2", "exit 0", "gpu")
    assert old.states("a")["queued-1"][0] == "queued"
    before, version = registry(host)
    assert version == 1
    old("down", "--run-dir", "a")

    new.up("a")
    after, version = registry(host)
    assert (after != before, version) == (True, CLAIMS_VERSION), "the old one was replaced"
    assert ended(before)
    assert new.json("status", "--run-dir", "a")["health"] == "healthy"
    # What the old registry knew is known, and the old broker of the other run speaks to the new.
    wait_until(lambda: len(new.json("host")["runs"]) == 2, "the other run to register again")
    rows = new.json("host")["allocations"]
    assert len({row["device_uuids"][0] for row in rows}) == len(rows) == 2
    assert new.states("a")["queued-1"][0] == "queued"
    old.submit("b", "cpu", "exit 0", "cpu")
    wait_until(lambda: old.states("b")["cpu"][0] == "completed", "a job of the old scheduler")

    (work / "gate").touch()
    done = {"live": ("failed", 7), "queued-1": ("failed", 3), "queued-2": ("completed", 0)}
    wait_until(lambda: new.states("a") == done, "all jobs to end as their programs did")
    wait_until(lambda: old.states("b")["other"] == ("completed", 0), "the other run's job")
    ran = (work / "ran").read_text().split()
    assert sorted(ran) == ["cpu", "live", "other", "queued-1", "queued-2"], "each ran once"
    old("down", "--run-dir", "b")
    new.up("b")
    assert new.states("b")["other"] == ("completed", 0)
    for run in ("a", "b"):
        new("down", "--run-dir", run)
        new("ledger", "verify", "--run-dir", run)
