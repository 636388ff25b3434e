"""Generations as a user meets them: a close with clients that wait, close files, a rerun."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from praxist_zmq.protocol import events as ev
from tests.support import oracle
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


def signal_file(run: Run, generation: int) -> Path:
    return run.dir / f"gen_{generation}" / "CLOSING_SIGNAL"


def generation(run: Run, *number: str) -> dict[str, Any]:
    return run.cli("generation", "show", *number, "--json").ok().document


def fill(run: Run, count: int) -> None:
    """One batch of jobs that only wait."""
    with run.client() as client:
        results = client.submit_many(
            [
                {
                    "tag": f"q{n}", "peer": f"p{n % 7}", "command": run.evaluator("exit:0"),
                    "cwd": str(run.dir), "environment": run.environment,
                }
                for n in range(count)
            ]
        )  # fmt: skip
    assert len(results) == count


def test_a_close_with_a_full_queue_and_waiting_clients(make_run: MakeRun) -> None:
    run = make_run(slots=2)
    run.up()
    gate = f"wait:{run.gate('g')}"
    runners = [run.start(*run.launch_words(f"r{n}", gate, f"exit:{n}")) for n in (0, 3)]
    run.until_started("j-1.1", "j-2.1")
    fill(run, 200)
    clients = [run.start(*run.launch_words(f"c{n}", "exit:0", peer=f"c{n}")) for n in range(4)]
    wait_until(lambda: generation(run)["jobs"]["queued"] == 204, "four more in the queue")
    assert not signal_file(run, 0).exists()
    closed = run.cli("generation", "close", "0", "--yes", "--json").ok().document
    assert len(closed["rejected"]) == 204
    assert sorted(closed["draining"]) == ["j-1", "j-2"]
    assert signal_file(run, 0).is_file()
    for process in clients:
        _, err = process.communicate(timeout=20)
        assert process.returncode == 69, err
        assert "this generation takes no more work: generation 0 is frozen: it was closed" in err
    late = run.launch("late", "exit:0")
    assert (late.status, late.err.split()[0]) == (69, "rejected")
    assert [process.poll() for process in runners] == [None, None]
    run.open_gate("g")
    assert [process.wait(20) for process in runners] == [0, 3]
    wait_until(lambda: generation(run)["state"] == "closed", "the generation to have drained")
    run.down()
    events = oracle.check_ended(run)
    kinds = [type(event) for event in events]
    frozen = kinds.index(ev.GenerationFrozen)
    assert kinds[frozen + 1 : frozen + 205] == [ev.JobRejected] * 204
    assert ev.AttemptAllocated not in kinds[frozen:]


def test_a_close_file_of_others_and_a_rerun(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    run.up()
    run.cli(*run.launch_words("ends", "exit:0")).ok()
    runner = run.start(*run.launch_words("runs", f"wait:{run.gate('g')}", "exit:0"))
    run.until_started("j-2.1")
    waits = run.start(*run.launch_words("waits", "exit:0"))
    wait_until(lambda: generation(run)["jobs"]["queued"] == 1, "one in the queue")
    (run.dir / "gen_0").mkdir()
    (run.dir / "gen_0" / "STOP_SIGNAL").touch()
    refused = run.cli("submit", "--peer", "p", "--tag", "x", "--json", "--", "true")
    assert (refused.status, refused.document["error"]["code"]) == (69, "generation_closing")
    assert waits.wait(20) == 69
    assert "STOP_SIGNAL is there" in run.cli("generation", "show").out
    assert not signal_file(run, 0).exists(), "the file is theirs, and the freeze ours"
    assert run.kill("broker")
    run.until_healthy()
    run.open_gate("g")
    assert runner.wait(20) == 0
    run.cli("generation", "close", "0", "--yes").ok()
    assert signal_file(run, 0).is_file()
    run.down()
    run.up()
    assert generation(run)["state"] == "closed", "`up` alone opens nothing"
    run.down()
    run.up("--generation", "0", "--deadline", "1h")
    assert generation(run)["state"] == "open"
    assert not list((run.dir / "gen_0").iterdir())
    assert run.cli(*run.launch_words("ends", "exit:9")).status == 0, "it has its result"
    again = run.cli(*run.launch_words("waits", "exit:4"))
    assert again.status == 4
    assert "j-4" in again.err, "a new job"
    run.down()


def test_a_link_in_the_place_of_a_generation_is_refused_and_told(run: Run) -> None:
    elsewhere = run.dir.parent / "elsewhere"
    elsewhere.mkdir()
    (run.dir / "gen_0").symlink_to(elsewhere)
    closed = run.cli("generation", "close", "0", "--yes", "--json").ok().document
    assert closed["state"] in ("frozen", "closed")
    assert run.cli(*run.launch_words("late", "exit:0")).status == 69
    status = run.cli("status", "--json").document
    assert status["health"] == "troubled"
    assert any("gen_0/CLOSING_SIGNAL cannot be written" in text for text in status["warnings"])
    assert list(elsewhere.iterdir()) == []
    (run.dir / "gen_0").unlink()
    wait_until(signal_file(run, 0).is_file, "the signal to be written after all")
    wait_until(
        lambda: run.cli("status", "--json").document["health"] == "healthy", "no more warnings"
    )
    run.down()


def test_a_deadline_ends_a_generation_and_a_new_one_goes_on(run: Run) -> None:
    opened = run.cli(
        "generation", "open", "1", "--cohort-size", "4", "--deadline", "1s", "--json"
    ).ok()  # fmt: skip
    assert opened.document["deadline"].endswith("Z")
    wait_until(signal_file(run, 1).is_file, "the deadline")
    assert generation(run, "1")["reason"] == "the generation has reached its deadline"
    run.cli("generation", "open", "2", "--publish-completed", "--mature-quorum", "1").ok()
    assert generation(run)["deadline"] is None
    mature = run.cli(
        *run.launch_words("m", "exit:0", options=["--work-class", "mature", "--eta", "1d"])
    )
    assert mature.status == 0
    results = run.cli("results", "list", "--json").document
    assert [one["source"] for one in results["results"]] == ["completion"]
    supply = run.cli("status", "--json").document["resource_supply"]["maturity"]
    assert supply["2"]["completed"] == 1
    run.cli("generation", "assess", "2").ok()
    wait_until(lambda: generation(run, "2")["state"] == "closed", "the quorum to end it")
    assert generation(run, "2")["reason"] == "the mature quorum is met"
    run.down()


def test_freeze_all_survives_a_restart_and_stop_still_stops(run: Run) -> None:
    frozen = run.cli("freeze", "--all", "--yes").ok()
    assert frozen.out.startswith("fence    all generations")
    assert run.kill("broker")
    run.until_healthy()
    assert run.cli(*run.launch_words("late", "exit:0")).status == 69
    assert not run.paths.shutdown_fence.exists()
    run.down()
    run.up()
    assert run.cli(*run.launch_words("late", "exit:0")).status == 69
    run.cli("generation", "open", "1").ok()
    assert run.cli(*run.launch_words("late", "exit:0")).status == 0
    run.cli("stop", "--yes").ok()


def test_an_end_asked_for_during_the_recovery_of_a_thousand_jobs(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    run.up()
    with run.client() as client:
        run.submit(client, "runs", f"wait:{run.gate('g')}", "exit:6")
    run.until_started("j-1.1")
    fill(run, 1_000)
    run.cli("generation", "close", "0", "--yes").ok()
    for _ in range(3):
        run.kill_all()
        starting = run.start("up")
        wait_until(lambda: "broker" in run.processes(), "the recovery to have begun")
        os.kill(starting.pid, signal.SIGTERM)
        starting.communicate(timeout=30)
    run.up()
    found = generation(run)
    assert (found["state"], found["jobs"]["rejected"]) == ("frozen", 1_000)
    assert (found["jobs"]["running"], found["jobs"]["queued"]) == (1, 0)
    run.open_gate("g")
    with run.client() as client:
        assert client.wait("j-1", 30).exit_code == 6
    run.down()
    oracle.check_ended(run)


def test_the_task_s_own_store_is_read_and_its_failure_revokes_nothing(make_run: MakeRun) -> None:
    run = make_run()
    store = run.dir.parent / "store.jsonl"
    store.write_text('{"tag": "m", "mature": true}\n')
    run.up("--results-command", f"cat {store}")

    def known() -> dict[str, Any]:
        found = run.cli("results", "list", "--json").document
        return {one["tag"]: one["source"] for one in found["results"]}

    wait_until(lambda: known() == {"m": "store"}, "the store to be read")
    run.down()
    store.unlink()
    run.up()
    wait_until(lambda: "results" in run.processes(), "the reader, as at the last start")

    def told() -> str:
        warnings = run.cli("status", "--json").document["warnings"]
        return " ".join(text for text in warnings if text.startswith("the results command: "))

    wait_until(lambda: "No such file" in told(), "the failure to be told")
    assert known() == {"m": "store"}
    store.write_text('{"tag": "m", "mature": true}\n{"tag": "n", "peer": "p2"}\n')
    wait_until(lambda: known() == {"m": "store", "n": "store"}, "the next reading")
    wait_until(lambda: not told(), "the warning to go")
    run.down()
    run.up("--results-command", "none")
    assert "results" not in run.processes()
    run.down()


def test_the_reader_of_the_store_rests_between_its_readings(make_run: MakeRun) -> None:
    run = make_run()
    rounds = run.dir.parent / "rounds"
    run.up("--results-command", f"sh -c 'echo >> {rounds}'")

    def times() -> int:
        return len(rounds.read_text()) if rounds.exists() else 0

    wait_until(lambda: times() >= 1, "the first reading")
    reader, before = run.processes()["results"], times()
    spent = cpu_ticks(reader)
    wait_until(lambda: times() > before, "the next reading, seconds later")
    assert cpu_ticks(reader) - spent < 0.3 * os.sysconf("SC_CLK_TCK")
    run.down()


def cpu_ticks(pid: int) -> int:
    """What a process itself has used of the processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
