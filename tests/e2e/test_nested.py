"""A launch from inside an attempt runs there; one that only says so is an ordinary submission."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence

from tests.support import oracle
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until

SHOW = "import json, os; print(json.dumps([os.getpgrp(), os.getsid(0), os.environ['MARK']]))"


def _launch(run: Run, tag: str, *command: str, options: Sequence[str] = ()) -> str:
    """The words of a launch, for a shell."""
    words = ["launch", "--peer", "p1", "--tag", tag, *options, "--", *command]
    return shlex.join(run.words(*words))


def _shell(run: Run, tag: str, script: str) -> str:
    """Submit a shell as an experiment; its job."""
    environment = {**run.environment, "MARK": "kept"}
    command = ["sh", "-c", script]
    with run.client() as client:
        return run.submit(client, tag, command=command, environment=environment).job.job


def test_it_is_a_plain_child_with_its_own_exit_code(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    run.up()
    inner = _launch(run, "inner", sys.executable, "-c", SHOW + "; raise SystemExit(7)")
    away = f"(setsid {_launch(run, 'away', 'sh', '-c', 'kill -9 $$')}; echo away $?)"
    job = _shell(run, "outer", f"echo group $$; {inner}; echo code $?; {away}; exit 4")
    with run.client() as client:
        ended = client.wait(job, 60)
        assert ended.exit_code == 4
        tags = [known.tag for known in client.queue(include_terminal=True)]
    assert tags == ["outer"], "nothing was submitted, or the one slot would have been waited for"
    log = run.paths.attempt_log(f"{job}.1").read_text()
    lines = log.splitlines()
    group = int(next(line.split()[1] for line in lines if line.startswith("group")))
    shown = json.loads(next(line for line in lines if line.startswith("[")))
    assert (shown[0], shown[2]) == (group, "kept")
    assert "code 7" in lines
    assert "away 137" in lines, "also one that left the group descends from the shim"
    assert f"started  inside {job}.1: runs as a plain child of it" in log
    run.down()
    oracle.check_ended(run)


def test_a_copied_environment_and_another_s_directory_are_outside(make_run: MakeRun) -> None:
    run = make_run(slots=2)
    run.up()
    held = _shell(run, "held", f"while ! [ -e {run.gate('go')} ]; do sleep 0.05; done")
    wait_until(lambda: run.show(held).state == "running", "the attempt")
    copied = {
        "PRAXIST_EXPERIMENT_ATTEMPT_ID": f"{held}.1",
        "PRAXIST_EXPERIMENT_ATTEMPT_DIR": str(run.paths.attempt(f"{held}.1")),
    }
    forged = run.cli(*run.launch_words("copied", "exit:5"), env=copied)
    assert forged.status == 5
    assert "does not descend from that attempt" in forged.err
    assert run.show("tag:copied").state == "failed", "it was submitted, and ran on its own"
    elsewhere = {**copied, "PRAXIST_EXPERIMENT_ATTEMPT_DIR": str(run.paths.attempt("j-99.1"))}
    other = run.cli(*run.launch_words("elsewhere", "exit:4"), env=elsewhere)
    assert other.status == 4
    assert f"names {held}.1, this is not part of it: the directory is not" in other.err
    dead = {**copied, "PRAXIST_EXPERIMENT_ATTEMPT_ID": f"{held}.9",
            "PRAXIST_EXPERIMENT_ATTEMPT_DIR": str(run.paths.attempt(f"{held}.9"))}  # fmt: skip
    assert run.cli(*run.launch_words("dead", "exit:6"), env=dead).status == 6
    # One attempt that takes itself for another: in one run, but not part of it.
    stolen = shlex.join([f"{name}={value}" for name, value in copied.items()])
    thief = _shell(run, "thief", f"env {stolen} {_launch(run, 'stolen', 'true')}")
    run.open_gate("go")
    with run.client() as client:
        assert client.wait(thief, 60).state == "completed"
        assert client.wait(held, 60).state == "completed"
        assert "stolen" in {job.tag for job in client.queue(include_terminal=True)}
    run.down()
    assert os.path.isdir(run.dir)


def test_a_child_that_outlives_its_evaluator_launches_inside_too(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    run.up()
    inner = _launch(run, "inner", "sh", "-c", "echo nested")
    gate = run.gate("ended")
    wait = f"until [ -e {gate} ]; do sleep 0.05; done"
    job = _shell(run, "outer", f"({wait}; {inner}; echo code $?) & exit 0")
    wait_until(lambda: "evaluator ended" in str(run.show(job).note), "the evaluator to end")
    run.open_gate("ended")
    with run.client() as client:
        assert client.wait(job, 60).state == "completed"
        assert len(client.queue(include_terminal=True)) == 1
    log = run.paths.attempt_log(f"{job}.1").read_text()
    assert "nested" in log
    assert "code 0" in log
    run.down()
    oracle.check_ended(run)
