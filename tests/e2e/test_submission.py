"""Submitting through the installed command: identity, duplicates, exact bytes, refusals."""

from __future__ import annotations

import base64
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.protocol import events as ev
from tests.support import oracle
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun


def _queued(events: list[Any]) -> list[ev.JobQueued]:
    return [e for e in events if isinstance(e, ev.JobQueued)]


def test_twenty_at_once_are_one_job(run: Run) -> None:
    gate = f"wait:{run.gate('go')}"
    words = run.launch_words("same", gate, "exit:9")
    processes = [run.start(*words) for _ in range(20)]
    verdicts = [process.stderr.readline().split()[:2] for process in processes if process.stderr]
    assert {name for _, name in verdicts} == {"j-1"}
    words_of = sorted(word for word, _ in verdicts)
    assert words_of == ["joined"] * 19 + ["started"], words_of
    run.open_gate("go")
    for process in processes:
        process.communicate(timeout=60)
    assert {process.returncode for process in processes} == {9}
    run.acknowledge("same", "j-1")
    run.down()
    events = oracle.check_ended(run)
    assert len(_queued(events)) == 1


def test_another_peer_is_told_whose_tag_it_is(run: Run) -> None:
    with run.client() as client:
        job = run.submit(client, "ours", f"wait:{run.gate('go')}", peer="first").job.job
        joined = run.cli("submit", "--peer", "second", "--tag", "ours", "--", "true")
        assert joined.status == 0
        assert joined.err.startswith("joined")
        assert "first" in joined.err
        run.open_gate("go")
        assert client.wait(job, 60).state == "completed"
        again = run.cli("launch", "--peer", "second", "--tag", "ours", "--", "true")
        assert (again.status, again.err.split()[0]) == (0, "done")
    run.down()
    assert len(_queued(oracle.check_ended(run))) == 1


def test_the_same_request_while_the_broker_is_killed(run: Run) -> None:
    """Twenty threads repeat their requests over restarts: each tag is one job, once."""
    faults: list[str] = []

    def submit(number: int) -> None:
        with run.client(timeout_s=40.0) as client:
            for index in range(8):
                tag = f"t{index}"
                try:
                    job = client.submit(
                        tag=tag,
                        command=run.evaluator("exit:0"),
                        peer=f"p{number}",
                        environment=run.environment,
                        cwd=str(run.dir),
                    ).job.job
                except PraxistError as error:
                    if not error.row.retryable:
                        faults.append(f"{tag}: {error}")
                    continue
                run.acknowledge(tag, job)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        run.kill("broker")
        run.until_healthy()
    for thread in threads:
        thread.join()
    assert not faults, faults
    assert run.acknowledged
    with run.client() as client:
        for job in run.acknowledged.values():
            assert client.wait(job, 60).state == "completed"
    run.down()
    oracle.check_ended(run)


def test_what_arrives_is_what_was_sent(run: Run) -> None:
    arguments = [
        b"with space", b'"quotes" and \'others\'', b"line\nbreak\ttab", "\U0001f389".encode(),
        b"\xff\xfe undecodable", b"", b"--peer", b"-", b"$(id) `id` $HOME *", b"--", b"\\n",
    ]  # fmt: skip
    variables = {
        "PLAIN": b"a b",
        "LINES": b"1\n2",
        "RAW": b"\x80\x81",
        "EMPTY": b"",
        "U": b"\xc3\xa9",
    }
    target = run.gate("arrived")
    words = [os.fsencode(w) for w in run.launch_words("bytes", f"dump:{target}", "exit:0")]
    words += [b"--", *arguments]
    environment = {**run.environment, **{k: os.fsdecode(v) for k, v in variables.items()}}
    command = run.cli(*[os.fsdecode(word) for word in words], env=environment)
    assert command.status == 0, command
    found = json.loads(Path(target).read_text())
    decoded = [base64.b64decode(item) for item in found["arguments"]]
    assert decoded == arguments
    seen = {
        base64.b64decode(name): base64.b64decode(value)
        for name, value in found["environment"].items()
    }
    for name, value in variables.items():
        assert seen[name.encode()] == value
    assert base64.b64decode(found["cwd"]) == os.fsencode(run.dir.parent)
    own = {name for name in seen if name.startswith((b"PRAXIST_", b"CUDA_", b"NVIDIA_"))}
    assert own >= {
        b"PRAXIST_RUN_DIR", b"PRAXIST_PEER_ID", b"PRAXIST_EXPERIMENT_ID",
        b"PRAXIST_EXPERIMENT_ATTEMPT_ID", b"PRAXIST_EXPERIMENT_ATTEMPT_DIR",
        b"PRAXIST_RESOURCE_PROFILE",
    }  # fmt: skip
    assert len(found["descriptors"]) == 4, "0, 1, 2 and the one that lists them"
    run.down()
    oracle.check_ended(run)


