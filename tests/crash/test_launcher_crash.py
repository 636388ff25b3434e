"""SIGKILL of launcher, zygote and shim at various points; then adoption."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from praxist_zmq.host.identity import is_alive
from tests.support.launcher_harness import Bench, daemon_code
from tests.support.wait import wait_until

PYTHON = sys.executable
HOLD = 'while [ ! -e "$0" ]; do sleep 0.02; done; exit 7'


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_a_running_attempt_outlives_the_launcher_and_ends_with_its_code(
    bench: Bench, tmp_path: Path
) -> None:
    shim, leader = bench.launch("j-1.1", ["sh", "-c", HOLD, str(tmp_path / "end")])
    bench.kill()
    assert is_alive(leader)
    bench.start()
    bench.adopt("j-1.1", shim, leader)
    assert bench.expect("attempt_started", attempt="j-1.1").leader == leader
    (tmp_path / "end").touch()
    ended = bench.ended("j-1.1")
    assert (ended.outcome, ended.exit_code) == ("exited", 7)


def test_an_attempt_that_ended_meanwhile_keeps_its_code(bench: Bench, tmp_path: Path) -> None:
    shim, leader = bench.launch("j-1.1", ["sh", "-c", HOLD, str(tmp_path / "end")])
    bench.kill()
    (tmp_path / "end").touch()
    wait_until(lambda: not is_alive(shim), "the shim to end")
    bench.start()
    bench.adopt("j-1.1", shim, None)
    ended = bench.ended("j-1.1")
    assert (ended.outcome, ended.exit_code) == ("exited", 7)
    bench.adopt("j-1.1", shim, leader)
    wait_until(lambda: len(bench.seen("attempt_ended", "j-1.1")) == 2, "the repeated report")


def test_an_exec_failure_is_kept_over_a_launcher_crash(bench: Bench) -> None:
    shim = bench.ready("j-1.1", ["/no/such/program"])
    bench.go("j-1.1")
    bench.ended("j-1.1")
    bench.kill()
    bench.reports.clear()
    bench.start()
    bench.adopt("j-1.1", shim)
    ended = bench.ended("j-1.1")
    assert (ended.outcome, ended.errno) == ("exec_failed", 2)


def test_a_barrier_whose_launcher_died_ends_and_never_ran(bench: Bench, tmp_path: Path) -> None:
    shim = bench.ready("j-1.1", ["touch", str(tmp_path / "ran")])
    bench.kill()
    bench.start()
    bench.adopt("j-1.1", shim)
    assert bench.ended("j-1.1").outcome == "never_ran"
    bench.adopt("j-2.1", None)
    assert bench.ended("j-2.1").outcome == "never_ran"
    assert not (tmp_path / "ran").exists()


def test_a_barrier_killed_before_go_never_ran(bench: Bench, tmp_path: Path) -> None:
    shim = bench.ready("j-1.1", ["touch", str(tmp_path / "ran")])
    kill(shim.pid)
    assert bench.ended("j-1.1").outcome == "never_ran"
    bench.go("j-1.1")
    assert not (tmp_path / "ran").exists()


def test_a_killed_shim_is_never_success_and_holds_until_the_tree_is_gone(
    bench: Bench, tmp_path: Path
) -> None:
    command = ["sh", "-c", HOLD.replace("exit 7", "exit 0"), str(tmp_path / "end")]
    shim, leader = bench.launch("j-1.1", command)
    kill(shim.pid)
    wait_until(lambda: not is_alive(shim), "the shim to be gone")
    assert is_alive(leader)
    assert not bench.seen("attempt_ended")
    (tmp_path / "end").touch()
    ended = bench.ended("j-1.1")
    assert (ended.outcome, ended.exit_code) == ("unknown", None)
    assert not is_alive(leader)


def test_an_adopted_attempt_whose_shim_is_killed_ends_when_its_evaluator_does(
    bench: Bench, tmp_path: Path
) -> None:
    shim, leader = bench.launch("j-1.1", ["sh", "-c", HOLD, str(tmp_path / "end")])
    bench.kill()
    bench.reports.clear()
    bench.start()
    bench.adopt("j-1.1", shim, leader)
    bench.expect("attempt_started", attempt="j-1.1")
    kill(shim.pid)
    wait_until(lambda: not is_alive(shim), "the shim to be gone")
    (tmp_path / "end").touch()
    assert bench.ended("j-1.1").outcome == "unknown"


def test_a_killed_shims_escapee_falls_to_the_launcher_and_a_stop_ends_it(bench: Bench) -> None:
    from praxist_zmq.host.tree import descendants

    shim, _ = bench.launch("j-1.1", [PYTHON, "-I", "-S", "-c", daemon_code("time.sleep(300)")])

    def escapee() -> int | None:
        found = [
            s.pid
            for s in descendants(shim.pid)
            if s.parent == shim.pid
            and s.session == s.pid
            and Path(f"/proc/{s.pid}/comm").read_text() == "sleep\n"
        ]
        return found[0] if found else None

    daemon = wait_until(escapee, "the daemon to detach")
    assert daemon is not None
    kill(shim.pid)
    wait_until(
        lambda: f"PPid:\t{bench.pid}\n" in Path(f"/proc/{daemon}/status").read_text(),
        "the daemon to fall to the launcher",
    )
    bench.stop("j-1.1", grace_ms=100)
    assert bench.ended("j-1.1").outcome == "unknown"
    assert not Path(f"/proc/{daemon}").exists()


def test_a_killed_zygote_is_replaced_and_shims_do_not_notice(bench: Bench, tmp_path: Path) -> None:
    shim, _ = bench.launch("j-1.1", ["sh", "-c", HOLD, str(tmp_path / "end")])
    waiting = bench.ready("j-2.1", ["sh", "-c", "exit 8"])
    zygote = bench.zygote()
    kill(zygote)
    wait_until(lambda: bench.zygotes() not in ([], [zygote]), "another zygote")
    bench.launch("j-3.1", ["sh", "-c", "exit 9"])
    assert bench.ended("j-3.1").exit_code == 9
    assert is_alive(shim)
    assert is_alive(waiting)
    bench.go("j-2.1")
    assert bench.ended("j-2.1").exit_code == 8
    (tmp_path / "end").touch()
    assert bench.ended("j-1.1").exit_code == 7


def test_launcher_zygote_and_shim_killed_together(bench: Bench, tmp_path: Path) -> None:
    shim, leader = bench.launch("j-1.1", ["sh", "-c", HOLD, str(tmp_path / "end")])
    zygote = bench.zygote()
    bench.kill()
    for pid in (zygote, shim.pid):
        try:
            kill(pid)
        except ProcessLookupError:
            assert pid == zygote  # it may already have ended with its launcher
    bench.start()
    bench.adopt("j-1.1", shim, leader)
    bench.stop("j-1.1", grace_ms=0)
    assert bench.ended("j-1.1").outcome == "unknown"
    assert not is_alive(leader)


def test_go_sent_and_the_launcher_killed_at_once_runs_at_most_once(
    bench: Bench, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    for number in range(1, 6):
        attempt = f"j-{number}.1"
        shim = bench.ready(attempt, ["sh", "-c", f"echo {attempt} >> {count}"])
        bench.go(attempt)
        bench.kill()
        bench.start()
        bench.adopt(attempt, shim)
        ended = bench.ended(attempt)
        lines = count.read_text().split().count(attempt) if count.exists() else 0
        assert (ended.outcome, lines) in (("exited", 1), ("never_ran", 0))


def test_another_boot_is_never_signalled(bench: Bench) -> None:
    shim, leader = bench.launch("j-1.1", ["sleep", "100"])
    bench.kill()
    bench.start()
    old = shim.model_copy(update={"boot_id": "00000000-0000-0000-0000-000000000000"})
    bench.adopt("j-1.1", old, leader)
    bench.stop("j-1.1")
    assert bench.ended("j-1.1").outcome == "unknown"
    assert is_alive(leader)


def test_a_stopped_shim_does_not_save_its_evaluator(bench: Bench) -> None:
    shim, leader = bench.launch("j-1.1", ["sleep", "100"])
    os.kill(shim.pid, signal.SIGSTOP)
    os.kill(leader.pid, signal.SIGSTOP)
    bench.stop("j-1.1", grace_ms=0)
    assert bench.ended("j-1.1").signal == 9
