"""What a run's directory tells and its ledger does not: nothing of it runs a second time."""

from __future__ import annotations

import shutil

import pytest

from praxist_zmq.errors import PraxistError
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until

LEGACY = {"PRAXIST_RESOURCE_SCHEDULER_MODE": "legacy"}


def _damage(run: Run, mark: bytes) -> None:
    """Change a byte of the first record that holds `mark`."""
    for path in sorted(run.paths.ledger.glob("*")):
        body = path.read_bytes() if path.is_file() else b""
        if mark in body:
            path.write_bytes(body.replace(mark, bytes([mark[0] ^ 1]) + mark[1:], 1))
            return
    raise AssertionError(f"{mark!r} is in no segment")


def test_what_a_repaired_ledger_lacks_is_adopted_or_holds_its_tag(run: Run) -> None:
    assert run.launch("first", "exit:0").status == 0
    with run.client() as client:
        run.submit(client, "ends", f"wait:{run.gate('ends')}", "exit:3")
        run.until_started("j-2.1")
        run.submit(client, "lives", f"wait:{run.gate('lives')}")
        run.until_started("j-3.1")
    run.down()
    run.open_gate("ends")
    wait_until(lambda: len(run.experiments()) == 1, "the one to end")
    _damage(run, b'"attempt":"j-2.1"')
    assert run.try_up().status == 74
    copy = run.dir.parent / "copy"
    told = run.cli("ledger", "repair", "--copy", str(copy)).ok()
    assert "on disk, and not in the copy: j-2.1, j-3.1" in told.out
    shutil.rmtree(run.paths.ledger)
    copy.rename(run.paths.ledger)
    run.up()
    with run.client(timeout_s=60) as client:
        ended = client.wait("tag:ends", 60)
        assert (ended.state, ended.exit_code) == ("failed", 3)
        assert (
            "j-3.1 is on disk, not in the ledger, and lives (tag 'lives')" in run.cli("status").out
        )
        with pytest.raises(PraxistError, match=r"j-3\.1 is on disk"):
            client.submit(command=run.evaluator("exit:0"), peer="p1", tag="lives")
        run.open_gate("lives")
        wait_until(lambda: not run.experiments(), "the other to end")
        wait_until(
            lambda: "ended with exit status 0" in run.cli("status").out, "its end to be told"
        )
        again = client.submit(
            command=run.evaluator("exit:0"), peer="p1", tag="lives", retry_terminal=True
        )
        assert again.job.job == "j-4", "the number of the third is not given again"
        assert client.wait("tag:lives", 60).state == "completed"
    assert len(run.read_lines("start")) == 4
    run.down()


def test_a_launch_without_a_scheduler_holds_its_tag_and_its_slot(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    launched = run.start(*run.launch_words("t", f"wait:{run.gate('end')}"), env=LEGACY)
    wait_until(lambda: run.read_lines("start"), "the launch")
    run.up()
    assert "which was launched without the scheduler, runs it" in run.cli("status").out
    words = ("submit", "--peer", "p1", "--tag")
    refused = run.cli(*words, "t", "--", *run.evaluator("exit:0"))
    assert (refused.status, "runs it" in refused.err) == (65, True), refused
    run.cli(*words, "other", "--", *run.evaluator("exit:0")).ok()
    assert "run_limit" in run.cli("show", "tag:other", "--json").out
    run.open_gate("end")
    assert launched.wait(20) == 0
    with run.client(timeout_s=60) as client:
        assert client.wait("tag:other", 60).state == "completed"
    assert len(run.read_lines("start")) == 2
    run.cli(*words, "t", "--", *run.evaluator("exit:0")).ok()
    with run.client(timeout_s=60) as client:
        assert client.wait("tag:t", 60).state == "completed"
    run.down()


def test_a_renamed_run_directory_is_told_as_such_and_goes_on_under_its_name(run: Run) -> None:
    assert run.launch("one", "exit:0").status == 0
    run.down()
    moved = run.dir.with_name("renamed")
    run.dir.rename(moved)
    environment = {"PRAXIST_RUN_DIR": str(moved)}
    words = ("--run-dir", str(moved), "--detach", "--config", str(run.contract))
    refused = run.cli("up", *words, env=environment)
    assert refused.status == 74, refused
    assert f"name it {run.dir.name!r} again" in refused.err
    moved.rename(run.dir)
    run.up()
    assert run.launch("one", "exit:0").status == 0
    assert len(run.read_lines("start")) == 1
    run.down()
