"""The shutdown sentinel: seen when it appears, written if it can be, passed by a reopening."""

from __future__ import annotations

from pathlib import Path

import pytest

from praxist_zmq.service import run_fence
from praxist_zmq.service.run_fence import RETRY_MS, RunFence, set_fence


def test_it_is_seen_for_as_long_as_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "ORCHESTRATOR_SHUTDOWN"
    fence = RunFence(path, reopened=False)
    assert not fence.is_set()
    path.touch()
    assert fence.is_set()
    path.unlink()
    assert not fence.is_set()


@pytest.mark.parametrize("allowed", [True, False])
def test_a_link_to_nothing_is_there_also_where_a_sandbox_forbids_the_quick_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    if not allowed:
        monkeypatch.setattr(run_fence.os, "access", lambda *_, **__: False)
    run_fence._access_is_allowed.cache_clear()
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    assert run_fence.exists(str(tmp_path / "link"))
    assert not run_fence.exists(str(tmp_path / "nothing"))
    run_fence._access_is_allowed.cache_clear()


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
