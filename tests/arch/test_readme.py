"""The pages that tell what to type do what they say: their commands run, in order, and succeed.

Every `$ ` line of a console block below `<!-- run -->` runs in one shell, in a directory that holds
the checkout's `conf/`, but without pressure domains and with a limit that pressure does not lower:
a busy machine must not hold the experiments back. The first command that fails stops the block and
is named.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arch.source import CHECKOUT

BLOCK = re.compile(r"^<!-- run -->\n```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


PAGES = ("README.md", "docs/simulation.md")


def blocks(*pages: str) -> list[list[str]]:
    """The commands of each block that is to be run."""
    found = [
        block for page in pages for block in BLOCK.findall((CHECKOUT / page).read_text("utf-8"))
    ]
    return [[line[2:] for line in block.splitlines() if line.startswith("$ ")] for block in found]


def script(commands: list[str]) -> str:
    """A shell program that says each command and stops at the first that fails."""
    lines = ["exec </dev/null"]
    for command in commands:
        said = shlex.quote(f"$ {command}")
        lines += [f"printf '%s\\n' {said}", f"{{ {command}", "} || { echo FAILED: $?; exit 1; }"]
    return "\n".join(lines)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """PATH with the command in front; ends a run that the block left, whatever happened."""
    beside = Path(sys.executable).parent
    if not (beside / "praxist-zmq").exists():
        beside = tmp_path / "bin"
        beside.mkdir()
        command = beside / "praxist-zmq"
        command.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m praxist_zmq "$@"\n',
            encoding="utf-8",
        )
        command.chmod(0o755)
    values = dict(os.environ)
    values["PATH"] = f"{beside}:{values['PATH']}"
    values["PYTHONPATH"] = str(CHECKOUT)
    values["TMPDIR"] = str(tmp_path)
    yield values
    for endpoint in tmp_path.rglob("resource_scheduler/endpoint.json"):
        run = str(endpoint.parent.parent)
        subprocess.run(
            ["praxist-zmq", "--run-dir", run, "stop", "--grace", "1s", "--yes"],
            env=values,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            check=True,
            timeout=60,
        )


def test_the_readme_has_a_quick_start() -> None:
    found = blocks("README.md")
    assert found
    assert all(commands for commands in found)
    assert any("praxist-zmq launch" in line for commands in found for line in commands)


def test_no_block_of_a_page_is_left_out() -> None:
    marked = {
        page for page in CHECKOUT.rglob("docs/*.md") if "<!-- run -->" in page.read_text("utf-8")
    }
    assert {str(page.relative_to(CHECKOUT)) for page in marked} == set(PAGES[1:])
    assert len(blocks(*PAGES)) == 3


@pytest.mark.parametrize("commands", blocks(*PAGES), ids=["quick start", "sim", "two runs"])
def test_the_commands_run(commands: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash, "bash is needed to run the README's commands"
    work = tmp_path / "work"
    work.mkdir()
    shutil.copytree(CHECKOUT / "conf", work / "conf")
    for contract in (work / "conf").glob("contract.*.yaml"):
        text = re.sub(r"pressure_domains: \[.*\]", "pressure_domains: []", contract.read_text())
        text = re.sub(
            r"(min|initial)_concurrent_experiments: \d+", r"\1_concurrent_experiments: 4", text
        )
        contract.write_text(text)
    with (tmp_path / "output").open("w+b") as output:
        result = subprocess.run(
            [bash, "-c", script(commands)],
            cwd=work,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=100,
        )
        output.seek(0)
        text = output.read().decode(errors="replace")
    assert result.returncode == 0, text
