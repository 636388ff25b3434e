"""A scheduler that is killed and started again: the same queue, the same facts, nothing twice."""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.client.views import JobInfo
from tests.cases.conftest import MakeSharedRun
from tests.support import oracle
from tests.support.run import send
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


@dataclass(frozen=True)
class Restarted:
    """One run with jobs in every state, killed, started again, and then left to end."""

    before: list[JobInfo]
    after: list[JobInfo]
    counts: tuple[dict[str, int], dict[str, int]]
    ended: dict[str, JobInfo]
    """By tag, once all had ended; of `late` the first job."""
    retried_with: dict[str, str]
    """The environment that the retry really got."""
    again: dict[str, Any]
    """How a second submission of a tag was answered after the restart."""


def bare(job: JobInfo) -> tuple[Any, ...]:
    """What a restart must not change of a job; the pid of what runs is told once it is found."""
    return (
        job.job, job.job_id, job.tag, job.peer, job.state, job.attempts, job.attempt,
        job.work_class, job.profile, job.eta_seconds, job.submitted_at, job.started_at,
        job.ended_at, job.exit_code, job.reject_code, job.failure_category, job.failure_signature,
    )  # fmt: skip


@pytest.fixture(scope="session")
def story(make_shared_run: MakeSharedRun) -> Restarted:
    run = make_shared_run(slots=1)
    run.up()
    place = run.dir.parent / "vanishes"
    place.mkdir()
    with run.client() as client:
        for tag, actions in (
            ("done", ["exit:0"]),
            ("bad", ["say:No module named x", "exit:3"]),
            ("again", ["say:once", "exit:4"]),
        ):
            client.wait(run.submit(client, tag, *actions).job.job, 60)
        lost = run.submit(client, "lost", f"wait:{run.gate('never')}").job.job
        run.until_started(f"{lost}.1")
        shims = [pid for name, pid in run.processes().items() if name.startswith("shim")]
        for pid in (*shims, *run.experiments()):
            send(pid, signal.SIGKILL)
        client.wait(lost, 60)
        held = run.submit(client, "held", f"wait:{run.gate('held')}", "exit:0").job.job
        run.until_started(f"{held}.1")
        environment = {**run.environment, "CORRECTED": "yes"}
        run.submit(
            client, "again", f"dump:{run.gate('again')}", "exit:0", environment=environment,
            retry_terminal=True,
        )  # fmt: skip
        run.submit(client, "late", "exit:0")
        client.cancel("tag:late", admission_timeout=True)
        run.submit(client, "cancelled", "exit:0")
        client.cancel("tag:cancelled", reason="not needed")
        run.submit(client, "gone", "exit:0", cwd=str(place))
        run.submit(client, "scout", "exit:0", work_class="scout")
        run.submit(client, "mature", "exit:0", work_class="mature", eta_seconds=9)
        before, counts = client.queue(include_terminal=True), client.status()["jobs"]
    place.rmdir()
    run.kill_all()
    run.up()
    with run.client() as client:
        after, later = client.queue(include_terminal=True), client.status()["jobs"]
        first_late = next(job.job for job in after if job.tag == "late")
        again = {"done": run.submit(client, "done", "exit:0")}
        again["lost"] = run.submit(client, "lost", f"wait:{run.gate('never')}", retry_terminal=True)
        again["late"] = client.submit(
            tag="late", peer="p1", command=run.evaluator("exit:0"), cwd=str(run.dir),
            environment=run.environment,
        )  # fmt: skip
        run.open_gate("held")
        ended = {}
        for tag in ("held", "again", "gone", "scout", "mature", "done", "bad", "cancelled", "lost"):
            ended[tag] = client.wait(f"tag:{tag}", 60)
        client.wait(again["late"].job.job, 60)
        ended["late"] = client.show(first_late)
    run.acknowledged.pop("late")
    run.down()
    got = json.loads(Path(run.gate("again")).read_text())["environment"]
    retried_with = {
        os.fsdecode(base64.b64decode(name)): os.fsdecode(base64.b64decode(value))
        for name, value in got.items()
    }
    oracle.check_ended(run)
    return Restarted(before, after, (counts, later), ended, retried_with, again)


def test_order_attempts_and_counts_are_as_before(story: Restarted) -> None:
    """S34: a mixed history is replayed whole."""
    assert [bare(job) for job in story.after] == [bare(job) for job in story.before]
    assert story.counts[1] == story.counts[0]
    waiting = [job.tag for job in story.after if job.state == "queued"]
    assert waiting == ["mature", "again", "gone", "scout"]


def test_what_ended_is_not_run_again(story: Restarted) -> None:
    """S103."""
    assert (story.again["done"].verdict, story.again["done"].new) == ("done", False)
    assert story.ended["done"].attempts == 1


