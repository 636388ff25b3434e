"""What a refused start takes back, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

from praxist_zmq.host.paths import RunPaths
from praxist_zmq.service.run_directory import missing, prepare, remove_made


def test_a_new_run_is_gone_whole(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "deep" / "run")
    made = missing(run)
    prepare(run)
    (run.scheduler / "owner.lock").touch()
    remove_made(run, made)
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "run")
    (run.run_dir / "logs").mkdir(parents=True)
    (run.run_dir / "data").touch()
    made = missing(run)
    prepare(run)
    remove_made(run, made)
    assert sorted(path.name for path in run.run_dir.iterdir()) == ["data", "logs"]


def test_a_run_that_had_a_scheduler_loses_nothing(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "run")
    prepare(run)
    remove_made(run, missing(run))
    assert run.attempts.is_dir()
