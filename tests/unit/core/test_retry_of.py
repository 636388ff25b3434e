"""A retry by hand means one attempt of one job: of that job, and once."""

from __future__ import annotations

from typing import Any

import pytest

from praxist_zmq.protocol.requests import CancelJobs, ExplainJob, RetryJob, SubmitJob
from tests.support.broker_world import World


class RetriedWorld(World):
    """One CPU slot, and what happens in it."""

    def __init__(self) -> None:
        super().__init__(devices=0, limit=1)
        self.settle()

    def submit(self, tag: str, *command: str, **more: Any) -> Any:
        reply = self.ask(
            SubmitJob(
                peer="p", tag=tag, command=command or ("true",), cwd="/", environment={}, **more
            )
        )
        self.settle()
        return reply

    def retry(self, job: str, **more: Any) -> Any:
        reply = self.ask(RetryJob(job=job, environment={}, **more))
        self.settle()
        return reply

    def fail(self, name: str) -> None:
        self.finish(name, 3)
        self.settle()

    def given_back(self) -> None:
        """j-1 runs; j-2 was withdrawn before it ran, and gave its tag back."""
        self.submit("first")
        self.submit("tag", "old")
        self.ask(CancelJobs(jobs=("j-2",), admission_timeout=True))


def test_a_retry_of_a_job_that_gave_its_tag_back_leaves_the_new_holder_alone() -> None:
    world = RetriedWorld()
    world.given_back()
    world.finish("j-1.1")
    world.settle()
    world.submit("tag", "new")
    world.fail("j-3.1")
    refused = world.retry("j-2")
    assert (refused.kind, refused.code) == ("refusal", "tag_given_back")
    assert refused.detail == "j-2: nothing of it ran, and its tag is j-3's now"
    assert world.broker.state.jobs["j-3"].state == "failed"
    assert world.ask(ExplainJob(subject="j-2")).options == (
        "nothing of it ran, and its tag is j-3's now",
    )


def test_a_job_whose_tag_is_free_is_told_to_be_sent_again() -> None:
    world = RetriedWorld()
    world.given_back()
    assert world.ask(ExplainJob(subject="j-2")).options == (
        "nothing of it ran and its tag is free: send it again",
    )
    assert world.retry("j-2").code == "tag_given_back"
    assert world.submit("tag", "new").verdict == "queued"


@pytest.mark.parametrize("by", ["retry", "submit"])
def test_a_retry_that_names_its_attempt_runs_once_whatever_is_lost(by: str) -> None:
    """Each repeat is another command, with a request id of its own."""
    world = RetriedWorld()
    world.submit("tag")
    world.fail("j-1.1")

    def ask() -> Any:
        if by == "retry":
            return world.retry("j-1", retry_of="j-1.1")
        return world.submit("tag", retry_terminal=True, retry_of="j-1.1")

    first = ask()
    assert (first.verdict, first.new) == ("retrying", True)
    again = ask()
    assert (again.verdict, again.new) == ("joined", False)
    world.fail("j-1.2")
    last = ask()
    assert (last.verdict, last.new, last.job.state) == ("done", False, "failed")
    assert last.notes == ("j-1.1 was already followed by j-1.2; nothing more is run",)
    assert world.broker.state.jobs["j-1"].attempt_counter == 2
    assert world.retry("j-1", retry_of="j-1.2").new, "the next one is another wish"


def test_a_repeat_with_another_command_is_answered_from_what_happened_too() -> None:
    world = RetriedWorld()
    world.submit("tag")
    world.fail("j-1.1")
    world.retry("j-1", retry_of="j-1.1", command=("fixed",))
    world.fail("j-1.2")
    again = world.retry("j-1", retry_of="j-1.1", command=("other",))
    assert not again.new
    assert world.broker.state.jobs["j-1"].command == ("fixed",)


@pytest.mark.parametrize("attempt", ["j-1.7", "j-9.1"])
def test_an_attempt_that_never_was_is_followed_by_none(attempt: str) -> None:
    world = RetriedWorld()
    world.submit("tag")
    world.fail("j-1.1")
    refused = world.submit("tag", retry_terminal=True, retry_of=attempt)
    assert (refused.kind, refused.code) == ("refusal", "retry_conflict")
    assert f"has no attempt {attempt}" in refused.detail


def test_a_job_of_which_no_attempt_was_made_is_retried_after_number_0() -> None:
    world = RetriedWorld()
    world.submit("first")
    world.submit("tag")
    world.ask(CancelJobs(jobs=("j-2",)))
    assert world.retry("j-2", retry_of="j-2.0").new
    assert not world.retry("j-2", retry_of="j-2.0").new


def test_a_retry_that_waits_gets_its_credentials_back_by_the_same_request() -> None:
    """As `launch --retry-terminal` sends it when a restart took them."""
    world = RetriedWorld()
    environment = {"API_TOKEN": "a-secret-value-of-some-length"}
    more = {"retry_terminal": True, "retry_of": "j-1.1"}

    def ask(**options: Any) -> Any:
        return world.ask(
            SubmitJob(
                peer="p", tag="tag", command=("true",), cwd="/", environment=environment, **options
            )
        )

    ask()
    world.settle()
    world.fail("j-1.1")
    world.submit("other")
    ask(**more)
    world.crash_broker()
    world.settle()
    assert world.broker.soft.lacking_credentials == {"j-1": None}
    ask(**more)
    assert not world.broker.soft.lacking_credentials


def test_a_retry_waits_from_when_it_was_queued() -> None:
    world = RetriedWorld()
    world.submit("tag")
    world.fail("j-1.1")
    first = world.broker.state.jobs["j-1"].submitted_at_ms
    world.now_ms += 20_000
    shown = world.retry("j-1").job
    job = world.broker.state.jobs["j-1"]
    assert job.submitted_at_ms == first
    assert job.queued_at_ms > first + 20_000
    assert shown.queued_at > shown.submitted_at
