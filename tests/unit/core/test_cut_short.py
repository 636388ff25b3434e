"""What we ended is cancelled, whatever its status; what had ended by itself is what it was."""

from __future__ import annotations

import pytest

from praxist_zmq.core import broker_snapshot
from praxist_zmq.core.commands import LauncherSaid
from praxist_zmq.core.invariants import check_history
from praxist_zmq.protocol.codec import decode_event
from praxist_zmq.protocol.reports import AttemptEnded
from praxist_zmq.protocol.requests import (
    CancelJobs,
    GetStatus,
    OpenGeneration,
    RetryJob,
    ShowGeneration,
    ShowJob,
    StopRun,
    SubmitJob,
)
from tests.support.broker_world import World

TEN_SECONDS_MS = 10_000


def running(work_class: str = "mature") -> World:
    """A run with mature work that would count as evidence and teach its run time."""
    world = World()
    world.ask(OpenGeneration(generation=0, mature_quorum=1, publish_completed=True))
    world.ask(
        SubmitJob(
            peer="p", tag="t", command=("run",), cwd="/", environment={},
            work_class=work_class, eta_seconds=60,  # type: ignore[arg-type]
        )
    )  # fmt: skip
    world.settle()
    assert world.broker.state.jobs["j-1"].state == "running"
    return world


def ends(world: World, *, signalled: bool | None, ended_at_ms: int | None = None) -> None:
    """The launcher says that it ended with 0; what was on its way to the launcher is lost."""
    world.to_launcher.clear()
    report = AttemptEnded(
        attempt="j-1.1", outcome="exited", exit_code=0, signalled=signalled,
        ended_at_ms=ended_at_ms,
    )  # fmt: skip
    world.turn(LauncherSaid("launcher", report))


@pytest.mark.parametrize("by", [CancelJobs(jobs=("j-1",), running=True), StopRun()])
def test_what_was_ended_is_cancelled_though_its_status_is_0(by: CancelJobs | StopRun) -> None:
    world = running()
    world.ask(by)
    ends(world, signalled=True)
    shown = world.ask(ShowJob(job="j-1")).job
    assert (shown.state, shown.exit_code, shown.failure_category) == ("cancelled", 0, "interrupted")
    assert world.ask(GetStatus()).jobs["cancelled"] == 1
    told = world.ask(ShowGeneration()).generation
    assert (told.results, told.jobs["cancelled"]) == (0, 1)
    assert world.broker.state.calibration.observed == 0
    assert check_history(decode_event(body) for body in world.disk) == []
    world.take_snapshot()
    assert world.snapshot is not None
    again = broker_snapshot.load(world.snapshot)
    assert broker_snapshot.differences(again, world.broker.state) == []


def test_what_was_cancelled_may_run_again() -> None:
    world = running()
    world.ask(CancelJobs(jobs=("j-1",), running=True))
    ends(world, signalled=True)
    request = SubmitJob(peer="p", tag="t", command=("run",), cwd="/", environment={})
    assert world.ask(request).code == "terminal_duplicate"
    assert world.ask(RetryJob(job="j-1", environment={})).verdict == "retrying"
    world.settle()
    assert world.broker.state.jobs["j-1"].state == "running"
    assert world.ask(ShowJob(job="j-1")).job.note is None


def test_what_had_ended_before_it_was_signalled_is_what_it_was() -> None:
    world = running()
    world.ask(CancelJobs(jobs=("j-1",), running=True))
    ends(world, signalled=False)
    shown = world.ask(ShowJob(job="j-1")).job
    assert (shown.state, shown.note) == ("completed", None)
    assert world.ask(ShowGeneration()).generation.results == 1


@pytest.mark.parametrize("before", [True, False])
def test_of_what_an_earlier_launcher_had_the_record_of_its_end_decides(before: bool) -> None:
    world = running()
    now_ms = world.stamp().at_ms
    world.pass_time(TEN_SECONDS_MS)
    world.ask(CancelJobs(jobs=("j-1",), running=True))
    world.crash_broker()  # the time of the cancel outlives it
    world.to_broker.clear()
    ends(world, signalled=None, ended_at_ms=now_ms + (0 if before else 2 * TEN_SECONDS_MS))
    assert world.broker.state.jobs["j-1"].state == ("completed" if before else "cancelled")


def test_what_never_ran_is_cancelled_and_used_up_no_attempt() -> None:
    world = World()
    world.ask(SubmitJob(peer="p", tag="t", command=("run",), cwd="/", environment={}))
    while not world.launcher.attempts:
        assert world.deliver()
    world.ask(CancelJobs(jobs=("j-1",), running=True, reason="superseded"))
    world.settle()
    assert not world.launcher.runs
    shown = world.ask(ShowJob(job="j-1")).job
    assert (shown.state, shown.attempts, shown.attempt) == ("cancelled", 0, None)
    assert shown.failure_signature == "superseded"


def test_a_cancel_in_the_queue_has_the_same_state() -> None:
    world = World(limit=1)
    for tag in ("runs", "waits"):
        world.ask(SubmitJob(peer="p", tag=tag, command=("run",), cwd="/", environment={}))
    world.settle()
    world.ask(CancelJobs(jobs=("j-2",), reason="superseded"))
    shown = world.ask(ShowJob(job="j-2")).job
    assert (shown.state, shown.reject_code) == ("cancelled", "cancelled")
    assert shown.failure_signature == "superseded"
