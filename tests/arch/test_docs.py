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
