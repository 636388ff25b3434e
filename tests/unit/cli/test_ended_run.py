"""How a scheduler ended, from what it left."""

from __future__ import annotations

from pathlib import Path

import pytest

from praxist_zmq.cli.ended_run import ended_by_stop, how_it_ended
from praxist_zmq.host.paths import RunPaths, RunSockets


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A run whose scheduler ended in order."""
    monkeypatch.setenv("PRAXIST_ZMQ_RUNTIME_DIR", str(tmp_path / "x"))
    run = RunPaths(tmp_path / "r")
    run.ledger.mkdir(parents=True)
    return run


def test_each_end_is_told_with_what_comes_next(ended: RunPaths) -> None:
    assert (
        how_it_ended(ended)
        == "the scheduler was ended in order; `praxist-zmq up` adopts what still runs"
    )
    sockets = RunSockets.of(ended).directory
    sockets.mkdir(parents=True)
    (sockets / "run.json").touch()
    assert (how_it_ended(ended) or "").startswith("the scheduler was killed; ")
    ended.last_failure.touch()
    (sockets / "run.json").unlink()
    assert how_it_ended(ended) is None, "it left why"
    ended.shutdown_fence.write_text("2026-11-30T00:00:00Z\n")
    assert (how_it_ended(ended) or "").startswith("stopped at 2026-11-30 00:00:00: ")
    ended.shutdown_fence.write_text("by hand\n")
    assert (how_it_ended(ended) or "").startswith("stopped: ORCHESTRATOR_SHUTDOWN is there; ")


def test_a_run_without_a_ledger_never_ended(tmp_path: Path) -> None:
    assert how_it_ended(RunPaths(tmp_path)) is None


def test_what_a_stop_ended_is_counted() -> None:
    assert ended_by_stop({"ended_by_stop": 1}) == (
        "1 experiment was ended by the stop; the next `up` records the outcome"
    )
    assert ended_by_stop({}) is None
    assert ended_by_stop({"ended_by_stop": "7"}) is None
