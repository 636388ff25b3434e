"""One user, one host scope, in whatever shell: the default place, and those of earlier releases.

The default place is a directory of /tmp, so each test has /tmp, /run and the network's names to
itself: namespaces of its own, which only root can make.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.run import CONTRACT, ROOT
from tests.support.wait import wait_until

UID = os.getuid()
DEFAULT = Path(f"/tmp/praxist-zmq-{UID}/host")
EARLIER = Path(f"/run/user/{UID}/praxist-zmq/host")


class Host:
    """A host of its own: mounts, network names and processes."""

    def __init__(self) -> None:
        made = 'mount -t tmpfs t /tmp && mount -t tmpfs r /run && echo ready && exec "$@"'
        apart = ["unshare", "-mnp", "--fork", "--kill-child", "--mount-proc"]
        first = [sys.executable, "-c", "import signal; signal.pause()"]
        self._init = subprocess.Popen(
            [*apart, "sh", "-c", made, "sh", *first],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._init.stdout is not None
        assert self._init.stdout.readline() == "ready\n"
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children").read_text()
        self._inside = children.split()[0]
        self.call(["sh", "-c", f"umask 077 && mkdir -p {EARLIER.parents[1]} /tmp/x"])
        contract = CONTRACT.format(slots=2, retries=0)
        self.call(["sh", "-c", 'printf %s "$1" > /tmp/c.yaml', "sh", contract])

    def call(
        self, words: list[str], *, other_names: bool = False, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there, with nothing of ours in its environment."""
        apart = ["unshare", "-n"] if other_names else []
        return subprocess.run(
            ["nsenter", "-t", self._inside, "-m", "-n", "-p", *apart, *words],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/", **environment},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def cli(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """One command of the user's."""
        return self.call([sys.executable, "-m", "praxist_zmq", *words], **environment)

    def up(self, name: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`up` of a run with one simulated device."""
        words = ["up", "--run-dir", f"/tmp/{name}", "--detach", "--sim", "gpus=1,memory=80"]
        return self.cli(*words, "--config", "/tmp/c.yaml", **environment)

    def seen(self, **environment: str) -> dict[str, Any]:
        """What `host` tells."""
        told = self.cli("host", "--json", **environment)
        assert told.returncode == 0, told.stderr
        content: dict[str, Any] = json.loads(told.stdout)
        return content

    def registry(self, place: Path, *, other_names: bool = False) -> int:
        """Start a registry as an earlier release's run has left it; its pid there."""
        self.call(["sh", "-c", f"umask 077 && mkdir -p {place}"])
        module = f"{sys.executable} -m praxist_zmq.service.registry {place}"
        words = ["sh", "-c", f"exec {module} --detach >/tmp/registry.log 2>&1"]
        started = self.call(words, other_names=other_names, PRAXIST_ZMQ_REGISTRY_IDLE_S="600")
        assert started.returncode == 0, started.stderr
        wait_until(lambda: self.info(place) is not None, "the registry serves")
        info = self.info(place)
        assert info is not None
        return int(info["pid"])

    def info(self, place: Path) -> dict[str, Any] | None:
        """What a registry says of itself there; None where none does."""
        told = self.call(["cat", str(place / "registry.json")])
        content: dict[str, Any] | None = json.loads(told.stdout) if told.stdout else None
        return content

    def close(self) -> None:
        """The kernel ends all its processes with the first one."""
        self._init.kill()
        self._init.communicate()


@pytest.fixture
def host() -> Iterator[Host]:
    if UID != 0 or not shutil.which("nsenter"):
        pytest.skip("needs root and nsenter(1): a /tmp and network names of its own")
    one = Host()
    yield one
    one.close()


def test_every_shell_of_a_user_means_the_same_scope(host: Host) -> None:
    login = {"XDG_RUNTIME_DIR": "/tmp/x"}
    assert host.up("a", **login).returncode == 0
    other = host.up("b", HOME="/nonexistent")
    assert other.returncode == 0, other.stderr
    for shell in (login, {}):
        assert {run["run_id"] for run in host.seen(**shell)["runs"]} == {"a", "b"}
    for name in "ab":
        sent = host.cli("submit", "--run-dir", f"/tmp/{name}", "--peer", "p", "--tag", "t",
                        "--profile", "gpu", "--", "sleep", "600")  # fmt: skip
        assert sent.returncode == 0, sent.stderr
    wait_until(
        lambda: [run["claims"] for run in host.seen()["runs"]].count(1) == 1, "one has the device"
    )
    assert host.cli("stop", "--all", "--yes", "--grace", "0s").returncode == 0


def test_where_a_registry_of_an_earlier_release_serves_every_shell_goes_on(host: Host) -> None:
    old = host.registry(EARLIER)
    assert host.up("a").returncode == 0
    assert [run["run_id"] for run in host.seen(XDG_RUNTIME_DIR="/tmp/x")["runs"]] == ["a"]
    assert host.info(DEFAULT) is None
    second = host.call([sys.executable, "-m", "praxist_zmq.service.registry", str(DEFAULT)])
    assert second.returncode == 69, "none can start beside it, whoever starts it"
    assert f"process {old} serves this user's runs in {EARLIER}" in second.stderr


def test_a_start_beside_two_registries_of_the_user_is_refused(host: Host) -> None:
    host.registry(DEFAULT)
    old = host.registry(Path("/tmp/x/praxist-zmq/host"), other_names=True)
    refused = host.up("a", XDG_RUNTIME_DIR="/tmp/x")
    assert refused.returncode == 69, refused
    words = " ".join(refused.stderr.split())
    assert f"process {old} serves this user's runs in /tmp/x/praxist-zmq/host" in words
    assert "PRAXIST_ZMQ_HOST_DIR=/tmp/x/praxist-zmq/host" in words
    named = host.up("a", XDG_RUNTIME_DIR="/tmp/x", PRAXIST_ZMQ_HOST_DIR=str(DEFAULT))
    assert named.returncode == 0, "named, it is meant"
