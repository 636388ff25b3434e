"""What runs of one host share, and what none of them waits for."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from praxist_zmq.protocol import events as ev
from tests.support import oracle
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun


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
        told = runs[0].cli("host", "--json").ok().document
        assert {one["run_dir"] for one in told["runs"]} == {str(run.dir) for run in runs}
        assert [one["running"] for one in told["runs"]] == [1, 1]
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
