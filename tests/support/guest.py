"""Another broker on the host: a real process of another user, or of ours, and its registry.

    python -m tests.support.guest HOST_DIR [RUN_DIR ...]

It holds the ledger locks of the runs that are named, reads one claim request a line and writes one
reply a line. `Guest` starts it, under another user by setpriv(1).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import zmq
from pydantic import BaseModel

from praxist_zmq.host.identity import identity_of
from praxist_zmq.host.paths import HostPaths
from praxist_zmq.protocol.claims import ClaimRequestEnvelope
from praxist_zmq.protocol.codec import adapter, encode
from praxist_zmq.protocol.process import ProcessIdentity

CHECKOUT = Path(__file__).resolve().parents[2]


@cache
def interpreter_of_others() -> str | None:
    """An interpreter that another user may execute, with our packages; None when there is none.

    Ours may lie in a home that others cannot pass; a system's own of the same version will do.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return None
    for python in (sys.executable, "/usr/bin/python3"):
        # By a shell, because setpriv(1) itself still executes as root does.
        probe = f"exec {python} -c 'import praxist_zmq.protocol.claims, zmq, psutil, click'"
        done = subprocess.run(
            [*as_user(65_534), "/bin/sh", "-c", probe],
            cwd=CHECKOUT,
            env=environment_of_others(),
            capture_output=True,
            timeout=60,
        )
        if done.returncode == 0:
            return python
    return None


def cannot_be_another_user() -> str | None:
    """Why no guest can be started here; None when one can."""
    if interpreter_of_others() is not None:
        return None
    return "needs root, setpriv(1) and an interpreter that other users may execute"


def environment_of_others() -> dict[str, str]:
    """Our environment, with our packages for whichever interpreter."""
    return {**os.environ, "PYTHONPATH": str(Path(zmq.__file__).parents[1])}


def as_user(uid: int) -> list[str]:
    """The head of a command that runs as that user, in its group and no other."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


class Guest:
    """One connection of another process to the registry. `uid` None: of our own user."""

    def __init__(self, host: HostPaths, uid: int | None = None, runs: tuple[str, ...] = ()) -> None:
        python = sys.executable if uid is None else interpreter_of_others() or sys.executable
        self._popen = subprocess.Popen(
            [
                *(() if uid is None else as_user(uid)),
                python,
                "-m",
                "tests.support.guest",
                str(host.directory),
                *runs,
            ],
            cwd=CHECKOUT,
            env=environment_of_others(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._popen.stdout is not None
        assert self._popen.stdout.readline() == b"ready\n"
        found = identity_of(self._popen.pid)
        assert found is not None
        self.identity: ProcessIdentity = found

    def ask(self, request: BaseModel) -> Any:
        """The reply to one request, as JSON has it."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.write(encode(request) + b"\n")
        self._popen.stdin.flush()
        return json.loads(self._popen.stdout.readline())

    def end(self) -> None:
        """SIGKILL and reap; safe to call twice."""
        self._popen.kill()
        self._popen.wait(60)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()


def _serve(directory: str, runs: list[str]) -> None:
    from .registry_process import Asker, hold_run

    for run in runs:
        hold_run(run)
    asker = Asker(HostPaths(Path(directory)))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for number, line in enumerate(sys.stdin):
        body = json.dumps({"request_id": f"guest-{number}-x", "request": json.loads(line)})
        request = adapter(ClaimRequestEnvelope).validate_json(body).request
        reply = asker.ask(request, f"guest-{os.getpid()}-{number}")
        sys.stdout.write(encode(reply).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2:])
