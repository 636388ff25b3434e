"""The generated pages are fresh, and the hand-written ones point at files that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.arch.source import CHECKOUT

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PAGES = sorted([CHECKOUT / "README.md", *(CHECKOUT / "docs").rglob("*.md")])


def test_generated_pages_are_fresh() -> None:
    result = subprocess.run(
        [sys.executable, CHECKOUT / "bin" / "docs", "--check"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = [t for t in LINK.findall(page.read_text("utf-8")) if "://" not in t]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing, f"{page.name} links to {missing}"


def test_the_glossary_has_every_process_of_the_architecture() -> None:
    text = (CHECKOUT / "docs" / "architecture.md").read_text("utf-8")
    table = text[text.index("| process | owns | never |") :].partition("\n\n")[0]
    processes = [line.split("|")[1].strip() for line in table.splitlines()[2:]]
    assert len(processes) >= 8
    glossary = (CHECKOUT / "docs" / "glossary.md").read_text("utf-8")
    missing = [name for name in processes if f"\n| {name} | " not in glossary]
    assert not missing, f"docs/glossary.md lacks {missing}"


def test_the_page_on_testing_has_every_folder_once_and_every_campaign() -> None:
    text = (CHECKOUT / "docs" / "testing.md").read_text("utf-8")
    rows = re.findall(r"^\| `(tests/\w+)` \|", text, re.MULTILINE)
    folders = {f"tests/{path.parent.name}" for path in CHECKOUT.glob("tests/*/__init__.py")}
    assert sorted(rows) == sorted(folders)
    for verb in ("test", "check", "bench", "crash", "simulate"):
        assert f"`bin/{verb}`" in text, verb


def test_every_test_that_the_page_on_behaviours_names_exists() -> None:
    text = (CHECKOUT / "docs" / "behaviours.md").read_text("utf-8")
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", text)
    assert len(named) > 150
    known: dict[str, str] = {}
    missing = []
    for file, test in named:
        path = CHECKOUT / "tests" / file
        if file not in known:
            known[file] = path.read_text("utf-8") if path.is_file() else ""
        if f"def {test}(" not in known[file]:
            missing.append(f"{file}::{test}")
    assert not missing, f"docs/behaviours.md names {missing}"
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    bare = [
        row for row in rows if "`" not in row and not row.startswith(("| behaviour", "| cases"))
    ]
    assert not bare, f"no test proves {bare}"


def test_continuous_integration_installs_what_tests_would_skip_without() -> None:
    asked = re.compile(r"which\(\"(\w+)\"\)")
    everywhere = {"bash", "unshare", "nsenter", "setpriv", "cc"}  # a system has them; gcc brings cc
    needed = {
        name
        for path in (CHECKOUT / "tests").rglob("*.py")
        for name in asked.findall(path.read_text("utf-8"))
    } - everywhere
    script = (CHECKOUT / ".ci" / "run").read_text("utf-8")
    programs = re.search(r"for program in ([\w ]+); do", script)
    assert programs is not None
    missing = needed - set(programs[1].split())
    assert not missing, f".ci/run does not install {sorted(missing)}"
