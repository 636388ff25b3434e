"""SIGKILL at every n-th sync or send on the way from an idle peer to the end of its job.

The short form takes the first few points of each process; `bin/crash --only leases` takes all.
"""

from __future__ import annotations

import pytest

from tests.support import strace
from tests.support.lease_points import LEASE_POINTS, QUICK_SUPPLY, play_lease_point
from tests.support.points import Point
from tests.support.run_fixtures import MakeRun

pytestmark = pytest.mark.skipif(strace.works() is not None, reason=str(strace.works()))


@pytest.mark.parametrize("point", LEASE_POINTS, ids=[point.name for point in LEASE_POINTS])
def test_point(make_run: MakeRun, point: Point) -> None:
    run = make_run(slots=2, settings=QUICK_SUPPLY)
    run.up()
    assert play_lease_point(run, point, range(1, point.short + 1)) > 0, "no occurrence was met"