def test_what_was_withdrawn_never_runs_and_its_tag_is_free(story: Restarted) -> None:
    """S30; what somebody cancelled keeps its tag."""
    late = story.again["late"]
    assert (late.verdict, late.new) == ("queued", True)
    assert late.job.job != story.ended["late"].job
    for tag, state in (("late", "rejected"), ("cancelled", "cancelled")):
        assert (story.ended[tag].state, story.ended[tag].attempts) == (state, 0)


def test_a_retry_that_waited_shows_nothing_of_the_attempt_before(story: Restarted) -> None:
    """S61."""
    (job,) = [job for job in story.after if job.tag == "again"]
    assert (job.state, job.pid, job.exit_code, job.failure_signature) == (
        "queued", None, None, None,
    )  # fmt: skip
    assert (job.failure_category, job.ended_at) == (None, None)


def test_a_retry_that_waited_runs_with_what_was_sent_with_it(story: Restarted) -> None:
    """S67."""
    ended = story.ended["again"]
    assert (ended.state, ended.attempts, ended.attempt) == ("completed", 2, f"{ended.job}.2")
    assert story.retried_with["CORRECTED"] == "yes"
    assert story.retried_with["PRAXIST_EXPERIMENT_ATTEMPT_ID"] == f"{ended.job}.2"


def test_a_directory_that_vanished_fails_its_job_for_good(story: Restarted) -> None:
    """S17, B61: no retry, and the directory is named."""
    gone = story.ended["gone"]
    assert (gone.state, gone.attempts) == ("failed", 1)
    assert "vanishes" in str(gone.failure_signature)
    assert gone.failure_category == "environment"


def test_a_failure_is_told_as_before(story: Restarted) -> None:
    """S25: its line and its kind survive the replay."""
    assert story.ended["bad"].failure_signature == "No module named x"


def test_an_attempt_found_again_twice_is_still_one_that_may_launch_inside(
    make_run: MakeRun,
) -> None:
    """S95, S101: never killed, and known for what it is."""
    run = make_run(slots=1)
    run.up()
    words = ["launch", "--peer", "p1", "--tag", "inner", "--", "sh", "-c", "exit 7"]
    inner = shlex.join(run.words(*words))
    script = f"while ! [ -e {run.gate('go')} ]; do sleep 0.05; done; {inner}; echo code $?"
    with run.client() as client:
        job = run.submit(client, "outer", command=["sh", "-c", script]).job.job
        wait_until(lambda: client.show(job).pid, "the attempt")
        pid = client.show(job).pid
    for _ in range(2):
        run.kill_all()
        run.up()
    with run.client() as client:
        wait_until(lambda: client.show(job).pid == pid, "the same process")
        run.open_gate("go")
        ended = client.wait(job, 60)
        assert (ended.state, ended.attempts) == ("completed", 1)
        assert [known.tag for known in client.queue(include_terminal=True)] == ["outer"]
    log = run.paths.attempt_log(f"{job}.1").read_text()
    assert f"inside {job}.1" in log
    assert "code 7" in log
    run.down()
    oracle.check_ended(run)


def test_an_unknown_end_stays_unknown_and_is_not_run_again(story: Restarted) -> None:
    """S78, S100: what nothing recorded is neither a success nor tried again."""
    assert (story.ended["lost"].state, story.ended["lost"].attempts) == ("drained_unknown", 1)
    assert (story.again["lost"].verdict, story.again["lost"].new) == ("done", False)


def test_a_profile_that_the_contract_lost_keeps_its_jobs_waiting_and_says_so(
    make_run: MakeRun,
) -> None:
    """S172, met otherwise: the start goes on, because experiments that run must be found again."""
    run = make_run(slots=2, sim="gpus=1")
    run.up()
    with run.client() as client:
        held = run.submit(client, "held", f"wait:{run.gate('held')}", profile="gpu").job.job
        waits = run.submit(client, "waits", "exit:0", profile="gpu").job.job
        run.until_started(f"{held}.1")
    run.down()
    whole = run.contract.read_text()
    run.contract.write_text(whole[: whole.index("      gpu:")])
    run.up()
    with run.client() as client:
        assert client.show(held).state == "running"
        assert [blocker.code for blocker in client.show(waits).blockers] == ["profile_undeclared"]
        warnings = " ".join(client.status()["warnings"])
        assert "queued jobs need profile 'gpu', which the contract in force does not" in warnings
        assert run.launch("other", "exit:3").status == 3
        run.open_gate("held")
        assert client.wait(held, 60).state == "completed"
        client.cancel(waits)
    run.down()
