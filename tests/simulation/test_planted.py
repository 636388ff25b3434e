"""The simulation finds faults: each of those that are planted shows within a few hundred seeds."""

from __future__ import annotations

import pytest

from .planted import PLANTED, Patch
from .world import BrokenPromise, play

SEEDS = 400


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: object, monkeypatch: Patch) -> None:
    assert callable(plant)
    plant(monkeypatch)
    with pytest.raises(BrokenPromise, match="bin/simulate --seed"):
        _play_all()


def _play_all() -> None:
    for seed in range(SEEDS):
        play(seed)
