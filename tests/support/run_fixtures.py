"""Fixtures: `make_run` makes runs that are ended whatever happens, `run` is one that is up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .run import Run

MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(tmp_path: Path, host_directory: Path) -> Iterator[MakeRun]:
    """Make runs; each in a directory of its own, none started yet."""
    made: list[Run] = []

    def make(name: str = "run", **options: Any) -> Run:
        run = Run(tmp_path / f"of-{name}" / name, **options)
        made.append(run)
        return run

    yield make
    for run in made:
        run.close()


@pytest.fixture
def run(make_run: MakeRun) -> Run:
    """One run with two slots, up."""
    made = make_run()
    made.up()
    return made
