"""The launcher's process: its log is like everybody's, and says why it could not serve."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from praxist_zmq.host.paths import RunPaths


def test_its_last_words_are_one_json_line_with_a_code(tmp_path: Path) -> None:
    run = RunPaths.of(tmp_path / "run")
    run.run_dir.mkdir()
    run.scheduler.write_text("in the way")
    config = {"run_dir": str(run.run_dir), "core": "/c", "secret": "0" * 32, "ready_fd": 3}
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "praxist_zmq.service.launcher"],
        input=json.dumps(config) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 73
    (line,) = map(json.loads, ended.stderr.splitlines())
    assert line["process"] == "launcher"
    assert line["fatal"]["code"] == "path_unusable"
