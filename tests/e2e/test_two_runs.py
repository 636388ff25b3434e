"""Two runs on one host scope: no device is ever with two experiments."""

from __future__ import annotations

import json
import random
import subprocess

import pytest

from praxist_zmq.core import proof
from tests.support import oracle
from tests.support.campaign import ensure_up
from tests.support.run import Run, kill_at_once
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until

UUIDS = {f"GPU-00000000-0000-4000-8000-{number:012x}" for number in range(2)}


def _submit_all(runs: list[Run], count: int) -> dict[Run, list[str]]:
    jobs: dict[Run, list[str]] = {run: [] for run in runs}
    for number in range(count):
        for run in runs:
            with run.client() as client:
                result = run.submit(client, f"g{number}", "exit:0", profile="gpu")
                jobs[run].append(result.job.job)
    return jobs


@pytest.mark.parametrize("killed", [None, "broker", "registry", "all"])
def test_exclusive_devices(make_run: MakeRun, killed: str | None) -> None:
    runs = [make_run(name, slots=4, sim="gpus=2,memory=80") for name in ("one", "two")]
    for run in runs:
        run.up()
    jobs = _submit_all(runs, 8)
    rng = random.Random(7)
    if killed is not None:
        for run in runs:
            if killed == "all":
                run.kill_all(rng)
            else:
                run.kill(killed)
        for run in runs:
            ensure_up(run)
    for run in runs:
        with run.client(timeout_s=60.0) as client:
            for job in jobs[run]:
                ended = client.wait(job, 60)
                assert ended.state == "completed"
                assert len(ended.gpu_uuids) == 1
                assert set(ended.gpu_uuids) <= UUIDS
    assert oracle.shared_devices(runs) == []
    for run in runs:
        rows = run.read_lines("start")
        assert len(rows) == 8
        assert {row[4] for row in rows} <= UUIDS
        run.down()
        oracle.check_ended(run)


def test_a_device_of_a_dead_run_stays_held_until_its_experiment_is_gone(
    make_run: MakeRun,
) -> None:
    one = make_run("one", sim="gpus=1,memory=80")
    two = make_run("two", sim="gpus=1,memory=80")
    one.up()
    two.up()
    with one.client() as first, two.client() as second:
        holder = one.submit(first, "h", f"wait:{one.gate('go')}", profile="gpu").job.job
        one.until_started(f"{holder}.1")
        waiter = two.submit(second, "w", "exit:0", profile="gpu").job.job
        one.kill_all()
        blocked = second.show(waiter)
        assert blocked.state == "queued"
        assert blocked.blockers
        two.cli("explain", waiter).ok()
        assert second.show(waiter).state == "queued"
        one.open_gate("go")
        one.up()
        assert first.wait(holder, 20).state == "completed"
        assert second.wait(waiter, 20).state == "completed"
    assert oracle.shared_devices([one, two]) == []
    for run in (one, two):
        run.down()
        oracle.check_ended(run)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_device_stays_held_while_an_evaluator_outlives_its_shim_and_its_run(
    make_run: MakeRun, at_once: bool
) -> None:
    one = make_run("one", sim="gpus=1,memory=80")
    two = make_run("two", sim="gpus=1,memory=80")
    one.up()
    with one.client() as first:
        holder = one.submit(first, "h", f"wait:{one.gate('go')}", profile="gpu").job.job
        one.until_started(f"{holder}.1")
    shims = [pid for name, pid in one.processes().items() if name.startswith("shim:")]
    if at_once:
        kill_at_once([*shims, *one.processes().values()])
    else:
        one.down()
        kill_at_once(shims)
    two.up()
    with two.client() as second:
        waiter = two.submit(second, "w", "exit:0", profile="gpu").job.job
        log = two.host_dir / "log" / "registry.log"
        wait_until(lambda: proof.EVIDENCE["members"] in log.read_text(), "the registry's look")
        assert second.show(waiter).state == "queued"
        stop = subprocess.run(
            [*two.words()[:3], "stop", "--all", "--dry-run", "--json"],
            env=two.environment, cwd="/", capture_output=True, check=True,
        )  # fmt: skip
        told = {run["run_id"]: run["ending"] for run in json.loads(stop.stdout)["runs"]}
        assert told["one"] == [holder]
        one.open_gate("go")
        assert second.wait(waiter, 20).state == "completed"
    one.up()
    with one.client() as first:
        assert first.wait(holder, 20).state == "drained_unknown"
    assert oracle.shared_devices([one, two]) == []
    for run in (one, two):
        run.down()


def test_a_run_that_is_down_is_told_by_its_name(make_run: MakeRun) -> None:
    gone, other = (make_run(name, slots=4, sim="gpus=1,memory=80") for name in ("gone", "other"))
    gone.up()
    with gone.client() as client:
        gone.submit(client, "t", f"wait:{gone.gate('never')}", profile="gpu")
    gone.until_started("j-1.1")
    gone.down()
    stopped = gone.cli("status", "--json").document
    assert stopped["generation"]["state"] == "open"
    assert "simulated devices, available when last seen" in gone.cli("status").out
    other.up()
    with other.client() as client:
        other.submit(client, "waits", "exit:0", profile="gpu")
        (device,) = other.cli("gpus", "--json").ok().document["devices"]
        assert (device["runs"], device["other_runs"]) == (
            ["gone"],
            [{"run_id": "gone", "down": True}],
        )
        assert "gone (down)" in other.cli("gpus").ok().out
        assert ", run gone (down) alone" in other.cli("status").out
        explained = other.cli("explain", "j-1").ok().out
        assert "held alone by run gone (down)" in explained
        assert "attempt j-1.1 of run gone (down) ends" in explained
        assert "run times not learnt yet" in explained
        assert "gone is down, 1 allocation held" in other.cli("host", "-o", "table").ok().out
        gone.open_gate("never")
        assert client.wait("j-1", 30).state == "completed"
    other.down()
