"""A peer of the same user who forges, deletes or redirects what lies in an attempt's directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from praxist_zmq.host.identity import identity_of, is_alive
from tests.support.launcher_harness import Bench
from tests.support.wait import wait_until

HOLD = 'while [ ! -e "$0" ]; do sleep 0.02; done; exit 7'


def forged_exit(attempt: str, shim: object, code: int) -> str:
    fields = {
        "kind": "ended",
        "attempt": attempt, "shim": shim, "outcome": "exited", "exit_code": code,
        "signal": None, "errno": None, "detail": "", "ended_at_ms": 1, "wall_ms": 1,
        "user_ms": 0, "system_ms": 0, "max_rss_kib": 0,
    }  # fmt: skip
    return json.dumps(fields)


def test_a_forged_exit_record_is_ignored_while_the_evaluator_lives(
    bench: Bench, tmp_path: Path
) -> None:
    shim, leader = bench.launch("j-1.1", ["sh", "-c", HOLD, str(tmp_path / "end")])
    forged = forged_exit("j-1.1", shim.model_dump(), 0)
    file = bench.run.attempt("j-1.1") / "evidence.jsonl"
    kept = file.read_text()
    file.unlink()  # a new file: the shim's descriptor no longer reaches it
    file.write_text(kept.strip() + "\n" + forged + "\n")
    bench.kill()
    bench.start()
    bench.adopt("j-1.1", shim, leader)
    bench.expect("attempt_started", lambda r: r.at_ms >= 0, attempt="j-1.1")
    assert not bench.seen("attempt_ended")
    (tmp_path / "end").touch()
    assert bench.ended("j-1.1").exit_code == 7


def test_a_forged_leader_is_neither_adopted_nor_signalled(bench: Bench, tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "100"], start_new_session=True)
    try:
        shim, _ = bench.launch("j-1.1", ["sh", "-c", HOLD, str(tmp_path / "end")])
        other = identity_of(stranger.pid)
        assert other is not None
        started = {
            "kind": "started",
            "attempt": "j-1.1", "shim": shim.model_dump(), "leader": other.model_dump(),
            "at_ms": 1,
        }  # fmt: skip
        file = bench.run.attempt("j-1.1") / "evidence.jsonl"
        lines = [line for line in file.read_text().splitlines() if '"started"' not in line]
        file.write_text("\n".join([*lines, json.dumps(started)]) + "\n")
        bench.kill()
        bench.reports.clear()
        bench.start()
        bench.adopt("j-1.1", shim, None)
        bench.stop("j-1.1", grace_ms=0)
        assert bench.ended("j-1.1").outcome == "exited"
        assert not bench.seen("attempt_started")
        assert is_alive(other)
    finally:
        stranger.kill()
        stranger.wait()


def test_a_deleted_directory_stops_nothing(bench: Bench, tmp_path: Path) -> None:
    bench.launch("j-1.1", ["sh", "-c", HOLD, str(tmp_path / "end")])
    shutil.rmtree(bench.run.attempt("j-1.1"))
    (tmp_path / "end").touch()
    assert bench.ended("j-1.1").exit_code == 7


def test_a_deleted_directory_and_a_dead_launcher_leave_the_outcome_unknown(
    bench: Bench, tmp_path: Path
) -> None:
    shim, _ = bench.launch("j-1.1", ["sh", "-c", HOLD, str(tmp_path / "end")])
    shutil.rmtree(bench.run.attempt("j-1.1"))
    bench.kill()
    (tmp_path / "end").touch()
    wait_until(lambda: not is_alive(shim), "the shim to end")
    bench.start()
    bench.adopt("j-1.1", shim)
    assert bench.ended("j-1.1").outcome == "unknown"


def test_go_taken_away_is_not_never_ran_once_the_ledger_saw_it_run(
    bench: Bench, tmp_path: Path
) -> None:
    shim, leader = bench.launch("j-1.1", ["sh", "-c", HOLD, str(tmp_path / "end")])
    bench.kill()
    os.kill(shim.pid, 9)
    file = bench.run.attempt("j-1.1") / "evidence.jsonl"
    file.write_text(file.read_text().splitlines()[0] + "\n")
    (tmp_path / "end").touch()
    bench.start()
    bench.adopt("j-1.1", shim, leader)
    assert bench.ended("j-1.1").outcome == "unknown"


def test_nothing_is_written_through_a_link(bench: Bench, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    bench.ready("j-1.1", ["sh", "-c", "exit 3"])
    directory = bench.run.attempt("j-1.1")
    directory.rename(tmp_path / "moved")
    directory.symlink_to(victim)
    bench.go("j-1.1")
    assert bench.ended("j-1.1").exit_code == 3
    assert not list(victim.iterdir())


@pytest.mark.parametrize("what", ["attempts", "directory", "log", "log_fifo"])
def test_planted_paths_are_refused(bench: Bench, tmp_path: Path, what: str) -> None:
    victim = tmp_path / "victim"
    run = bench.run
    if what == "attempts":
        victim.mkdir()
        run.scheduler.mkdir()
        run.attempts.symlink_to(victim)
    elif what == "directory":
        run.attempt("j-1.1").mkdir(parents=True)
    else:
        run.experiment_logs.mkdir(parents=True)
        if what == "log":
            victim.write_text("precious")
            run.attempt_log("j-1.1").symlink_to(victim)
        else:
            os.mkfifo(run.attempt_log("j-1.1"))
    bench.spawn("j-1.1", ["echo", "hello"])
    failed = bench.expect("spawn_failed", attempt="j-1.1")
    assert failed.stage == ("log_open" if "log" in what else "attempt_directory")
    if what == "attempts":
        assert not list(victim.iterdir())
    if what == "log":
        assert victim.read_text() == "precious"


def test_a_redirected_record_is_written_afresh_and_not_through_the_link(
    bench: Bench, tmp_path: Path
) -> None:
    shim = bench.ready("j-1.1", ["sh", "-c", "exit 3"])
    victim = tmp_path / "victim"
    victim.write_text("precious")
    file = bench.run.attempt("j-1.1") / "evidence.jsonl"
    file.unlink()
    file.symlink_to(victim)
    bench.go("j-1.1")
    assert bench.ended("j-1.1").exit_code == 3
    assert victim.read_text() == "precious"
    last = json.loads(file.read_text().strip().splitlines()[-1])
    assert (last["kind"], last["exit_code"], last["shim"]) == ("ended", 3, shim.model_dump())
