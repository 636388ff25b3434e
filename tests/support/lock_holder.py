"""A process that holds a run's owner lock and does nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from praxist_zmq.host.paths import RunPaths

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def lock_holder(run: RunPaths) -> Iterator[subprocess.Popen[bytes]]:
    """Holds the lock of `run`; what the lock's file says of it is the caller's."""
    run.owner_lock.touch()
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLD, str(run.owner_lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.communicate()
