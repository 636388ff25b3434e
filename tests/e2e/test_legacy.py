"""A run without a scheduler in legacy mode: the peer starts its own evaluator.

And runs that have one, or had one: nothing in the environment makes them legacy.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.run import Command, Run, send
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until

LEGACY = {"PRAXIST_RESOURCE_SCHEDULER_MODE": "legacy"}
WAITS = ("--poll", "0.1", "--admission-timeout", "20s")
HOSTILE: list[dict[str, str]] = [
    {},
    LEGACY,
    {"PRAXIST_RESOURCE_SCHEDULER_MODE": ""},
    {"PRAXIST_RESOURCE_SCHEDULER_MODE": "\u2026\x1b[2J"},
    {
        **LEGACY,
        "PRAXIST_EXPERIMENT_SCHEDULER_CONFIG": '{"mode": "legacy"}',
        "PRAXIST_EXPERIMENT_SCHEDULER_ENDPOINT": "",
        "PRAXIST_LAUNCH_GUARD_ENABLED": "0",
        "PRAXIST_MAX_PARALLEL_RUNS_PER_PEER": "many",
        "PROTECTED_PIDS_DIR": "/nowhere/else",
        "AUTO_RESEARCH_RUN_DIR": " ",
    },
    {
        "PRAXIST_EXPERIMENT_SCHEDULER_CONFIG": "{",
        "PRAXIST_EXPERIMENT_SCHEDULER_ENDPOINT": "ipc:///tmp/none.sock",
    },
]


@pytest.fixture
def run(make_run: MakeRun) -> Iterator[Run]:
    """A run directory that never had a scheduler."""
    made = make_run()
    yield made
    assert list(made.paths.protected_pids.glob("*.json")) == []


def launch(run: Run, tag: str, *actions: str, options: tuple[str, ...] = ()) -> Command:
    """A legacy launch to its end."""
    return run.cli(*run.launch_words(tag, *actions, options=options), env=LEGACY)


def start(
    run: Run, tag: str, *actions: str, options: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """A legacy launch whose evaluator runs."""
    began = len(run.read_lines("start"))
    process = run.start(*run.launch_words(tag, *actions, options=options), env=LEGACY)
    wait_until(lambda: len(run.read_lines("start")) > began, f"{tag} to start")
    return process


def manifests(run: Run) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in run.paths.protected_pids.glob("*.json")]


def pids(run: Run) -> list[int]:
    """What `protected list` says lives."""
    return [int(line) for line in run.cli("protected", "list").ok().out.split()]


@pytest.mark.parametrize(("action", "status"), [("exit:0", 0), ("exit:7", 7), ("segv", 139)])
def test_its_end_is_ours(run: Run, action: str, status: int) -> None:
    ended = launch(run, "t", action)
    assert ended.status == status, ended
    assert ended.err.startswith("started  t  pid ")
    assert not run.paths.scheduler.exists()


def test_the_manifest_is_there_before_its_first_act_and_holds_no_secret(run: Run) -> None:
    secret = "hunter2-canary"
    process = run.start(
        *run.launch_words("t", f"wait:{run.gate('go')}", "--", f"--token={secret}"),
        env={**LEGACY, "API_TOKEN": secret},
    )
    wait_until(lambda: run.read_lines("start"), "the start")
    (found,) = manifests(run)
    (line,) = run.read_lines("start")
    assert found["pid"] == found["pgid"] == int(line[2]) == os.getpgid(int(line[2]))
    assert (found["peer"], found["tag"]) == ("p1", "t")
    assert found["launcher"]["pid"] == process.pid
    assert pids(run) == [found["pid"]]
    kept = b"".join(p.read_bytes() for p in run.dir.rglob("*") if p.is_file())
    assert secret.encode() not in kept
    run.open_gate("go")
    assert process.wait(20) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on(run: Run, number: signal.Signals) -> None:
    process = start(run, "t", f"wait:{run.gate('never')}")
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    assert not run.experiments()


def test_ctrl_c_on_a_terminal_ends_it(run: Run) -> None:
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        run.words(*run.launch_words("t", f"wait:{run.gate('never')}")),
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**run.environment, **LEGACY},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    try:
        wait_until(lambda: run.read_lines("start"), "the start")
        (pid,) = pids(run)
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
        os.write(ours, b"\x03")
        assert process.wait(20) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def test_it_loads_neither_pydantic_nor_zmq(run: Run) -> None:
    program = (
        "import sys; from praxist_zmq.cli.main import run; code = run(sys.argv[1:]);"
        "heavy = {'pydantic', 'zmq', 'rich'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else code)"
    )
    words = ["--run-dir", str(run.dir), *run.launch_words("t", "exit:3")]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**run.environment, **LEGACY},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 3, done.stderr


def test_nohup_is_respected(run: Run) -> None:
    words = run.launch_words("t", f"wait:{run.gate('go')}", "exit:4")
    process = run.start(*words, env=LEGACY, prefix=["nohup"])
    wait_until(lambda: run.read_lines("start"), "the start")
    process.send_signal(signal.SIGHUP)
    (pid,) = pids(run)
    assert send(pid, signal.SIGHUP)
    run.open_gate("go")
    assert process.wait(20) == 4


def test_it_waits_for_the_whole_group(run: Run) -> None:
    process = start(run, "t", f"child:{run.gate('go')}", "exit:5")
    wait_until(lambda: run.read_lines("end"), "the leader's end")
    assert process.poll() is None
    assert len(pids(run)) == 1
    run.open_gate("go")
    assert process.wait(20) == 5
    assert run.read_lines("child-end")


def test_the_cap(run: Run) -> None:
    first = start(run, "a", f"wait:{run.gate('go')}")
    refused = launch(run, "b", "exit:0", options=("--max-active", "1"))
    assert refused.status == 75, refused
    env = {**LEGACY, "PRAXIST_MAX_PARALLEL_RUNS_PER_PEER": "1"}
    assert run.cli(*run.launch_words("b", "exit:0"), env=env).status == 75
    env["PRAXIST_MAX_PARALLEL_RUNS_PER_PEER"] = "many"
    assert run.cli(*run.launch_words("b", "exit:0"), env=env).status == 2
    other = run.cli(
        *run.launch_words("b", "exit:4", peer="p2", options=("--max-active", "1")), env=LEGACY
    )
    assert other.status == 4
    waiting = run.start(
        *run.launch_words("c", "exit:6", options=("--max-active", "1", *WAITS)), env=LEGACY
    )
    assert waiting.stderr is not None
    assert waiting.stderr.readline().startswith("waiting  c  peer p1 runs 1 of 1")
    run.open_gate("go")
    assert (first.wait(20), waiting.wait(20)) == (0, 6)


def test_many_at_once_keep_the_cap(run: Run) -> None:
    words = [run.launch_words(f"t{n}", f"wait:{run.gate('go')}", options=("--max-active", "2"))
             for n in range(6)]  # fmt: skip
    processes = [run.start(*each, env=LEGACY) for each in words]
    wait_until(lambda: sum(p.poll() is None for p in processes) == 2, "four to be refused")
    assert len(pids(run)) == 2
    run.open_gate("go")
    assert sorted(process.wait(20) for process in processes) == [0, 0, 75, 75, 75, 75]
    assert len(run.read_lines("start")) == 2


def test_an_interrupt_while_it_waits(run: Run) -> None:
    first = start(run, "a", f"wait:{run.gate('go')}")
    waiting = run.start(
        *run.launch_words("b", "exit:0", options=("--max-active", "1", *WAITS)), env=LEGACY
    )
    assert waiting.stderr is not None
    assert waiting.stderr.readline().startswith("waiting")
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(20) == 130
    assert "nothing was started" in waiting.stderr.read()
    run.open_gate("go")
    assert first.wait(20) == 0
    assert len(run.read_lines("start")) == 1


def test_a_tag_twice(run: Run) -> None:
    first = start(run, "a", f"wait:{run.gate('go')}")
    refused = launch(run, "a", "exit:0")
    assert refused.status == 65
    assert refused.err.startswith("rejected  a  this peer already runs this tag")
    assert launch(run, "a", "exit:3", options=("--allow-duplicate",)).status == 3
    run.open_gate("go")
    assert first.wait(20) == 0


def test_the_fence_refuses_and_ends_the_waiting(run: Run) -> None:
    first = start(run, "a", f"wait:{run.gate('go')}")
    waiting = run.start(
        *run.launch_words("b", "exit:0", options=("--max-active", "1", *WAITS)), env=LEGACY
    )
    assert waiting.stderr is not None
    assert waiting.stderr.readline().startswith("waiting")
    run.paths.shutdown_fence.touch()
    assert waiting.wait(20) == 69
    assert launch(run, "c", "exit:0").status == 69
    run.open_gate("go")
    assert first.wait(20) == 0, "what runs goes on"
    assert len(run.read_lines("start")) == 1


def test_what_a_killed_launch_leaves_is_seen_and_cleared(run: Run) -> None:
    process = start(run, "a", f"wait:{run.gate('go')}")
    process.kill()
    process.wait()
    (pid,) = pids(run)
    assert launch(run, "a", "exit:0").status == 65, "it lives"
    run.open_gate("go")
    wait_until(lambda: pids(run) == [], "its end")
    listed = run.cli("protected", "list").ok()
    assert listed.err.startswith(f"stale  pid-{pid}-")
    assert launch(run, "a", "exit:8").status == 8


@pytest.mark.parametrize("words", [["/nowhere/program"], ["/etc"]])
def test_what_cannot_be_executed(run: Run, words: list[str]) -> None:
    refused = run.cli("launch", "--peer", "p1", "--tag", "t", "--json", "--", *words, env=LEGACY)
    assert refused.status == 65
    assert refused.document["error"]["code"] == "bad_command"
    assert refused.document["exit_source"] == "scheduler"


def test_the_document_has_stdout_for_itself(run: Run) -> None:
    ended = launch(run, "t", "say:hello", "exit:2", options=("--json",))
    assert ended.status == ended.document["exit_code"] == 2
    assert ended.document["verdict"] == "started"
    assert ended.document["exit_source"] == "job"
    assert "hello" in ended.err


def test_a_contract_says_legacy(run: Run, tmp_path: Path) -> None:
    text = run.contract.read_text()
    contract = tmp_path / "legacy.yaml"
    contract.write_text(text.replace("mode: central", "mode: legacy"))
    ended = run.cli(*run.launch_words("t", "exit:3", options=("--config", str(contract))))
    assert ended.status == 3, ended
    central = run.launch_words("t", "exit:3", options=("--config", str(run.contract)))
    assert run.cli(*central, env=LEGACY).status == 69
    contract.write_text(text.replace("mode: central", "mode: lagacy"))
    assert (
        run.cli(*run.launch_words("t", "exit:3", options=("--config", str(contract)))).status == 78
    )
    assert len(run.read_lines("start")) == 1


@pytest.mark.parametrize("env", [env for env in HOSTILE if env is not LEGACY])
def test_nothing_but_legacy_is_legacy(run: Run, env: dict[str, str]) -> None:
    if env.get("PRAXIST_MAX_PARALLEL_RUNS_PER_PEER"):
        env = {**env, "PRAXIST_EXPERIMENT_SCHEDULER_CONFIG": '{"mode": "legacy", "mode": "x"}'}
    refused = run.cli(*run.launch_words("t", "exit:0"), env=env)
    assert refused.status == 69, refused
    assert not run.read_lines()


def test_a_central_run_stays_central(make_run: MakeRun, tmp_path: Path) -> None:
    run, other = make_run(), make_run("other")
    run.up()
    for number, env in enumerate(HOSTILE):
        done = run.cli(*run.launch_words(f"t{number}", "exit:3"), env=env)
        assert done.status == 3, (env, done)
    assert [words[1] for words in run.read_lines("start")] == [
        f"j-{number}.1" for number in range(1, len(HOSTILE) + 1)
    ]
    # The file of one run in another says nothing about that one.
    other.paths.scheduler.mkdir()
    shutil.copy(run.paths.endpoint, other.paths.endpoint)
    foreign = other.cli(*other.launch_words("t", "exit:0"), env=LEGACY)
    assert foreign.status == 73, foreign
    assert "names another run's scheduler" in foreign.err
    run.down()
    for env in HOSTILE:
        absent = run.cli(*run.launch_words("late", "exit:0"), env=env)
        assert absent.status == 69, (env, absent)
    assert len(run.read_lines("start")) == len(HOSTILE)
    assert not other.read_lines()


def test_the_folder_of_a_live_scheduler_taken_away(make_run: MakeRun) -> None:
    run = make_run()
    run.up()
    away = run.dir / "away"
    run.paths.scheduler.rename(away)
    refused = launch(run, "t", "exit:0")
    away.rename(run.paths.scheduler)
    assert refused.status == 69, refused
    assert not run.read_lines()
    run.down()


def test_a_peer_keeps_to_its_run(make_run: MakeRun) -> None:
    run, other = make_run(), make_run("other")
    words = run.launch_words("t", "exit:0")
    for env in (
        {"PRAXIST_RUN_DIR": str(other.dir)},
        {"AUTO_RESEARCH_RUN_DIR": str(other.dir)},
        {"PROTECTED_PIDS_DIR": str(other.paths.protected_pids)},
        {"PRAXIST_RUN_DIR": str(run.dir), "AUTO_RESEARCH_RUN_DIR": str(other.dir)},
    ):
        refused = run.cli(*words, env={**LEGACY, **env})
        assert refused.status == 2, (env, refused)
    assert not run.read_lines()
    link = run.dir.parent / "link"
    link.symlink_to(run.dir)
    same = {"PRAXIST_RUN_DIR": f"{link}/.", "PROTECTED_PIDS_DIR": str(link / "protected_pids")}
    assert run.cli(*words, env={**LEGACY, **same}).status == 0


def test_a_retry_is_for_the_peer_itself(run: Run) -> None:
    words = run.launch_words("t", "exit:0", options=("--retry-terminal",))
    assert run.cli(*words, env={**LEGACY, "PEER_ID": "p2"}).status == 77
    assert run.cli(*words, env={**LEGACY, "PEER_ID": "p1", "PRAXIST_PEER_ID": ""}).status == 0
    assert len(run.read_lines("start")) == 1


def test_protected_register_wait_unregister(run: Run) -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        pid = str(stranger.pid)
        assert run.cli("protected", "unregister", pid).status == 1
        registered = ("protected", "register", pid, "--peer", "p1", "--tag", "long")
        run.cli(*registered).ok()
        run.cli(*registered).ok()
        assert pids(run) == [stranger.pid]
        twice = run.cli("protected", "register", str(os.getpid()), *registered[3:])
        assert twice.status == 65
        assert run.cli("protected", "wait", "--peer", "p1", "--timeout", "0.2").status == 1
        assert run.cli("protected", "wait", "--peer", "p2", "--timeout", "9s").status == 0
        assert launch(run, "x", "exit:0", options=("--max-active", "1")).status == 75
        assert run.cli("protected", "unregister", pid, "--peer", "p2").status == 1
        run.cli(*registered).ok()
        assert stranger.poll() is None, "nothing signals it"
    finally:
        stranger.kill()
        stranger.wait()
    assert run.cli("protected", "wait", "--peer", "p1", "--tag", "long").status == 0
    assert run.cli("protected", "unregister", pid, "--peer", "p1").status == 0
    assert run.cli("protected", "register", pid, "--peer", "p1").status == 65


def test_a_scheduler_s_own_manifest_is_listed_and_stays(make_run: MakeRun) -> None:
    run = make_run()
    run.up()
    with run.client() as client:
        job = run.submit(client, "t", f"wait:{run.gate('go')}").job.job
        run.until_started(f"{job}.1")
        wait_until(lambda: pids(run), "the manifest")
        (pid,) = pids(run)
        document = run.cli("protected", "list", "--json").ok().document
        assert [row["attempt"] for row in document["entries"]] == [f"{job}.1"]
        assert run.cli("protected", "unregister", str(pid)).status == 77
        assert send(pid, 0)
        run.open_gate("go")
        assert client.wait(job, 20).state == "completed"
    run.down()
