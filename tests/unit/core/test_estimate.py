"""How long an experiment will run: the worked figures of the log-normal calibration."""

from __future__ import annotations

import math

import pytest

from praxist_zmq.core.estimate import KEPT, Calibration


@pytest.mark.parametrize(("eta_s", "chance"), [(50, 0.26), (60, 0.19)])
def test_without_history_the_prior_decides(eta_s: int, chance: float) -> None:
    time = Calibration().run_time("cpu", eta_s * 1000)
    assert time is not None
    assert time.within(30_000) == pytest.approx(chance, abs=0.005)
    assert time.within(0) == 0.0
    assert time.within(-1) == 0.0


def test_what_declares_no_run_time_stays_unknown() -> None:
    found = Calibration()
    assert found.run_time("cpu", None) is None
    found.observe("cpu", None, 1_000)
    found.observe("cpu", 0, 1_000)
    assert found.observed == 0


def test_half_the_declared_time_is_kept_as_its_logarithm() -> None:
    found = Calibration()
    found.observe("cpu", 100_000, 50_000)
    assert list(found.pool) == [pytest.approx(math.log(0.5))]
    time = found.run_time("other", 100_000)
    assert time is not None
    # One of three parts: the prior weighs as much as two endings.
    assert time.median_ms == pytest.approx(100_000 * math.exp(math.log(0.5) / 3))
    assert time.spread == 0.8


def test_spread_follows_the_endings_within_bounds() -> None:
    same, wide = Calibration(), Calibration()
    for _ in range(2):
        same.observe("cpu", 1_000, 1_000)
    wide.observe("cpu", 1_000, 900_000)
    wide.observe("cpu", 900_000, 1_000)
    for found, spread in ((same, 0.2), (wide, 1.25)):
        time = found.run_time("cpu", 1_000)
        assert time is not None
        assert time.spread == spread


def test_the_newest_are_kept() -> None:
    found = Calibration()
    for _ in range(KEPT + 10):
        found.observe("cpu", 1_000, 1_000)
    assert found.observed == KEPT
