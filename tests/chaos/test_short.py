"""The short form of `bin/chaos`: one round."""

from __future__ import annotations

import pytest

from .campaign import play


@pytest.mark.timeout(300)
def test_a_short_round() -> None:
    done = play(seed=9, calamities=20)
    assert sum(done.values()) == 20
