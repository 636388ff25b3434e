"""Processes that are stopped instead of killed, starts at the same time, and giving up."""

from __future__ import annotations

import json
import signal

from tests.support import oracle
from tests.support.run import SERVICES, Run, send
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


def test_a_stopped_broker_is_no_answer_and_the_same_command_works_later(run: Run) -> None:
    broker = run.processes()["broker"]
    words = run.launch_words("t", "exit:0")
    send(broker, signal.SIGSTOP)
    try:
        silent = run.cli("--timeout", "2s", *words)
        assert silent.status == 75, silent
        assert silent.err.startswith("unavailable")
    finally:
        send(broker, signal.SIGCONT)
    assert run.cli(*words).status == 0
    assert len(run.read_lines("start")) == 1
    run.down()
    oracle.check_ended(run)


def test_a_stopped_experiment_can_be_ended(run: Run) -> None:
    with run.client() as client:
        job = run.submit(client, "t", f"wait:{run.gate('never')}").job.job
        run.until_started(f"{job}.1")
        send(int(run.read_lines("start")[0][2]), signal.SIGSTOP)
        run.cli("cancel", job, "--yes").ok()
        assert client.wait(job, 60).state == "cancelled"
    assert run.experiments() == []
    run.down()
    oracle.check_ended(run)


def test_a_stopped_launcher_loses_nothing(run: Run) -> None:
    launcher = run.processes()["launcher"]
    with run.client() as client:
        first = run.submit(client, "a", f"wait:{run.gate('go')}", "exit:3").job.job
        run.until_started(f"{first}.1")
        send(launcher, signal.SIGSTOP)
        second = run.submit(client, "b", "exit:4").job.job
        run.open_gate("go")
        wait_until(lambda: run.read_lines("end"), "the first to end unseen")
        send(launcher, signal.SIGKILL)
        assert client.wait(first, 60).exit_code == 3
        assert client.wait(second, 60).exit_code == 4
    run.down()
    oracle.check_ended(run)


def test_of_many_starts_at_once_one_wins(make_run: MakeRun) -> None:
    run = make_run()
    starts = [run.start("up", "--config", str(run.contract)) for _ in range(6)]
    try:
        wait_until(lambda: sum(p.poll() is None for p in starts) <= 1, "all but one to give up")
        run.until_healthy()
        losers = [p for p in starts if p.poll() is not None]
        assert len(losers) == 5
        assert {p.returncode for p in losers} == {69}
        wait_until(lambda: set(SERVICES) <= set(run.processes()), "all services")
        assert run.launch("t", "exit:2").status == 2
    finally:
        for process in starts:
            process.terminate()
        for process in starts:
            process.communicate(timeout=60)
    oracle.check_ended(run)


def test_giving_up_is_told_and_experiments_go_on(run: Run) -> None:
    with run.client() as client:
        job = run.submit(client, "t", f"wait:{run.gate('go')}", "exit:9").job.job
        run.until_started(f"{job}.1")

        def gone() -> bool:
            found = run.processes()
            if "launcher" in found:
                send(found["launcher"], signal.SIGKILL)
            return "supervisor" not in found

        wait_until(gone, "the supervisor to give up")
        wait_until(lambda: not set(run.processes()) & set(SERVICES), "the services to end")
        failure = json.loads((run.paths.scheduler / "last_failure.json").read_text())
        assert (failure["code"], failure["process"]) == ("restart_limit", "launcher")
        assert run.cli("status").status == 3
        assert len(run.experiments()) == 1
        run.up()
        assert not (run.paths.scheduler / "last_failure.json").exists()
        run.open_gate("go")
        assert client.wait(job, 60).exit_code == 9
    run.down()
    oracle.check_ended(run)
