"""The pause between a job's own automatic attempts: it grows, it is told, it outlives a restart."""

from __future__ import annotations

from typing import Any

import pytest

from praxist_zmq.core import pauses
from praxist_zmq.protocol.requests import CancelJobs, ExplainJob, ListJobs, SubmitJob
from tests.support.broker_world import World, policy

FIRST_MS = 30_000


class PatientWorld(World):
    """A run whose contract keeps the default pause."""

    def __init__(self, retries: int = 3) -> None:
        contract = policy(1, retries).model_copy(
            update={"infrastructure_retry_pause_seconds": FIRST_MS / 1000}
        )
        super().__init__(devices=0, contract=contract)
        self.settle()
        self.submit("a")

    def submit(self, tag: str) -> None:
        self.ask(SubmitJob(peer="p", tag=tag, command=("true",), cwd="/", environment={}))
        self.settle()

    def end(self, code: int = 75) -> None:
        assert self.finish_one(code)
        self.settle()

    def pass_over(self, milliseconds: int) -> None:
        self.pass_time(milliseconds)
        self.settle()

    @property
    def job(self) -> Any:
        return self.broker.state.jobs["j-1"]


def test_each_retry_of_a_job_waits_twice_as_long_as_the_one_before() -> None:
    world = PatientWorld()
    for wait_ms in (FIRST_MS, 2 * FIRST_MS, 4 * FIRST_MS):
        world.end()
        assert world.job.state == "queued"
        world.pass_over(wait_ms - 1_000)
        assert world.job.state == "queued", wait_ms
        world.pass_over(1_000)
        assert world.job.state == "running", wait_ms
    world.end()
    assert (world.job.state, world.job.attempts_used) == ("failed", 4)


def test_the_pause_is_bounded_and_can_be_left_out() -> None:
    world = PatientWorld()
    world.job.requeue_reason, world.job.retries_used = "exit_75", 500
    assert pauses.pause_of(world.job, world.policy)[0] == pauses.RETRY_PAUSE_MAX_MS
    none = world.policy.model_copy(update={"infrastructure_retry_pause_seconds": 0.0})
    assert pauses.pause_of(world.job, none)[0] == 0


def test_the_pause_is_the_reason_of_waiting_and_holds_no_other_job() -> None:
    world = PatientWorld()
    world.end()
    told = world.ask(ExplainJob(subject="j-1"))
    assert [blocker.code for blocker in told.blockers] == ["retry_pause"]
    assert told.verdict == ("waits: its last attempt ended with exit 75; it is tried again in 30 s")
    assert [entry.event for entry in told.would_start] == [
        "the pause before its next attempt is over"
    ]
    assert told.start_estimate.likely_s == pytest.approx(30, abs=1)
    assert [job.job for job in world.ask(ListJobs()).jobs] == ["j-1"]
    world.submit("b")
    assert world.broker.state.jobs["j-2"].state == "running"


def test_a_restart_waits_only_for_what_is_left_of_the_pause() -> None:
    world = PatientWorld()
    world.end()
    world.pass_over(20_000)
    world.take_snapshot()
    world.crash_broker()
    world.settle()
    assert world.job.state == "queued"
    world.pass_over(10_000)
    assert world.job.state == "running"


def test_a_job_that_pauses_can_be_cancelled() -> None:
    world = PatientWorld()
    world.end()
    assert world.ask(CancelJobs(jobs=("j-1",))).results[0].outcome == "cancelled"
    world.pass_over(10 * FIRST_MS)
    assert world.job.state not in ("queued", "running")
    assert not world.broker.soft.pauses
