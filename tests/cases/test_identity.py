"""One tag, one experiment: joining, retries, and what frees a tag. One run for all of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from praxist_zmq import Client
from praxist_zmq.errors import PraxistError
from tests.support.run import Run


@pytest.fixture
def run(shared_run: Run) -> Run:
    return shared_run


@pytest.fixture
def client(run: Run) -> Iterator[Client]:
    with run.client() as client:
        yield client


def refusal(run: Run, client: Client, tag: str, *actions: str, **options: object) -> PraxistError:
    """The refusal of a submission that must be refused."""
    with pytest.raises(PraxistError) as caught:
        run.submit(client, tag, *actions, **options)
    return caught.value


def test_a_tag_with_another_command_joins_the_first_and_says_what_differs(
    run: Run, client: Client
) -> None:
    """S54."""
    first = run.submit(client, "same", f"wait:{run.gate('same')}", "exit:0")
    second = run.submit(client, "same", "exit:9")
    assert (second.verdict, second.new, second.job.job) == ("joined", False, first.job.job)
    assert "your command differs from what was accepted" in second.notes
    run.open_gate("same")
    assert client.wait(first.job.job, 60).exit_code == 0


def test_exit_75_is_tried_again_by_itself_in_this_order(run: Run, client: Client) -> None:
    """S56."""
    job = run.submit(client, "once75", "codes:75,0").job.job
    ended = client.wait(job, 60)
    assert (ended.state, ended.attempts) == ("completed", 2)
    one = ["attempt_allocated", "attempt_bound", "attempt_launched", "attempt_exited"]
    told = [event.type for event in client.events(job=job)]
    ends = ["job_requeued", "job_finished", "allocation_released"]
    assert [name for name in told if name not in ends] == ["job_queued", *one, *one]
    assert [name for name in told if name in ends] == [
        "job_requeued", "allocation_released", "job_finished", "allocation_released",
    ]  # fmt: skip


def test_a_failed_tag_runs_again_only_when_asked_and_stays_the_same_job(
    run: Run, client: Client
) -> None:
    """S57."""
    job = run.submit(client, "failed", "codes:4,0").job.job
    assert client.wait(job, 60).exit_code == 4
    plain = refusal(run, client, "failed", "codes:4,0")
    assert (plain.code, plain.exit_code) == ("terminal_duplicate", 65)
    assert any("--retry-terminal" in line for line in plain.help)
    retried = run.submit(client, "failed", "codes:4,0", retry_terminal=True)
    assert (retried.verdict, retried.job.job) == ("retrying", job)
    ended = client.wait(job, 60)
    assert (ended.state, ended.attempts, ended.attempt) == ("completed", 2, f"{job}.2")
    (event,) = [event for event in client.events(job=job) if event.type == "job_retried"]
    assert event.text.endswith("was failed")


def test_a_retry_needs_the_same_peer_and_something_that_ended(run: Run, client: Client) -> None:
    """S58."""
    assert refusal(run, client, "new", retry_terminal=True).code == "retry_without_job"
    job = run.submit(client, "held", f"wait:{run.gate('held')}", "exit:3").job.job
    run.until_started(f"{job}.1")
    again = run.submit(client, "held", f"wait:{run.gate('held')}", "exit:3", retry_terminal=True)
    assert (again.verdict, again.job.job) == ("joined", job)
    changed = refusal(run, client, "held", "exit:0", retry_terminal=True)
    assert (changed.code, "is running" in changed.detail) == ("retry_conflict", True)
    other = refusal(
        run, client, "held", f"wait:{run.gate('held')}", "exit:3", peer="p2", retry_terminal=True
    )
    assert other.code == "retry_conflict"
    run.open_gate("held")
    client.wait(job, 60)
    thief = refusal(run, client, "held", "exit:0", peer="p2", retry_terminal=True)
    assert thief.code == "not_yours"
    words = run.launch_words("held", "exit:0", options=["--retry-terminal"])
    inherited = run.cli(*words, env={"PRAXIST_PEER_ID": "p2"})
    assert inherited.status == 77, "what runs it is another peer than it says"
    assert client.show(job).attempts == 1


def test_a_tag_that_had_an_attempt_is_kept_when_it_is_withdrawn(run: Run, client: Client) -> None:
    """S59: one attempt ended with 75, then the wait for the second is over."""
    job = run.submit(client, "cut", f"wait:{run.gate('cut')}", "codes:75,0").job.job
    run.until_started(f"{job}.1")
    client.hold()
    run.open_gate("cut")
    late = run.launch("cut", f"wait:{run.gate('cut')}", "codes:75,0",
                      options=["--admission-timeout", "1s"])  # fmt: skip
    client.hold(False)
    assert late.status == 75, late
    shown = client.show(job)
    assert (shown.state, shown.reject_code, shown.attempts) == ("rejected", "admission_timeout", 1)
    assert refusal(run, client, "cut", "exit:0").code == "terminal_duplicate"
    retried = run.submit(client, "cut", "codes:75,0", retry_terminal=True)
    assert retried.job.job == job
    assert client.wait(job, 60).attempt == f"{job}.2"


def test_an_admission_timeout_does_not_bound_what_already_runs(run: Run, client: Client) -> None:
    """B40."""
    process = run.start(
        *run.launch_words("runs", f"wait:{run.gate('runs')}", "exit:6",
                          options=["--admission-timeout", "1s"])
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline().split()[0] == "started"
    assert run.cli("wait", "tag:runs", "--timeout", "2s").status == 124
    assert process.poll() is None
    run.open_gate("runs")
    assert process.wait(60) == 6


@pytest.mark.parametrize("peer", ["gen0_peer/1", "gen0_peer１", "", "a b", "p" * 300])
def test_a_name_that_is_no_peer_s_is_refused_at_the_door(
    run: Run, client: Client, peer: str
) -> None:
    """S105; names are never made to fit, so that two peers cannot become one."""
    assert refusal(run, client, "t", "exit:0", peer=peer).code == "malformed_request"
    with pytest.raises(PraxistError) as caught:
        client.lease_idle(peer)
    assert caught.value.code == "malformed_request"
    assert client.status()["resource_supply"]["idle_waiters"] == 0


def test_a_list_that_is_cut_hides_no_count(run: Run, client: Client) -> None:
    """S26: status counts all jobs, however few a list shows."""
    before = client.status()["jobs_total"]
    jobs = [run.submit(client, f"many{n}", "exit:0").job.job for n in range(3)]
    for job in jobs:
        client.wait(job, 60)
    assert len(client.queue(include_terminal=True, limit=2)) == 2
    status = client.status()
    assert status["jobs_total"] == before + 3
    assert sum(status["jobs"].values()) == before + 3
