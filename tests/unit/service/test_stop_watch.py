"""An identity counts whole or not at all."""

from __future__ import annotations

import os
from typing import Any

import pytest

from praxist_zmq.host.identity import identity_of
from praxist_zmq.service.stop_watch import StopWatch


@pytest.mark.parametrize(
    "other", [{"pid_namespace": 1}, {"boot_id": "another"}, {"start_ticks": 1}, {}]
)
def test_a_number_alone_names_nobody(other: dict[str, Any]) -> None:
    own = identity_of(os.getpid())
    assert own is not None
    watch = StopWatch([own.model_copy(update=other)])
    assert watch.matched == (set() if other else {os.getpid()})
    assert bool(watch.alive()) is not bool(other)
