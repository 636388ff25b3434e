"""SIGKILL at every n-th sync, rename or send of one process while one job goes its whole way.

The fault is put into the process from outside (strace), so the points are exact and every one is
tried, unlike kills at random. The short form takes the first few of each; `bin/crash` takes all.
"""

from __future__ import annotations

import pytest

from tests.support import strace
from tests.support.points import POINTS, Point, play_point
from tests.support.run_fixtures import MakeRun

pytestmark = pytest.mark.skipif(strace.works() is not None, reason=str(strace.works()))


@pytest.mark.parametrize("point", POINTS, ids=[point.name for point in POINTS])
def test_point(make_run: MakeRun, point: Point) -> None:
    run = make_run(slots=2)
    run.up()
    assert play_point(run, point, range(1, point.short + 1)) > 0, "no occurrence was met"
