"""Facts about foreign pid namespaces and about the lock, from real ones."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from praxist_zmq.core.proof import judge
from praxist_zmq.host.attempt_files import AttemptFiles
from praxist_zmq.host.identity import boot_id, own_namespace, read_stat
from praxist_zmq.host.lineage import FIRST_PID_NAMESPACE
from praxist_zmq.host.paths import RunPaths
from praxist_zmq.host.remains import Namespaces, lock_of, sighting
from praxist_zmq.protocol.process import ProcessIdentity
from tests.support.namespaces import needs_namespaces
from tests.support.wait import wait_until

needs_first = pytest.mark.skipif(
    own_namespace() != FIRST_PID_NAMESPACE, reason="not in the first pid namespace"
)


class Container:
    """A pid namespace of its own, for as long as its first process lives."""

    def __init__(self, *wrapped: str) -> None:
        words = ["unshare", "-pf", "--kill-child", *wrapped]
        self._popen = subprocess.Popen([*words, "sleep", "600"])
        self.first = 0
        while not self.first:
            below = Path(f"/proc/{self._popen.pid}/task/{self._popen.pid}/children")
            self.first = int((below.read_text().split() or ["0"])[0])
        self.inode = os.stat(f"/proc/{self.first}/ns/pid").st_ino
        stat = read_stat(self.first)
        assert stat is not None
        self.start_ticks = stat.start_ticks

    def process(self, pid: int = 34, ticks: int = 0) -> ProcessIdentity:
        """One as it named itself inside; by default as old as the container."""
        return ProcessIdentity(
            boot_id=boot_id(),
            pid_namespace=self.inode,
            pid=pid,
            start_ticks=ticks or self.start_ticks,
        )

    def end(self) -> None:
        self._popen.kill()
        self._popen.wait()


@needs_namespaces
@needs_first
def test_a_namespace_is_dead_when_its_first_process_is(tmp_path: Path) -> None:
    container = Container()
    try:
        inside, before = container.process(), container.process(ticks=1)
        assert Namespaces().state(inside) == "other"
        # Its number was another namespace's: nothing in there is older than its first process.
        assert Namespaces().state(before) == "dead"
        # From inside another container nobody can tell.
        assert Namespaces(own=own_namespace() + 1).state(inside) == "other"
    finally:
        container.end()
    wait_until(lambda: Namespaces().state(inside) == "dead", "the kernel to end the namespace")
    assert judge(sighting(inside, tmp_path / "none")) == ("gone", "namespace_dead")


@needs_namespaces
def test_the_lock_is_seen_from_any_namespace_and_freed_with_its_last_holder(
    tmp_path: Path,
) -> None:
    run = RunPaths(tmp_path)
    log = AttemptFiles(run).create_log("j-1.1")
    held = subprocess.Popen(["unshare", "-pf", "--kill-child", "sleep", "600"], stdout=log)
    os.close(log)
    assert lock_of(run.attempt_log("j-1.1")) == "held"
    children = Path(f"/proc/{held.pid}/task/{held.pid}/children")
    init = wait_until(lambda: children.read_text().split(), "the namespace to have its init")
    os.kill(int(init[0]), signal.SIGKILL)
    held.wait()
    wait_until(lambda: lock_of(run.attempt_log("j-1.1")) == "free", "the lock to be freed")
    assert lock_of(run.attempt_log("j-2.1")) == "unknown"
