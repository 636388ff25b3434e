"""The code on the page for task harnesses is what it says: its tests pass, its example runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from praxist_zmq.binding import ASSIGNED
from tests.support.run import ROOT

BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_holds_what_it_shows(tmp_path: Path) -> None:
    example, contract = BLOCKS.findall((ROOT / "docs" / "binding.md").read_text("utf-8"))
    environ = {**os.environ, "PYTHONPATH": str(ROOT), ASSIGNED: "GPU-b,GPU-a"}
    environ.pop("CUDA_VISIBLE_DEVICES", None)
    environ.pop("NVIDIA_VISIBLE_DEVICES", None)
    shown = subprocess.run(
        [sys.executable, "-c", example], env=environ, capture_output=True, text=True, timeout=60
    )
    assert shown.stdout.splitlines() == ["GPU-b cuda:0", "GPU-a cuda:1"], shown.stderr
    (tmp_path / "test_copied.py").write_text(contract, "utf-8")
    copied = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_copied.py"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert copied.returncode == 0, copied.stdout
    assert "15 passed" in copied.stdout
