"""A default profile that can never run here is refused at the start, and told for as long as it is.

And the cap on the running jobs of one peer: it blocks nobody else, and is kept.
"""

from __future__ import annotations

import json
import os

import pytest

from praxist_zmq.client.views import JobInfo
from praxist_zmq.errors import PraxistError
from praxist_zmq.host.paths import RunSockets
from praxist_zmq.ledger.lock import OwnerLock
from tests.support import oracle
from tests.support.run import SERVICES, Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until

GPU_FIRST = """
compute_budget:
  resource_scheduler:
    mode: central
    min_concurrent_experiments: 2
    initial_concurrent_experiments: 2
    max_concurrent_experiments: 2
    default_profile: gpu_work
    profiles:
      gpu_work: {accelerator: gpu, gpu_count: 1, gpu_memory_gb: 20, pressure_domains: []}
      cpu_work: {accelerator: cpu, pressure_domains: []}
"""


@pytest.fixture
def gpu_first(make_run: MakeRun) -> Run:
    """A run whose default profile needs a GPU of 20 GiB; not started."""
    run = make_run(sim="gpus=2,memory=16")
    run.contract.write_text(GPU_FIRST)
    return run


def _nothing_is_left(run: Run) -> None:
    left = set(run.processes()) & set(SERVICES)
    assert not left
    assert not run.paths.endpoint.exists()
    assert not run.paths.devices.exists()
    assert not RunSockets.of(run.paths).directory.exists()
    for path in (
        (run.paths.owner_lock, run.paths.ledger_lock) if run.paths.scheduler.exists() else ()
    ):
        OwnerLock.acquire(path, {"program": "test"}).release()


@pytest.mark.parametrize("sim", ["gpus=0", "gpus=2,memory=16"])
def test_a_start_is_refused_and_leaves_nothing(gpu_first: Run, sim: str) -> None:
    gpu_first.sim = sim
    refused = gpu_first.try_up()
    assert refused.status == 65, refused
    for words in (
        "this profile can never run on this host: default profile 'gpu_work' needs 1 GPU",
        "accelerator probe ",
        "declared profiles: cpu_work (cpu), gpu_work (gpu)",
        "--allow-unsatisfiable",
    ):
        assert words in refused.err.replace("\n        ", " "), refused
    _nothing_is_left(gpu_first)
    assert not os.path.lexists(gpu_first.paths.scheduler), "it would be central for good"
    foreground = gpu_first.cli("up", "--config", str(gpu_first.contract), "--sim", sim, "--json")
    assert foreground.status == 65
    assert foreground.document["code"] == "profile_unsatisfiable"
    _nothing_is_left(gpu_first)
    gpu_first.sim = "gpus=2,memory=80"
    gpu_first.up()
    status = gpu_first.cli("status", "--json").ok().document
    assert status["epoch"] == 1, "a refused start records nothing"
    assert status["alarms"] == []
    gpu_first.down()
    refused = gpu_first.try_up("--sim", sim, bare=True)
    assert refused.status == 65, "the contract that is kept is looked at too"
    assert gpu_first.paths.ledger.is_dir(), "a run that had a scheduler keeps its history"
    gpu_first.up()
    gpu_first.down()


def test_a_real_host_without_a_driver_is_refused(gpu_first: Run) -> None:
    """Where there is a driver with devices of 20 GiB, the start is right to go on."""
    gpu_first.sim = "none"
    said = gpu_first.try_up()
    if said.status == 0:
        gpu_first.down()
        return
    assert said.status == 65, said
    assert "default profile 'gpu_work' needs 1 GPU" in said.err
    _nothing_is_left(gpu_first)


