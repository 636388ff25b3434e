"""The number of a dead leader is given to a stranger: the stranger is not signalled.

Needs a process-id namespace of its own, where the next number can be chosen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

INSIDE = """
import os, subprocess, sys, time
from praxist_zmq.host import signals
from praxist_zmq.host.ending import Fallen, without_shim
from praxist_zmq.host.identity import identity_of, is_alive, open_pidfd
from tests.support.wait import wait_until

own = identity_of(os.getpid())
first = subprocess.Popen(["sleep", "100"], start_new_session=True)
leader = identity_of(first.pid)
fd = open_pidfd(leader)
first.kill(); first.wait()
start = leader.start_ticks
wait_until(lambda: identity_of(os.getpid()) and time.clock_gettime(time.CLOCK_BOOTTIME) * 100
           > start + 2, "the clock to tick on")
with open("/proc/sys/kernel/ns_last_pid", "w") as last:
    last.write(str(leader.pid - 1))
stranger = subprocess.Popen(["sleep", "100"], start_new_session=True)
assert stranger.pid == leader.pid, (stranger.pid, leader.pid)
try:
    assert not is_alive(leader)
    assert open_pidfd(leader) is None
    assert not signals.send(leader, signals.KILL)
    assert not signals.send_group(fd, signals.KILL)
    alone = Fallen(only_one=True)
    assert not without_shim("/no/such/attempts/j-1.1", own, leader, None, alone).pids
    assert stranger.poll() is None
finally:
    stranger.kill(); stranger.wait()
print("stranger untouched")
"""


def test_a_stranger_with_the_leaders_number_is_left_alone() -> None:
    unshare = shutil.which("unshare")
    enter = [unshare or "unshare", "-Urpf", "--mount-proc"]
    if unshare is None or subprocess.run([*enter, "true"], check=False).returncode != 0:
        pytest.skip("this machine allows no process-id namespace")
    done = subprocess.run(
        [*enter, sys.executable, "-c", INSIDE],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    if "ns_last_pid" in done.stderr and "PermissionError" in done.stderr:
        pytest.skip("this kernel does not let the next process id be chosen")
    assert done.stdout.strip() == "stranger untouched", done.stderr
