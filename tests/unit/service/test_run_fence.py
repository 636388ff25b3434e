"""The shutdown sentinel: seen when it appears, written if it can be, passed by a reopening."""

from __future__ import annotations

from pathlib import Path

from praxist_zmq.service.run_fence import RETRY_MS, RunFence, set_fence


def test_it_is_seen_for_as_long_as_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "ORCHESTRATOR_SHUTDOWN"
    fence = RunFence(path, reopened=False)
    assert not fence.is_set()
    path.touch()
    assert fence.is_set()
    path.unlink()
    assert not fence.is_set()


def test_a_start_that_reopens_passes_the_file_of_before_and_no_later_one(tmp_path: Path) -> None:
    path = tmp_path / "ORCHESTRATOR_SHUTDOWN"
    path.touch()
    fence = RunFence(path, reopened=True)
    assert not fence.is_set()
    assert RunFence(path, reopened=False).is_set()
    path.unlink()
    (tmp_path / "other").touch()
    set_fence(path)
    assert fence.is_set()


def test_what_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fence = RunFence(run / "ORCHESTRATOR_SHUTDOWN", reopened=False)
    assert not fence.ensure(0)
    assert "cannot be written" in fence.failure
    run.mkdir()
    assert not fence.ensure(RETRY_MS - 1)
    assert fence.ensure(RETRY_MS)
    assert fence.is_set()
