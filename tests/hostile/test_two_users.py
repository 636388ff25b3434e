"""Two users, each with a run of the installed command, in one shared host scope."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
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
from tests.support.registry_process import RegistryProcess

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
