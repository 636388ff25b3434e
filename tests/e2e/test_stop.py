"""Stopping a run whose scheduler is dead, hung or unheard, and what a stop leaves alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.cli import stopping
from praxist_zmq.cli.settings import Settings
from praxist_zmq.cli.words import local_time
from praxist_zmq.errors import PraxistError
from praxist_zmq.service import offline_stop
from tests.support import oracle
from tests.support.run import Run, send
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


@pytest.fixture
def strangers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test starts and a stop must leave alone; ended whatever happens."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def _two_running(run: Run, *actions: str) -> None:
    """A plain experiment, one as the actions say, and one that waits."""
    with run.client() as client:
        run.submit(client, "plain", f"wait:{run.gate('never')}")
        run.submit(client, "bad", *actions, f"wait:{run.gate('never')}")
        run.submit(client, "queued", "exit:0")
    run.until_started("j-1.1", "j-2.1")


def _states(run: Run) -> dict[str, str]:
    with run.client() as client:
        return {job.tag: job.state for job in client.queue(include_terminal=True)}


def test_a_run_whose_scheduler_is_dead_is_stopped_whole(run: Run) -> None:
    _two_running(run, "ignore-term", f"daemonize:{run.gate('never')}")
    wait_until(lambda: run.read_lines("daemon") and run.read_lines("ignoring"), "the daemon")
    running = set(run.experiments())
    run.kill_all()
    dry = run.cli("stop", "--dry-run", "--json").ok().document
    assert (dry["ending"], dry["rejected"]) == (["j-1", "j-2"], ["j-3"])
    assert set(run.experiments()) == running
    assert not run.paths.shutdown_fence.exists()
    stopped = run.cli("stop", "--yes", "--grace", "1s", "--json")
    assert stopped.status == 0, stopped
    told = stopped.document
    assert running <= set(told["matched_pids"]) | set(told["descendant_pids"])
    assert running & set(told["killed_pids"]), "one ignored SIGTERM"
    assert (told["ending"], told["rejected"]) == (["j-1", "j-2"], ["j-3"])
    assert (told["remaining_pids"], told["failed_run_ids"]) == ([], [])
    assert not run.experiments()
    assert run.paths.shutdown_fence.exists()
    run.canaries.check()
    run.up()
    wait_until(lambda: "running" not in _states(run).values(), "both ends to be told")
    assert _states(run) == {"plain": "cancelled", "bad": "cancelled", "queued": "rejected"}
    run.down()
    oracle.check_ended(run)


def test_without_shims_the_ledger_s_word_and_the_kernel_s_prove_what_is_left(run: Run) -> None:
    _two_running(run, f"child:{run.gate('never')}")
    wait_until(lambda: run.read_lines("child"), "the child")
    run.kill_all()
    for name, pid in run.processes().items():
        if name.startswith("shim"):
            send(pid, signal.SIGKILL)
    assert len(run.experiments()) == 3
    stopped = run.cli("stop", "--yes", "--grace", "1s")
    assert stopped.status == 0, stopped
    assert not run.experiments()
    run.canaries.check()


def test_a_copied_environment_is_told_and_left_alone(
    run: Run, strangers: list[subprocess.Popen[bytes]]
) -> None:
    _two_running(run)
    environment = {"PRAXIST_EXPERIMENT_ATTEMPT_DIR": str(run.paths.attempt("j-1.1"))}
    copied = subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True)
    by_folder = subprocess.Popen(["sleep", "600"], env={}, cwd=run.dir, start_new_session=True)
    strangers += [copied, by_folder]
    stopped = run.cli("stop", "--yes", "--grace", "1s", "--json")
    told = stopped.document
    assert stopped.status == 1, "nobody can say that nothing of the run is left"
    assert told["remaining_pids"] == [copied.pid]
    reasons = {each["pid"]: each["reason"] for each in told["left_alone"]}
    assert "only its environment names j-1.1" in reasons[copied.pid]
    assert "by folder only" in reasons[by_folder.pid]
    assert copied.poll() is None
    assert by_folder.poll() is None
    assert not run.experiments()
    run.canaries.check()
    copied.kill()
    copied.wait()
    again = run.cli("stop", "--yes")
    assert again.status == 0, again
    assert f"left     pid {by_folder.pid} sleep (run dir matches by folder only" in again.out


def test_what_a_peer_protects_itself_is_told_and_left_alone(
    run: Run, strangers: list[subprocess.Popen[bytes]]
) -> None:
    own = subprocess.Popen(["sleep", "600"], env={}, cwd="/", start_new_session=True)
    strangers.append(own)
    run.cli("protected", "register", str(own.pid), "--peer", "p1").ok()
    stopped = run.cli("stop", "--yes", "--grace", "1s", "--json")
    assert stopped.status == 1
    told = stopped.document
    assert told["remaining_pids"] == [own.pid]
    reasons = {each["pid"]: each["reason"] for each in told["left_alone"]}
    assert reasons[own.pid] == "protected, of peer p1"
    assert own.poll() is None
    own.kill()
    own.wait()
    assert run.cli("stop", "--yes").status == 0


def test_a_stop_by_the_scheduler_names_what_got_which_signal(run: Run) -> None:
    """Both come while the command waits, or before it has heard that they will."""
    _two_running(run, "ignore-term")
    wait_until(lambda: run.read_lines("ignoring"), "the handler")
    with run.client() as client:
        plain, deaf = (client.show(job).pid for job in ("j-1", "j-2"))
    told = run.cli("stop", "--yes", "--grace", "1s", "--json").ok().document
    assert (told["terminated_pids"], told["killed_pids"]) == (sorted((plain, deaf)), [deaf])
    run.up("--generation", "0")
    with run.client() as client:
        job = run.submit(client, "later", f"wait:{run.gate('never')}").job.job
    run.until_started(f"{job}.1")
    told = run.cli("stop", "--yes", "--grace", "0", "--json").ok().document
    assert (told["terminated_pids"], told["killed_pids"]) == ([], told["matched_pids"])
    assert told["killed_pids"]


def test_a_scheduler_that_hangs_is_ended_with_the_run(run: Run) -> None:
    _two_running(run)
    send(run.processes()["broker"], signal.SIGSTOP)
    stopped = run.cli("--timeout", "1s", "stop", "--yes", "--grace", "1s", "--json")
    assert stopped.status == 0, stopped
    assert any("does not confirm" in warning for warning in stopped.document["warnings"])
    assert stopped.document["rejected"] == ["j-3"]
    assert not run.experiments()
    assert not set(run.processes()) - {"registry"}


@pytest.mark.parametrize("victim", ["launcher", "supervisor"])
def test_a_scheduler_that_confirms_a_stop_and_hangs_is_ended_with_the_run(
    run: Run, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    monkeypatch.setattr(stopping, "AFTER_GRACE_S", 1.0)
    monkeypatch.setattr(offline_stop, "ORDERLY_S", 1.0)
    _two_running(run, "ignore-term")
    wait_until(lambda: run.read_lines("ignoring"), "the handler")
    send(run.processes()[victim], signal.SIGSTOP)
    told = stopping.StoppingRun(run.paths, Settings(timeout=1.0), 0.3).run()
    assert (told.exit_code, told.fenced_by_scheduler, told.remaining) == (0, True, set()), told
    assert any("does not carry the stop out" in warning for warning in told.warnings)
    assert not run.experiments()
    assert not set(run.processes()) - {"registry"}


def test_a_stop_or_down_leaves_another_stop_at_its_work(run: Run) -> None:
    _two_running(run, "ignore-term")
    wait_until(lambda: run.read_lines("ignoring"), "the handler")
    run.kill_all()
    first = run.start("stop", "--yes", "--grace", "3s")
    wait_until(lambda: b'"stop"' in run.paths.owner_lock.read_bytes(), "the first to be at it")
    second = run.start("stop", "--yes", "--grace", "1s")
    down = run.cli("down")
    assert (down.status, "is a `stop`" in down.err) == (69, True), down
    for process in (first, second):
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, (out, err)
        assert "nothing of this run is left" in out
    assert not run.experiments()


def test_a_sentinel_that_cannot_be_written_needs_the_scheduler_s_word(run: Run) -> None:
    _two_running(run)
    running = set(run.experiments())
    run.kill_all()
    run.paths.shutdown_fence.mkdir()
    failed = run.cli("stop", "--yes", "--json")
    assert failed.status == 1, failed
    assert failed.document["failed_run_ids"] == [run.paths.run_id]
    assert set(run.experiments()) == running
    assert "left untouched" in run.cli("stop", "--yes").out
    run.paths.shutdown_fence.rmdir()
    run.up()
    run.paths.shutdown_fence.mkdir()
    stopped = run.cli("stop", "--yes", "--grace", "1s")
    assert stopped.status == 0, stopped
    assert "(scheduler froze all admission)" in stopped.out
    assert not run.experiments()


def test_stop_all_stops_each_run_that_can_be_fenced(make_run: MakeRun) -> None:
    good, bad = make_run("good"), make_run("bad")
    for run in (good, bad):
        run.up()
        with run.client() as client:
            run.submit(client, "t", f"wait:{run.gate('never')}")
        run.until_started("j-1.1")
    send(bad.processes()["broker"], signal.SIGSTOP)
    bad.paths.shutdown_fence.mkdir()
    assert good.cli("stop", "--all", "--yes").status == 2, "which of the two is meant?"
    words = [*good.words()[:3], "--timeout", "1s", "stop", "--all", "--yes", "--json"]
    done = subprocess.run(
        words,
        env=good.environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done
    told = json.loads(done.stdout)
    assert told["failed_run_ids"] == [bad.paths.run_id], told
    assert [(each["run_id"], each["exit_code"]) for each in told["runs"]] == [
        ("bad", 1),
        ("good", 0),
    ]
    (left,) = good.experiments()  # of both: they share the host scope
    assert str(bad.lines) in Path(f"/proc/{left}/cmdline").read_text()
    send(bad.processes()["broker"], signal.SIGCONT)


def test_stop_all_fences_all_runs_and_ends_them_side_by_side(make_run: MakeRun) -> None:
    """The first takes a minute to end; meanwhile nothing of the second starts, and it ends."""
    slow, quick = make_run("a"), make_run("b", slots=1)
    for run in (slow, quick):
        run.up()
    with slow.client() as client:
        slow.submit(client, "t", "ignore-term", f"wait:{slow.gate('go')}")
    with quick.client() as client:
        quick.submit(client, "runs", f"wait:{quick.gate('never')}")
        quick.submit(client, "waits", "exit:0")
    slow.until_started("j-1.1")
    quick.until_started("j-1.1")
    wait_until(lambda: slow.read_lines("ignoring"), "the handler")
    words = [*slow.words()[:3], "stop", "--all", "--yes", "--grace", "1h"]
    with subprocess.Popen(words, env=slow.environment, cwd="/", stdout=subprocess.PIPE) as stop:
        wait_until(lambda: not set(quick.processes()) - {"registry"}, "the second run's end")
        assert slow.paths.shutdown_fence.exists()
        assert list(slow.read_lines("ignoring")), "the first goes on"
        assert slow.processes()
        slow.open_gate("go")
        assert stop.wait(60) == 0
    assert not slow.experiments()
    assert len(quick.read_lines("start")) == 1


@pytest.mark.parametrize("registry", ["answers", "is gone"])
def test_stop_all_finds_runs_that_are_down_while_their_experiments_go_on(
    make_run: MakeRun, registry: str
) -> None:
    down, over = make_run("down"), make_run("over")
    for run in (down, over):
        run.up()
        with run.client() as client:
            run.submit(client, "t", f"wait:{run.gate('never' if run is down else 'go')}")
        run.until_started("j-1.1")
    over.open_gate("go")
    with over.client() as client:
        client.wait("j-1", 30)
    over.down()
    down.down()
    if registry == "is gone":
        down.kill("registry")
        wait_until(lambda: "registry" not in down.processes(), "the registry's end")
    words = [*down.words()[:3], "stop", "--all", "--json"]
    for more, experiments in (("--dry-run", 1), ("--yes", 0)):
        done = subprocess.run(
            [*words, more],
            env=down.environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done
        told = json.loads(done.stdout)
        assert [(each["run_id"], each["ending"]) for each in told["runs"]] == [("down", ["j-1"])]
        assert len(down.experiments()) == experiments
    assert down.paths.shutdown_fence.exists()
    assert not over.paths.shutdown_fence.exists(), "it holds nothing: there is nothing to stop"
    down.canaries.check()


def test_a_sentinel_by_hand_keeps_queued_jobs_from_starting(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    run.up()
    with run.client() as client:
        run.submit(client, "runs", f"wait:{run.gate('go')}")
        run.submit(client, "waits", "exit:0")
        run.until_started("j-1.1")
        run.paths.shutdown_fence.touch()
        with pytest.raises(PraxistError) as refused:  # also before the next sample of the host
            run.submit(client, "at once", "exit:0")
        assert refused.value.code == "admission_closed"
        assert "admission is closed" in " ".join(client.status()["warnings"])
        run.open_gate("go")
        assert client.wait("j-1", 30).state == "completed"
        assert client.show("j-2").state == "queued"
        assert run.launch("late", "exit:0").status == 69
        run.paths.shutdown_fence.unlink()
        assert client.wait("j-2", 30).state == "completed"
    run.down()
    oracle.check_ended(run)
    assert os.path.isdir(run.dir)


def test_status_and_a_second_stop_say_what_the_first_one_ended(run: Run) -> None:
    with run.client() as client:
        run.submit(client, "runs", f"wait:{run.gate('never')}")
        run.submit(client, "also", f"wait:{run.gate('never')}")
        run.submit(client, "queued", "exit:0")
    run.until_started("j-1.1", "j-2.1")
    run.down()
    assert "ended in order" in run.cli("status").out
    assert "2 of 2 gone" in run.cli("stop", "--yes", "--grace", "1s").out
    status = run.cli("status", "--json").document
    assert (status["jobs"]["running"], status["jobs"]["queued"]) == (0, 0)
    assert status["jobs"]["rejected"] == 1
    told = "\n".join(status["warnings"])
    assert "2 experiments were ended by the stop" in told
    when = local_time(run.paths.shutdown_fence.read_text().strip())
    assert f"stopped at {when}: " in told
    again = run.cli("stop", "--yes")
    assert again.status == 0
    assert "running  nothing left to end; ended before  j-1 j-2" in again.out
    assert "told to end" not in again.out
    run.up()
    run.down()
    assert "stopped at" not in run.cli("status").out


def test_status_tells_a_kill_from_an_orderly_end(run: Run) -> None:
    run.kill_all()
    assert "the scheduler was killed; `praxist-zmq up`" in run.cli("status").out
