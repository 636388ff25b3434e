"""Runs that tests share, and runs of one test alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.run import Run
from tests.support.run_fixtures import make_run

__all__ = ["make_run"]

MakeSharedRun = Callable[..., Run]


@pytest.fixture(scope="session")
def make_shared_run(
    tmp_path_factory: pytest.TempPathFactory, runtime_directory: Path
) -> Iterator[MakeSharedRun]:
    """Make runs that live as long as the tests, each in a host scope of its own."""
    made: list[Run] = []
    scopes: list[Path] = []

    def make(contract: str | None = None, **options: Any) -> Run:
        scope = runtime_directory / f"shared-{len(scopes)}"
        scope.mkdir(mode=0o700)
        scopes.append(scope)
        directory = tmp_path_factory.mktemp("shared") / "run"
        run = Run(directory, host_dir=scope, **options)
        made.append(run)
        if contract is not None:
            run.contract.write_text(contract)
        return run

    yield make
    for run in made:
        run.close()
    for scope in scopes:
        shutil.rmtree(scope)


@pytest.fixture(scope="session")
def shared_run(make_shared_run: MakeSharedRun) -> Run:
    """One run with three slots, up. Tests take tags of their own and leave nothing running."""
    made = make_shared_run(slots=3)
    made.up()
    return made
