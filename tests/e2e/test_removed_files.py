"""Files of a live run or scope are removed: noticed, mended or told; nothing is promised twice."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from tests.support import oracle
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


def _remove_files(directory: Path, suffix: str = "") -> None:
    """As a cleaner does: what is no directory."""
    for folder, _, names in os.walk(directory):
        for name in names:
            if name.endswith(suffix):
                (Path(folder) / name).unlink(missing_ok=True)


def _supervisor_ends(run: Run) -> None:
    wait_until(lambda: set(run.processes()) <= {"registry"}, "the scheduler to end")


def test_a_ledger_that_was_replaced_takes_nothing_more(run: Run) -> None:
    assert run.launch("one", "exit:0").status == 0
    saved = run.dir.parent / "saved"
    shutil.copytree(run.paths.ledger, saved)
    shutil.rmtree(run.paths.ledger)
    saved.rename(run.paths.ledger)
    lost = run.cli("submit", "--peer", "p1", "--tag", "two", "--", *run.evaluator("exit:0"))
    assert lost.status != 0, "acknowledged into a file that no start will read"
    _supervisor_ends(run)
    failure = run.paths.last_failure.read_text()
    assert "file_lost" in failure
    assert str(run.paths.ledger) in failure
    run.up()
    assert run.launch("two", "exit:0").status == 0
    assert len(run.read_lines("start")) == 2
    run.down()
    oracle.check_ended(run)


def test_a_missing_or_older_ledger_is_gone_on_with_only_by_an_explicit_word(run: Run) -> None:
    older = run.dir.parent / "older"
    assert run.launch("one", "exit:0").status == 0
    run.down()
    shutil.copytree(run.paths.ledger, older)
    run.up()
    assert run.launch("two", "exit:0").status == 0
    run.down()
    shutil.rmtree(run.paths.ledger)
    missing = run.try_up()
    assert missing.status == 74, missing
    assert "holds no ledger, and this run had one" in missing.err
    assert "up --accept-lost-records" in missing.err
    shutil.copytree(older, run.paths.ledger)
    refused = run.try_up()
    assert refused.status == 74, refused
    assert "an older copy was put in its place" in refused.err
    epoch = json.loads(run.paths.ledger_mark.read_text())["epoch"]
    run.up("--accept-lost-records")
    assert f"records up to start {epoch} are lost" in run.cli("status").out
    assert json.loads(run.paths.endpoint.read_text())["epoch"] == epoch + 1
    run.down()
    run.up()
    run.down()


def test_a_scope_whose_files_are_removed_has_one_registry_and_one_holder_of_a_device(
    make_run: MakeRun,
) -> None:
    one, two = make_run("one", sim="gpus=1,memory=80"), make_run("two", sim="gpus=1,memory=80")
    one.up()
    with one.client() as client:
        one.submit(client, "long", f"wait:{one.gate('end')}", profile="gpu")
    one.until_started("j-1.1")
    first = one.processes()["registry"]
    _remove_files(one.host_dir)
    wait_until(lambda: one.processes().get("registry") not in (None, first), "the next registry")
    two.up()
    with two.client() as client:
        two.submit(client, "other", "exit:0", profile="gpu")
    wait_until(lambda: "RUNNING" in one.cli("host").out, "the registry to answer")
    assert not two.read_lines("start")
    one.open_gate("end")
    with two.client(timeout_s=60) as client:
        assert client.wait("tag:other", 60).state == "completed"
    assert oracle.shared_devices([one, two]) == []


def test_sockets_alone_are_made_again(run: Run) -> None:
    with run.client() as client:
        run.submit(client, "long", f"wait:{run.gate('end')}")
    run.until_started("j-1.1")
    sockets = Path(os.environ["PRAXIST_ZMQ_RUNTIME_DIR"])
    before = run.processes()["supervisor"]
    _remove_files(sockets, ".sock")
    told = run.cli("queue")
    assert told.status == 0 or (told.status == 75 and f"process {before} serves" in told.err)
    run.until_healthy()
    shutil.rmtree(sockets / "runs")
    run.until_healthy()
    assert run.processes()["supervisor"] == before
    run.open_gate("end")
    with run.client(timeout_s=60) as client:
        assert client.wait("tag:long", 60).state == "completed"
    run.down()
    oracle.check_ended(run)


def test_without_its_locks_a_scheduler_ends_before_a_second_one_starts(run: Run) -> None:
    with run.client() as client:
        run.submit(client, "long", f"wait:{run.gate('end')}")
    run.until_started("j-1.1")
    first = run.processes()["supervisor"]
    _remove_files(run.paths.scheduler, ".lock")
    refused = run.try_up()
    if run.processes().get("supervisor") == first:
        assert refused.status == 69
        assert f"process {first} serves" in refused.err
    wait_until(lambda: run.processes().get("supervisor") != first, "the first to end")
    wait_until(lambda: run.try_up().status == 0 or run.answers(), "the second")
    run.open_gate("end")
    with run.client(timeout_s=60) as client:
        assert client.wait("tag:long", 60).state == "completed"
    assert len(run.read_lines("start")) == 1
    run.down()
    oracle.check_ended(run)


def test_what_clients_and_the_next_start_look_for_is_written_again(run: Run) -> None:
    key = run.paths.credentials_key.read_bytes()
    run.paths.endpoint.unlink()
    run.paths.credentials_key.unlink()
    wait_until(run.paths.endpoint.exists, "the endpoint")
    wait_until(run.paths.credentials_key.exists, "the key")
    assert run.paths.credentials_key.read_bytes() == key
    assert run.launch("t", "exit:0").status == 0
    run.down()


def test_a_device_of_a_run_that_is_down_stays_taken_though_the_scope_lost_its_ledger(
    make_run: MakeRun,
) -> None:
    gone, other = (make_run(name, sim="gpus=1,memory=80") for name in ("gone", "other"))
    gone.up()
    other.up()
    with gone.client() as client:
        gone.submit(client, "long", f"wait:{gone.gate('go')}", profile="gpu")
    gone.until_started("j-1.1")
    gone.kill_all()
    _remove_files(gone.host_dir)
    registry = gone.processes().get("registry")
    wait_until(lambda: gone.processes().get("registry") not in (None, registry), "a new registry")
    with other.client() as client:
        other.submit(client, "waits", "exit:0", profile="gpu")
        explained = wait_until(
            lambda: (page := other.cli("explain", "j-1").out).count("no run has claimed") and page,
            "the reason of the wait",
        )
        assert "shim" in explained
        gone.up()
        wait_until(
            lambda: other.cli("gpus", "--json").document["devices"][0]["runs"] == ["gone"],
            "the run to claim its experiment",
        )
        assert client.show("j-1").state == "queued"
        gone.open_gate("go")
        assert client.wait("j-1", 30).state == "completed"
    assert oracle.shared_devices([gone, other]) == []
    for run in (gone, other):
        run.down()
        oracle.check_ended(run)