def test_it_can_be_allowed_and_is_told_as_trouble(gpu_first: Run) -> None:
    said = gpu_first.try_up("--allow-unsatisfiable")
    assert said.status == 0, said
    assert "warning  default profile 'gpu_work' needs 1 GPU" in said.err
    wait_until(lambda: gpu_first.cli("status").status == 1, "the trouble to be told")
    page = gpu_first.cli("status")
    first, second, *_ = page.out.splitlines()
    assert first.startswith("NO PROGRESS  generation 0 open "), page
    assert "no experiment was ever admitted: default profile 'gpu_work' needs 1 GPU" in first
    assert "TROUBLED" in second
    document = gpu_first.cli("status", "--json").document
    assert document["warnings"][0] == document["alarms"][0]
    with gpu_first.client() as client:
        with pytest.raises(PraxistError) as refused:
            gpu_first.submit(client, "t", "exit:0")
        assert refused.value.code == "profile_unsatisfiable"
        job = gpu_first.submit(client, "u", "exit:0", profile="cpu_work").job.job
        assert client.wait(job, 60).state == "completed"
    document = gpu_first.cli("status", "--json").document
    assert document["alarms"] == []
    assert document["health"] == "troubled"
    assert any("default profile 'gpu_work'" in text for text in document["warnings"])
    # A broker that is started again has a run to go on with.
    assert gpu_first.kill("broker")
    gpu_first.until_healthy()
    wait_until(lambda: gpu_first.cli("status").status == 1, "the trouble to be told again")
    gpu_first.down()
    saved = json.loads(gpu_first.paths.status.read_text())
    assert saved["health"] == "troubled"
    oracle.check_ended(gpu_first)


def test_a_run_with_experiments_in_hand_is_not_refused(gpu_first: Run) -> None:
    run = gpu_first
    run.sim = "gpus=1,memory=80"
    run.up()
    with run.client() as client:
        job = run.submit(client, "t", f"wait:{run.gate('go')}", "exit:3").job.job
        run.until_started(f"{job}.1")
        run.down()
        said = run.try_up("--sim", "gpus=0", bare=True)
        assert said.status == 0, said
        assert "warning  default profile 'gpu_work' needs 1 GPU" in said.err
        run.open_gate("go")
        assert client.wait(job, 60).exit_code == 3
    run.down()
    refused = run.try_up("--sim", "gpus=0", bare=True)
    assert refused.status == 65, "nothing is in hand any more"
    oracle.check_ended(run)


def test_a_peer_at_its_cap_blocks_nobody_else(make_run: MakeRun) -> None:
    run = make_run(slots=3)
    said = run.try_up("--max-per-peer", "1")
    assert said.status == 0, said
    assert "at most 3 at once, 1 of one peer\n" in said.err
    with run.client() as client:

        def of(peer: str, tag: str) -> str:
            job: JobInfo = run.submit(client, tag, f"wait:{run.gate(tag)}", peer=peer).job
            return job.job

        first, second, other = of("a", "a1"), of("a", "a2"), of("b", "b1")
        run.until_started(f"{first}.1", f"{other}.1")
        waiting = client.show(second)
        assert (waiting.state, waiting.attempts) == ("queued", 0)
        assert [blocker.code for blocker in waiting.blockers] == ["peer_cap"]
        assert waiting.queue_blocked_reason == "per_peer_capacity"
        run.open_gate("a1")
        run.until_started(f"{second}.1")
        run.open_gate("a2")
        run.open_gate("b1")
        for job in (first, second, other):
            ended = client.wait(job, 60)
            assert (ended.state, ended.attempts) == ("completed", 1)
    assert run.cli("status").out.count("3 at once, fixed, 1 of one peer") == 1
    run.down()
    kept = run.up()
    assert "at most 3 at once, 1 of one peer\n" in kept.err
    assert run.cli("status", "--json").ok().document["max_parallel_runs_per_peer"] == 1
    run.down()
    lifted = run.try_up("--max-per-peer", "none", bare=True)
    assert "of one peer" not in lifted.err
    assert run.cli("status", "--json").ok().document["max_parallel_runs_per_peer"] is None
    run.down()
    oracle.check_ended(run)


def test_simulated_devices_are_known_once_it_is_ready(make_run: MakeRun) -> None:
    run = make_run(slots=1, sim="gpus=2,memory=80")
    run.up()
    shown = run.cli("gpus", "--json").ok().document
    assert (shown["simulated"], len(shown["devices"])) == (True, 2)
    refused = run.cli("sim", "load", "--gpu", "7", "--utilization", "60")
    assert refused.status == 2
    assert "there is no simulated GPU 7; there are 0, 1" in refused.err
    # A broker that starts again has no sample yet, and knows all the same.
    assert run.kill("broker")
    assert run.cli("status", "--json", "--timeout", "20").document["simulated"]
    run.down()
