"""The examples on the page for evaluators run, and print what a reader expects."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.run import ROOT

BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_run(tmp_path: Path) -> None:
    function, program = BLOCKS.findall((ROOT / "docs" / "units.md").read_text("utf-8"))
    for text, expected in (
        (function, "score 5.0\n"),
        (program, "{'fold0': {'loss': 0.5}, 'fold1': {'loss': 0.25}}\n"),
    ):
        script = tmp_path / "evaluate.py"
        script.write_text(text, "utf-8")
        shown = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (shown.returncode, shown.stdout) == (0, expected), shown.stderr
