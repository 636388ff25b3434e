"""Cancel, retry, stop, the waits and their exit codes, as typed."""

from __future__ import annotations

import signal

from praxist_zmq.protocol import events as ev
from tests.support import oracle
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


def test_cancel_queued_and_running(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    run.up()
    with run.client() as client:
        running = run.submit(client, "r", f"wait:{run.gate('never')}").job.job
        queued = run.submit(client, "q", "exit:0").job.job
        run.until_started(f"{running}.1")
        waiting = run.start("wait", queued)
        assert run.cli("cancel", running).status == 65
        assert client.show(running).state == "running"
        assert run.cli("cancel", queued, "--reason", "not needed").status == 0
        waiting.communicate(timeout=60)
        assert waiting.returncode == 65
        assert client.show(queued).state == "cancelled"
        assert run.cli("cancel", running, "--yes").status == 0
        ended = client.wait(running, 60)
        assert ended.state == "cancelled"
        assert run.cli("cancel", running, "--yes").status == 65
    assert not run.experiments()
    run.down()
    oracle.check_ended(run)


def test_an_experiment_that_ends_with_0_on_term_is_no_result(make_run: MakeRun) -> None:
    run = make_run()
    run.up()
    quorum = ("--mature-quorum", "1", "--publish-completed")
    assert run.cli("generation", "open", "0", *quorum).status == 0
    script = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"
    words = ["--peer", "p", "--tag", "t", "--work-class", "mature", "--", "sh", "-c", script]
    launch = run.start("launch", *words)
    wait_until(lambda: list(run.paths.experiment_logs.glob("j-1.1.log")), "its log")
    wait_until(lambda: run.cli("logs", "j-1").out, "the trap to be set")
    assert run.cli("cancel", "j-1", "--yes", "--reason", "superseded").status == 0
    _, told = launch.communicate(timeout=60)
    assert launch.returncode == 65, told
    assert "cancelled j-1 exit 0" in told
    assert "superseded" in told
    (job,) = run.cli("queue", "--state", "cancelled", "--json").ok().document["jobs"]
    assert (job["state"], job["exit_code"]) == ("cancelled", 0)
    assert run.cli("results", "list", "--json").ok().document["total"] == 0
    assert run.cli("retry", "j-1", "--", "true").status == 0
    assert run.cli("wait", "j-1").status == 0
    run.down()
    oracle.check_ended(run)


def test_retry(run: Run) -> None:
    words = run.launch_words("again", "codes:3,0")
    assert run.cli(*words).status == 3
    refused = run.cli(*words)
    assert (refused.status, refused.err.split()[0]) == (65, "rejected")
    retried = run.cli(*run.launch_words("again", "codes:3,0", options=["--retry-terminal"]))
    assert (retried.status, retried.err.split()[0]) == (0, "retrying"), retried
    done = run.cli(*words)
    assert (done.status, done.err.split()[0]) == (0, "done")
    assert run.cli(*run.launch_words("none", "exit:0", options=["--retry-terminal"])).status == 65
    with run.client() as client:
        job = run.submit(client, "plain", "codes:4,0").job.job
        assert client.wait(job, 60).exit_code == 4
        assert run.cli("retry", job).status == 0
        ended = client.wait(job, 60)
        assert (ended.state, ended.attempts) == ("completed", 2)
    run.down()
    events = oracle.check_ended(run)
    assert len([e for e in events if isinstance(e, ev.JobRetried)]) == 2


def test_limits_of_waiting(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    run.up()
    with run.client() as client:
        holder = run.submit(client, "h", f"wait:{run.gate('go')}", "exit:2").job.job
        run.until_started(f"{holder}.1")
        assert run.launch("t", "exit:0", options=["--admission-timeout", "1s"]).status == 75
        assert run.launch("m", "exit:0", options=["--max-wait", "1s"]).status == 124
        assert run.cli("wait", holder, "--timeout", "1s").status == 124
        states = {job.tag: job.state for job in client.queue(include_terminal=True)}
        assert (states["h"], states["m"]) == ("running", "queued")
        assert states.get("t") == "rejected"
        run.open_gate("go")
        assert run.cli("wait", holder).status == 2
        assert run.launch("m", "exit:0").status == 0
        assert run.launch("t", "exit:0").status == 0, "nothing ran: the tag is free"
        assert run.cli("wait", "tag:m").status == 0
        everything = run.cli("wait", "--all")
        assert (everything.status, everything.err) == (1, "2 completed, 1 failed\n")
        assert run.cli("wait", holder, "tag:m").status == 1
        assert run.cli("wait", "j-999").status == 65
    run.down()
    oracle.check_ended(run)


def test_interrupt_detaches(run: Run) -> None:
    process = run.start(*run.launch_words("c", f"wait:{run.gate('go')}", "exit:8"))
    run.until_started("j-1.1")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "detached" in err
    with run.client() as client:
        assert client.show("j-1").state == "running"
        run.open_gate("go")
        assert client.wait("j-1", 60).exit_code == 8
    run.down()
    oracle.check_ended(run)


def test_stop(make_run: MakeRun) -> None:
    run = make_run(slots=2)
    run.up()
    with run.client() as client:
        run.submit(client, "plain", f"wait:{run.gate('never')}")
        run.submit(
            client, "bad", "ignore-term", f"daemonize:{run.gate('never')}",
            f"wait:{run.gate('never')}",
        )  # fmt: skip
        queued = [run.submit(client, f"q{n}", "exit:0").job.job for n in range(3)]
        wait_until(lambda: run.read_lines("daemon") and run.read_lines("ignoring"), "the daemon")
        run.until_started("j-1.1", "j-2.1")
        waiting = run.start("wait", queued[0])
        assert run.cli("stop").status == 2
        dry = run.cli("stop", "--dry-run").ok()
        assert "would" in dry.out
        assert client.show(queued[0]).state == "queued"
    stopped = run.cli("stop", "--yes", "--grace", "1s")
    assert stopped.status == 0, stopped
    assert not run.experiments()
    waiting.communicate(timeout=60)
    assert waiting.returncode in (65, 69)
    wait_until(lambda: not set(run.processes()) - {"registry"}, "the scheduler to be gone")
    assert run.paths.shutdown_fence.exists()
    oracle.check_ended(run)
    refused = run.launch("late", "exit:0")
    assert (refused.status, refused.err.split()[0]) == (69, "unavailable")
    run.up()
    assert not run.paths.shutdown_fence.exists()
    assert run.launch("late", "exit:0").status == 0
    run.down()
    oracle.check_ended(run)


def test_nothing_there(make_run: MakeRun) -> None:
    run = make_run()
    for words, status in (
        (["launch", "--peer", "p", "--tag", "t", "--", "true"], 69),
        (["wait", "j-1"], 69),
        (["status"], 3),
        (["queue"], 69),
        (["down"], 0),
    ):
        assert run.cli(*words, timeout_s=20).status == status, words
    run.up()
    run.kill_all()
    sent = run.cli("--timeout", "2s", "submit", "--peer", "p", "--tag", "t", "--", "true")
    assert sent.status in (69, 75), sent
    # Two lines; the second names the run's directory, and a long one wraps.
    assert len(sent.err.splitlines()) <= 3 + len(str(run.dir)) // 80


def test_waiting_for_all_ends_with_the_last(run: Run) -> None:
    with run.client() as client:
        for milliseconds in (1_000, 4_000, 16_000):
            # A command may take longer to start than the experiment takes to end.
            run.submit(client, f"well{milliseconds}", f"pause:{milliseconds}")
            waited = run.cli("wait", "--all", "--timeout", "60s")
            if "nothing to wait for" not in waited.err:
                break
    assert waited.status == 0, waited
    assert "completed j-" in waited.out
