"""One experiment on two simulated devices runs six units, and readers see how far it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until

EVALUATOR = """
import json, sys
from praxist_zmq import units

UNIT = 'case "$1" in u0|u1) ;; *) while [ ! -e go ]; do sleep 0.01; done;; esac;'
UNIT += ' echo "\\\\"$3\\\\"" > "$2"'

def worker(unit):
    return ["/bin/sh", "-c", UNIT, "sh", unit.key, unit.result, unit.device]

outcome = units.run([f"u{n}" for n in range(6)], worker, aggregate=dict, directory="work")
with open("aggregate.json", "w") as file:
    json.dump(outcome.aggregate, file)
sys.exit(outcome.exit_code)
"""


def pair_run(make_run: MakeRun) -> Run:
    run = make_run(sim="gpus=2,memory=80")
    text = run.contract.read_text()
    run.contract.write_text(text.replace("gpu_count: 1", "gpu_count: 2"))
    run.up()
    return run


def shown(run: Run, job: str) -> Any:
    return run.cli("show", job, "--json").ok().document["progress"]


def test_units_over_two_devices_and_their_progress(make_run: MakeRun) -> None:
    run = pair_run(make_run)
    with run.client() as client:
        command = [sys.executable, "-c", EVALUATOR]
        job = run.submit(client, "units", profile="gpu", command=command).job.job
        wait_until(lambda: (shown(run, job) or {}).get("done") == 2, "two units to be done")
        assert "2/6" in run.cli("queue").ok().out
        outside = run.cli("progress", "3/6", env={"PRAXIST_EXPERIMENT_ATTEMPT_ID": f"{job}.1"})
        assert outside.status == 77, "a copied environment is not of its process group"
        (Path(run.dir) / "go").touch()
        assert client.wait(job, 60).exit_code == 0
    aggregate = json.loads((run.dir / "aggregate.json").read_text())
    assert list(aggregate) == [f"u{n}" for n in range(6)]
    assert len(set(aggregate.values())) == 2
    assert shown(run, job) is None
    run.down()


def test_a_shell_tells_progress(run: Run) -> None:
    script = (
        f'"{sys.executable}" -m praxist_zmq progress 2/5 "epoch 2" &&'
        f' "{sys.executable}" -m praxist_zmq progress 1/5 late;'
        " echo $? > told; while [ ! -e go ]; do sleep 0.01; done"
    )
    with run.client() as client:
        job = run.submit(client, "shell", command=["/bin/sh", "-c", script]).job.job
        wait_until((run.dir / "told").exists, "progress to be told")
        wait_until(lambda: (run.dir / "told").read_text(), "the status")
        assert (run.dir / "told").read_text() == "0\n"
        progress = client.show(job).progress
        assert progress is not None
        assert (progress["done"], progress["total"], progress["text"]) == (2, 5, "epoch 2")
        (run.dir / "go").touch()
        assert client.wait(job, 60).exit_code == 0


def test_a_cancel_ends_every_unit(make_run: MakeRun) -> None:
    run = pair_run(make_run)
    with run.client() as client:
        command = [sys.executable, "-c", EVALUATOR]
        job = run.submit(client, "units", profile="gpu", command=command).job.job
        wait_until(lambda: (shown(run, job) or {}).get("done") == 2, "two units to be done")
        assert run.cli("cancel", job, "--yes").status == 0
        ended = client.wait(job, 60)
    assert ended.signal == 15
    kept = json.loads((run.dir / "work" / "unit_failures.json").read_text())
    assert kept["stopped_by"] == "SIGTERM"
    assert kept["succeeded"] == 2
    assert kept["finished"]
    run.down()
