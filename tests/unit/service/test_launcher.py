"""The launcher's process: started like every child of the supervisor, with the same last words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from praxist_zmq.host.identity import identity_of
from praxist_zmq.host.paths import RunPaths
from praxist_zmq.host.spawn import service_environment
from praxist_zmq.ledger.lock import OwnerLock
from praxist_zmq.service.child_config import ChildConfig


def start(run: RunPaths, host_dir: Path) -> tuple[subprocess.Popen[bytes], Any]:
    """A launcher process and the read end of its messages."""
    read_end, write_end = os.pipe()
    me = identity_of(os.getpid())
    assert me is not None
    sockets = {name: f"/nowhere/{name}" for name in ("front", "events", "core", "samples")}
    config = ChildConfig(
        run_dir=str(run.run_dir),
        run_id="r-1",
        host_dir=str(host_dir),
        secret="0" * 32,
        ready_fd=write_end,
        supervisor=me,
        **sockets,
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "praxist_zmq.service.launcher"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=service_environment(),
        pass_fds=[write_end],
    )
    os.close(write_end)
    assert process.stdin is not None
    process.stdin.write(config.model_dump_json().encode() + b"\n")
    process.stdin.flush()
    return process, os.fdopen(read_end, "rb")


def test_its_last_words_are_one_json_line_with_a_code(tmp_path: Path, host_directory: Path) -> None:
    run = RunPaths.of(tmp_path / "run")
    run.run_dir.mkdir()
    run.scheduler.write_text("in the way")
    process, messages = start(run, host_directory)
    _, stderr = process.communicate(timeout=60)
    with messages:
        told = json.loads(messages.read())
    assert process.returncode == 73
    (line,) = map(json.loads, stderr.splitlines())
    assert line["process"] == "launcher"
    assert line["fatal"]["code"] == told["fatal"]["code"] == "unsafe_path"


def test_it_holds_its_lock_while_it_serves_and_ends_with_its_stdin(
    tmp_path: Path, host_directory: Path
) -> None:
    run = RunPaths.of(tmp_path / "run")
    run.scheduler.mkdir(parents=True)
    process, messages = start(run, host_directory)
    with messages:
        assert json.loads(messages.readline()) == {"ready": {}}
        assert json.loads(run.launcher_lock.read_bytes())["pid"] == process.pid
    process.communicate(timeout=60)
    assert process.returncode == 0
    OwnerLock.acquire(run.launcher_lock, {}).release()
