"""SIGKILL at every n-th sync or send on the way from an idle peer to the end of its job.

The short form takes a few points of each process; `bin/crash --only leases` takes all.
"""

from __future__ import annotations

import pytest

from tests.support import strace
from tests.support.lease_points import LEASE_POINTS, QUICK_SUPPLY, play_lease_points
from tests.support.run_fixtures import MakeRun

pytestmark = pytest.mark.skipif(strace.works() is not None, reason=str(strace.works()))


@pytest.mark.parametrize("process", ["broker", "gateway", "registry", "supply"])
def test_points_of(make_run: MakeRun, process: str) -> None:
    run = make_run(slots=2, settings=QUICK_SUPPLY)
    run.up()
    armed = [(p, when) for p, short in LEASE_POINTS if p.process == process for when in short]
    assert play_lease_points(run, armed) > 0, "no occurrence was met"
