"""What runs of one host share, and what none of them waits for."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from praxist_zmq.protocol import events as ev
from tests.support import oracle
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


def test_an_end_is_told_at_once_although_the_registry_does_not_answer(make_run: MakeRun) -> None:
    """S46: whoever waits is free; the device is given to the next only when it is free for all."""
    run = make_run(slots=2, sim="gpus=1")
    run.up()
    registry = run.processes()["registry"]
    with run.client() as client:
        first = run.submit(client, "a", f"wait:{run.gate('a')}", "exit:4", profile="gpu").job.job
        second = run.submit(client, "b", "exit:0", profile="gpu").job.job
        run.until_started(f"{first}.1")
        os.kill(registry, signal.SIGSTOP)
        try:
            run.open_gate("a")
            assert client.wait(first, 20).exit_code == 4
            assert client.show(second).state == "queued"
        finally:
            os.kill(registry, signal.SIGCONT)
        assert client.wait(second, 60).exit_code == 0
    assert oracle.shared_devices([run]) == []
    run.down()
    events = oracle.check_ended(run)
    ends = [event.job for event in events if isinstance(event, ev.JobFinished)]
    assert ends == [first, second]


def test_runs_whose_directories_have_one_name_are_two_runs(
    tmp_path: Path, host_directory: Path
) -> None:
    """S171."""
    runs = [Run(tmp_path / place / "same", slots=2) for place in ("a", "b")]
    try:
        for run in runs:
            run.up()
        for number, run in enumerate(runs):
            with run.client() as client:
                job = run.submit(client, "t", f"wait:{run.gate('go')}", f"exit:{number}").job.job
                run.until_started(f"{job}.1")

        def told() -> list[tuple[str, int]]:
            listed = runs[0].cli("host", "--json").ok().document["runs"]
            return sorted((one["run_dir"], one["running"]) for one in listed)

        wanted = [(str(run.dir), 1) for run in runs]
        wait_until(lambda: told() == wanted, "the registry to know of both")
        runs[0].open_gate("go")
        assert runs[0].cli("wait", "tag:t").status == 0
        assert runs[1].show("tag:t").state == "running"
        runs[1].open_gate("go")
        assert runs[1].cli("wait", "tag:t").status == 1
        for run in runs:
            run.down()
    finally:
        for run in runs:
            run.close()


def test_a_storm_of_75s_is_told_once_and_costs_few_jobs(make_run: MakeRun) -> None:
    """Where everything ends with 75 at once, the profile rests instead of failing every job."""
    run = make_run(slots=2, sim="gpus=1")
    run.up()
    with run.client() as client:
        for number in range(12):
            run.submit(client, f"t{number}", "exit:75", peer=f"p{number}")
        wait_until(lambda: client.status()["alarms"], "the alarm")
        status = client.status()
        (alarm,) = status["alarms"]
        assert alarm.startswith("PLACEMENT PAUSED  profile cpu: ")
        assert status["jobs"]["failed"] <= 4
        assert status["jobs"]["queued"] >= 8
        waiting = run.submit(client, "t11", "exit:75", peer="p11").job
        assert [blocker.code for blocker in waiting.blockers] == ["placement_paused"]
        first = client.queue(states=["queued"])[0].job
        assert "the rest of profile cpu is over" in run.cli("explain", first).ok().out
        page = run.cli("status")
        assert page.status == 1
        assert page.out.startswith("PLACEMENT PAUSED")
        # Another profile goes on.
        other = run.submit(client, "other", "exit:3", profile="gpu").job.job
        assert client.wait(other, 60).exit_code == 3
        client.cancel(*(job.job for job in client.queue(states=["queued"])))
    run.down()
    oracle.check_ended(run)
