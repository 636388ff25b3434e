"""How experiments end, as `launch` tells it: own codes, retries, signals, what they leave."""

from __future__ import annotations

import pytest

from praxist_zmq.protocol import events as ev
from tests.support import oracle
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


def test_every_job_ends_with_its_own_code(run: Run) -> None:
    expected = {"exit:0": 0, "exit:3": 3, "segv": 139, "codes:75,0": 0, "codes:75": 75}
    started = {action: run.start(*run.launch_words(f"t/{action}", action)) for action in expected}
    found = {}
    for action, process in started.items():
        out, err = process.communicate(timeout=30)
        found[action] = process.returncode
        assert out == "", (out, err)
    assert found == expected
    with run.client() as client:
        jobs = {job.tag: job for job in client.queue(include_terminal=True)}
    assert jobs["t/exit:0"].state == "completed"
    assert jobs["t/codes:75,0"].state == "completed"
    assert jobs["t/codes:75,0"].attempts == 2
    assert jobs["t/codes:75"].attempts == 2
    assert jobs["t/codes:75"].state == "failed"
    assert jobs["t/segv"].signal == 11
    run.down()
    events = oracle.check_ended(run)
    requeued = [e for e in events if isinstance(e, ev.JobRequeued)]
    assert len(requeued) == 2
    assert all(e.consumed for e in requeued)


def test_closed_stdout_does_not_matter(run: Run) -> None:
    assert run.launch("quiet", "close-stdio", "exit:4").status == 4
    run.down()
    oracle.check_ended(run)


@pytest.mark.parametrize("what", ["daemonize", "child"])
def test_what_an_experiment_leaves_keeps_its_slot(make_run: MakeRun, what: str) -> None:
    run = make_run(slots=1)
    run.up()
    with run.client() as client:
        first = run.submit(client, "leaves", f"{what}:{run.gate('d')}", "exit:5").job.job
        second = run.submit(client, "next", "exit:0").job.job
        kind = "daemon" if what == "daemonize" else "child"
        wait_until(lambda: run.read_lines(kind) and run.read_lines("end"), "the parent to end")
        ended = [e.type for e in client.events(job=first)]
        wait_until(
            lambda: any("exited" in e.type for e in client.events(job=first)),
            f"the leader's end in the ledger; {ended}",
        )
        assert client.show(first).state == "running"
        assert client.show(second).state == "queued"
        run.open_gate("d")
        job = client.wait(first, 60)
        assert (job.state, job.exit_code) == ("failed", 5)
        assert client.wait(second, 60).state == "completed"
    run.down()
    oracle.check_ended(run)


def test_one_that_ignores_term_is_killed(run: Run) -> None:
    with run.client() as client:
        job = run.submit(client, "stubborn", "ignore-term", f"wait:{run.gate('never')}").job.job
        wait_until(lambda: run.read_lines("ignoring"), "the experiment to ignore SIGTERM")
        assert run.cli("cancel", job, "--yes").status == 0
        ended = client.wait(job, 60)
        assert ended.state == "cancelled"
        assert ended.signal == 9
    run.down()
    oracle.check_ended(run)


def test_much_output_while_the_scheduler_dies_twice(run: Run) -> None:
    with run.client() as client:
        job = run.submit(
            client, "loud", "write:1", f"wait:{run.gate('a')}", "write:100",
            f"wait:{run.gate('b')}", "write:99", "exit:6",
        ).job.job  # fmt: skip
        run.until_started(f"{job}.1")
        for gate in ("a", "b"):
            run.open_gate(gate)
            run.kill_all()
            run.up()
        ended = client.wait(job, 60)
        assert (ended.state, ended.exit_code) == ("failed", 6)
        log = run.paths.attempt_log(f"{job}.1")
        assert log.stat().st_size == 200 * 1024 * 1024
        log.unlink()
    run.down()
    oracle.check_ended(run)
