"""What a start keeps of the one before, what it says, and what a stop leaves."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from praxist_zmq.host.paths import HostPaths, RunSockets
from praxist_zmq.ledger.reading import LedgerReader
from praxist_zmq.protocol.claims import RunDeregistered
from praxist_zmq.protocol.codec import decode_claim_event
from tests.support.run import SERVICES, Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


def simulated(run: Run) -> int:
    """How many devices the run has, once the sampler has told; all must be simulated."""
    wait_until(lambda: run.cli("gpus", "--json").document["devices"], "devices to be seen")
    assert run.cli("status", "--json").document["simulated"] is True
    return len(run.cli("gpus", "--json").document["devices"])


def test_a_start_that_is_told_nothing_goes_on_as_before(make_run: MakeRun) -> None:
    run = make_run(slots=3, sim="gpus=2,memory=16")
    first = run.up()
    assert f"contract  {run.contract}: profiles cpu gpu, at most 3 at once\n" in first.err
    run.down()
    again = run.try_up("--generation", "1", "--cohort-size", "8", "--deadline", "1h", bare=True)
    assert again.status == 0, again
    assert "kept from an earlier start: profiles cpu gpu, at most 3 at once\n" in again.err
    assert "devices  2 simulated GPUs of 16 GiB, as at the last start" in again.err
    assert again.out.endswith("SIMULATED\n")
    assert simulated(run) == 2
    generation = run.cli("status", "--json").document["generation"]
    assert (generation["number"], generation["cohort_size"]) == (1, 8)
    assert generation["deadline"].endswith("Z")
    assert run.kill("broker")
    run.until_healthy()
    assert run.cli("status", "--json").document["generation"] == generation
    with run.client() as client:
        job = client.submit(peer="p", tag="t", command=["true"], profile="gpu").job.job
        assert client.wait(job, 60).exit_code == 0
    run.down()


def test_none_goes_back_to_real_devices(make_run: MakeRun) -> None:
    run = make_run(sim="gpus=1")
    run.up()
    assert run.kill("supervisor")
    wait_until(
        lambda: not set(SERVICES) & set(run.processes()),
        "the children of a killed supervisor to end",
    )
    real = run.try_up("--sim", "none", "--json", bare=True).document
    assert (real["simulated"], real["contract"]["source"]) == (False, "kept")
    run.down()
    assert run.try_up("--json", bare=True).document["simulated"] is False
    run.down()


def test_without_a_contract_it_says_what_that_means(make_run: MakeRun) -> None:
    run = make_run()
    said = run.try_up("--sim", "gpus=1", bare=True)
    assert "contract  none was given: one CPU profile `default`, one experiment" in said.err
    run.down()


def test_nothing_is_made_for_a_contract_that_is_not_there(make_run: MakeRun) -> None:
    run = make_run()
    run.dir.rmdir()
    said = run.try_up("--config", str(run.dir / "nope.yaml"), bare=True)
    assert said.status == 73, said
    assert "nope.yaml" in said.err
    assert not run.dir.exists()
    assert not RunSockets.of(run.paths).directory.exists()


def test_a_stop_ends_all_in_order_and_the_foreground_says_so(make_run: MakeRun) -> None:
    run = make_run()
    up = run.start("up", "--config", str(run.contract))
    wait_until(lambda: run.cli("status").status == 0, "the run to be up")
    job = run.cli("submit", "--peer", "p", "--tag", "t", "-o", "name", "--", "sleep", "600")
    wait_until(lambda: run.cli("show", job.out.strip(), "--json").document["pid"], "sleep to run")
    stopped = run.cli("stop", "--yes", "--grace", "30s")
    assert stopped.status == 0, stopped
    _, err = up.communicate(timeout=60)
    assert "stopped  the run's experiments were ended" in err
    assert "experiments that still run" not in err
    assert not RunSockets.of(run.paths).directory.exists()
    log = (run.paths.service_logs / "supervisor.log").read_text()
    assert "did not end in time" not in log
    assert not set(SERVICES) & set(run.processes())


def test_a_directory_of_sockets_with_a_strangers_file_stays(run: Run) -> None:
    directory: Path = RunSockets.of(run.paths).directory
    (directory / "note").write_text("not ours")
    run.down()
    assert os.listdir(directory) == ["note"]
    subprocess.run(["rm", "-r", str(directory)], check=True)


def test_a_run_that_is_stopped_in_order_leaves_the_host_s_registry(make_run: MakeRun) -> None:
    run = make_run()
    run.up()
    run.down()
    ledger = LedgerReader(HostPaths(run.host_dir).ledger)
    events = [decode_claim_event(payload) for _, payload in ledger.records()]
    ends = [event.reason for event in events if isinstance(event, RunDeregistered)]
    assert ends == ["ended"]
