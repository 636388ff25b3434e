"""The guard against leaked processes finds what it must and spares what it must."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.conftest import end_of_test
from tests.support.leaks import leaked, pids
from tests.support.wait import wait_until

WAIT = "import signal; signal.pause()"
ORPHAN = f"""
import os, subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", {WAIT!r}],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
    start_new_session=True,
)
print(child.pid)
"""


def test_a_child_is_found_named_and_killed(tmp_path: Path) -> None:
    before = pids()
    child = subprocess.Popen([sys.executable, "-c", WAIT])
    try:
        marks = ("/no/such/directory", str(tmp_path))
        assert [p.pid for p in leaked(before, marks)] == [child.pid]
        survivors = end_of_test(before, marks)
        assert [p.pid for p in survivors] == [child.pid]
        assert "signal.pause" in str(survivors[0])
    finally:
        child.kill()
        assert child.wait() == -signal.SIGKILL


def test_an_orphan_in_another_session_is_found_by_its_environment(host_directory: Path) -> None:
    before = pids()
    starter = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, check=True)
    orphan = int(starter.stdout)
    marks = (str(host_directory), "/no/such/directory")
    try:
        assert [p.pid for p in leaked(before, marks)] == [orphan]
    finally:
        os.kill(orphan, signal.SIGKILL)
    wait_until(lambda: not leaked(before, marks), "the orphan to be gone")


def test_a_process_of_somebody_else_is_spared(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", WAIT])
    try:
        assert leaked(pids(), ("/no/such/directory", str(tmp_path))) == []
    finally:
        child.kill()
        child.wait()
