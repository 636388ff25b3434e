"""Two users, each with a run of the installed command, in one shared host scope and in two."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.host.paths import HostPaths
from tests.support.guest import (
    CHECKOUT,
    as_user,
    cannot_be_another_user,
    environment_of_others,
    interpreter_of_others,
)
from tests.support.nvml_stub import Stub, StubDevice, nvml_library
from tests.support.registry_process import RegistryProcess

__all__ = ["nvml_library"]

GUEST = 64_001
CONTRACT = """\
compute_budget:
  resource_scheduler:
    mode: central
    max_concurrent_experiments: 2
    default_profile: gpu
    profiles:
      gpu: {accelerator: gpu, gpu_count: 1, pressure_domains: []}
"""


class User:
    """A user with a runtime directory and a run of their own."""

    def __init__(self, uid: int, base: Path, scope: Path) -> None:
        self.uid = uid
        self.home = base / f"u{uid}"
        self.home.mkdir(mode=0o700)
        self.run_dir = self.home / "run"
        self.run_dir.mkdir()
        contract = self.home / "task.yaml"
        contract.write_text(CONTRACT)
        self.contract = str(contract)
        for path in (self.home, self.run_dir, contract):
            os.chown(path, uid, uid)
        self.environment = {
            **environment_of_others(),
            "PRAXIST_ZMQ_RUNTIME_DIR": str(self.home),
            "HOME": str(self.home),
            "PRAXIST_ZMQ_HOST_DIR": str(scope),
        }

    def cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command of this user's, which succeeds."""
        done = self.attempt(*words)
        assert done.returncode == 0, done.stderr
        return done

    def submit(self, tag: str, script: str) -> str:
        """Submit a shell script that takes a device; the job's name."""
        words = ("--peer", "gen1_peer1", "--tag", tag, "--profile", "gpu", "--", "/bin/sh", "-c")
        return str(json.loads(self.cli("--json", "submit", *words, script).stdout)["job"])

    def attempt(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command of this user's."""
        return subprocess.run(
            [
                *as_user(self.uid),
                interpreter_of_others() or "",
                "-m",
                "praxist_zmq",
                "--run-dir",
                str(self.run_dir),
                *words,
            ],
            cwd=CHECKOUT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def scope() -> Iterator[Path]:
    reason = cannot_be_another_user()
    if reason is not None:
        pytest.skip(reason)
    directory = Path(tempfile.mkdtemp(prefix="pz-two-", dir="/tmp"))
    directory.chmod(0o711)
    (directory / "host").mkdir()
    (directory / "host").chmod(0o711)
    yield directory / "host"
    shutil.rmtree(directory)


@pytest.fixture
def users(scope: Path) -> Iterator[tuple[User, User]]:
    pair = (User(0, scope.parent, scope), User(GUEST, scope.parent, scope))
    yield pair
    for user in pair:
        user.attempt("stop", "--yes", "--grace", "1s")


@pytest.fixture
def registry(scope: Path) -> Iterator[RegistryProcess]:
    process = RegistryProcess(HostPaths(scope))
    assert "ready" in process.start()
    yield process
    process.kill()


def test_two_users_share_a_device_by_the_rules(
    registry: RegistryProcess, users: tuple[User, User]
) -> None:
    for user in users:
        user.cli("up", "--detach", "--config", user.contract, "--sim", "gpus=1,memory=80")
    owner, guest = users
    gate = guest.home / "go"
    words = ("--peer", "gen1_peer1", "--tag", "t", "--profile", "gpu")
    wait = f"until [ -e {gate} ]; do sleep 0.05; done"
    held = json.loads(guest.cli("--json", "submit", *words, "--", "/bin/sh", "-c", wait).stdout)
    waits = json.loads(owner.cli("--json", "submit", *words, "--", "true").stdout)
    assert (held["state"], waits["state"]) == ("queued", "queued")
    _until_held(owner, "run", GUEST)
    runs: list[dict[str, Any]] = json.loads(owner.cli("--json", "host").stdout)["runs"]
    shown = {run["uid"]: run for run in runs}
    assert shown[GUEST]["run_dir"] is None
    assert shown[0]["run_dir"] == str(owner.run_dir)
    assert shown[0]["claims"] == 0
    gate.touch()
    owner.cli("wait", waits["job"], "--timeout", "30")
    guest.cli("wait", held["job"], "--timeout", "30")


def _until_held(user: User, run_id: str, uid: int) -> None:
    """Each look is a command, which takes its time."""
    for _ in range(40):
        for run in json.loads(user.cli("--json", "host").stdout)["runs"]:
            if (run["run_id"], run["uid"], run["claims"]) == (run_id, uid, 1):
                return
    raise AssertionError(f"{run_id} of user {uid} never held anything")


@pytest.fixture
def apart(scope: Path, nvml_library: Path) -> Iterator[tuple[User, User]]:
    """Two users, each with a host scope of their own, on one scripted device."""
    place = scope.parent / "driver"
    place.mkdir()
    stub = Stub(place, Path(shutil.copy(nvml_library, place)))
    stub.write(StubDevice(f"GPU-{uuid.uuid4()}"))
    place.chmod(0o777)
    pair = (User(0, scope.parent, scope), User(GUEST, scope.parent, scope))
    for user in pair:
        own = user.home / "host"
        own.mkdir(mode=0o700)
        os.chown(own, user.uid, user.uid)
        user.environment.update(stub.environment, PRAXIST_ZMQ_HOST_DIR=str(own))
    yield pair
    for user in pair:
        user.attempt("stop", "--yes", "--grace", "1s")


def test_a_device_is_never_in_the_scopes_of_two_users_at_once(apart: tuple[User, User]) -> None:
    """By the clocks of the experiments themselves."""
    for user in apart:
        user.cli("up", "--detach", "--config", user.contract)
    owner, guest = apart
    gate = owner.home / "go"
    clock = "cut -d' ' -f1 /proc/uptime"
    first = f"{clock}; until [ -e {gate} ]; do sleep 0.05; done; {clock}"
    jobs = [(owner, owner.submit("first", first))]
    _until_held(owner, "run", 0)
    later = f"{clock}; sleep 0.2; {clock}"
    jobs += [(user, user.submit(f"t{number}", later)) for number in range(3) for user in apart]
    assert "held by another host scope" in " ".join(guest.cli("explain", jobs[2][1]).stdout.split())
    gate.touch()
    spans = []
    for user, job in jobs:
        user.cli("wait", job, "--timeout", "60")
        began, ended = user.cli("logs", job).stdout.split()
        spans.append((float(began), float(ended), user.uid))
    spans.sort()
    assert {uid for _, _, uid in spans} == {0, GUEST}
    for (_, ended, _), (began, _, _) in pairwise(spans):
        assert ended <= began, spans
