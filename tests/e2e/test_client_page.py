"""The example of docs/client.md does what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.run import ROOT, Run

PROGRAM = re.compile(r"^```python\n(import sys\n.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_example_runs(run: Run, tmp_path: Path) -> None:
    [program] = PROGRAM.findall((ROOT / "docs" / "client.md").read_text("utf-8"))
    script = tmp_path / "example.py"
    script.write_text(program)

    def example() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(script), str(run.dir)],
            env=run.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    first = example()
    assert first.returncode == 0, first.stderr
    lines = first.stdout.splitlines()
    assert lines[0] in ("queued completed 0", "started completed 0")
    assert lines[1] == "loss 0.31"
    assert "job_finished" in [line.split()[1] for line in lines[2:]]
    again = example().stdout.splitlines()
    assert again == ["done completed 0", *lines[1:]]
    run.down()
    late = example()
    assert late.returncode == 1
    assert late.stderr.startswith("no_scheduler: ")
