from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.launcher_harness import Bench
from tests.support.run_fixtures import make_run, run

__all__ = ["make_run", "run"]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    try:
        yield made
    finally:
        made.close()
