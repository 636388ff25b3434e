"""SIGKILL of each process of a run, and of all at once, while jobs queue, start, run and end."""

from __future__ import annotations

import pytest

from tests.support.campaign import TARGETS, campaign
from tests.support.run_fixtures import MakeRun


@pytest.mark.parametrize("target", TARGETS)
def test_kill(make_run: MakeRun, target: str) -> None:
    run = make_run(slots=3)
    run.up()
    campaign(run, seed=1 + TARGETS.index(target), targets=(target,), rounds=3)


def test_kill_any(make_run: MakeRun) -> None:
    run = make_run(slots=3)
    run.up()
    campaign(run, seed=100, targets=TARGETS, rounds=6)