def test_refused_at_once_and_nothing_left(run: Run) -> None:
    long = "x" * 140_000
    with run.client() as client:
        for what, options, code in (
            ("nul", {"command": ["true", "a\0b"]}, "bad_command"),
            ("long", {"command": ["true"], "environment": {"LONG": long}}, "too_large"),
            (
                "much",
                {"command": ["true"], "environment": {f"V{n}": "y" * 100_000 for n in range(25)}},
                "too_large",
            ),
            ("profile", {"command": ["true"], "profile": "nope"}, "unknown_profile"),
        ):
            with pytest.raises(PraxistError) as caught:
                client.submit(tag=what, peer="p", **options)
            assert caught.value.code == code, (what, caught.value)
            assert caught.value.exit_code == 65
        assert client.queue(include_terminal=True) == []
    typed = run.cli("submit", "--peer", "p", "--tag", "t", "--cwd", "/no/such", "--", "true")
    assert (typed.status, typed.err.split()[0]) == (65, "rejected")
    assert run.cli("submit", "--peer", "p", "--tag", "t").status == 2
    run.down()
    assert _queued(oracle.check_ended(run)) == []
    assert list(run.paths.attempts.glob("*")) == []


def test_a_program_that_cannot_be_executed_fails_for_good(make_run: MakeRun) -> None:
    run = make_run(retries=3)
    run.up()
    script = run.dir / "not-executable.sh"
    script.write_text("#!/bin/sh\n")
    nonsense = run.dir / "nonsense"
    nonsense.write_bytes(b"\x7fELF nonsense")
    nonsense.chmod(0o755)
    for tag, program, status in (
        ("missing", "/no/such/program", 127),
        ("unfound", "no-such-program-anywhere", 127),
        ("plain", str(script), 126),
        ("format", str(nonsense), 126),
        ("directory", str(run.dir), 126),
    ):
        ended = run.cli("launch", "--peer", "p", "--tag", tag, "--", program)
        assert ended.status == status, (tag, ended)
        job = run.show(f"tag:{tag}")
        assert (job.state, job.attempts) == ("failed", 1), tag
        assert job.failure_signature
    with run.client() as client:
        gone = run.dir / "gone"
        gone.mkdir()
        first = run.submit(client, "first", f"wait:{run.gate('go')}").job.job
        second = run.submit(client, "second", f"wait:{run.gate('go')}").job.job
        nowhere = client.submit(tag="nowhere", command=["true"], peer="p", cwd=gone).job.job
        gone.rmdir()
        run.open_gate("go")
        job = client.wait(nowhere, 60)
        assert (job.state, job.attempts) == ("failed", 1)
        assert str(gone) in str(job.failure_signature)
        assert [client.wait(each, 60).state for each in (first, second)] == ["completed"] * 2
    run.down()
    oracle.check_ended(run)


def test_a_client_killed_right_after_its_request_leaves_one_job(run: Run) -> None:
    processes = [run.start(*run.launch_words("k", "exit:0")) for _ in range(5)]
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with run.client() as client:
        job = run.submit(client, "k", "exit:0").job.job
        assert client.wait(job, 60).state == "completed"
    run.down()
    assert len(_queued(oracle.check_ended(run))) == 1


def test_a_secret_is_in_no_file(run: Run) -> None:
    secret = "sk-verysecretvalue0123456789"
    environment = {**run.environment, "SERVICE_API_KEY": secret}
    with run.client() as client:
        job = run.submit(client, "s", "exit:0", environment=environment).job.job
        assert client.wait(job, 60).state == "completed"
        held = run.submit(client, "s1", f"wait:{run.gate('s')}", environment=environment).job.job
        both = run.submit(client, "s2", f"wait:{run.gate('s')}", environment=environment).job.job
        waits = run.submit(client, "s3", "exit:7", environment=environment).job.job
    run.until_started(f"{held}.1", f"{both}.1")
    run.kill_all()
    run.up()
    run.open_gate("s")
    with run.client() as client:
        assert client.wait(held, 60).state == "completed"
        assert client.wait(both, 60).state == "completed"
        assert client.show(waits).state == "waiting_for_credentials"
        run.submit(client, "s3", "exit:7", environment=environment)
        assert client.wait(waits, 60).exit_code == 7
    run.down()
    oracle.check_ended(run, secrets=[secret.encode()])
