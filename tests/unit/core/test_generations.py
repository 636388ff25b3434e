"""The life of a generation in a whole run of one thread: freeze, close, rerun, evidence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from praxist_zmq.core import broker_snapshot
from praxist_zmq.core.commands import ClientRequest, SignalSeen
from praxist_zmq.core.decision import Stamp
from praxist_zmq.core.invariants import check_at_rest, check_history
from praxist_zmq.protocol.codec import decode_event
from praxist_zmq.protocol.orders import ReleaseAttempt, SpawnAttempt
from praxist_zmq.protocol.replies import Refusal
from praxist_zmq.protocol.reports import StoreRead, StoreResult
from praxist_zmq.protocol.requests import (
    AssessGeneration,
    CancelJobs,
    FreezeGeneration,
    GetStatus,
    ListResults,
    OpenGeneration,
    PublishResult,
    RegisterIdle,
    ReportProgress,
    ShowGeneration,
    StopRun,
    SubmitJob,
    WatchJob,
)
from tests.support.broker_world import World


def submit(world: World, tag: str, work_class: Any = "ordinary", **more: Any) -> Any:
    request = SubmitJob(
        peer=more.pop("peer", "p1"), tag=tag, command=("run",), cwd="/",
        environment=more.pop("environment", {}), work_class=work_class, **more,
    )  # fmt: skip
    return world.ask(request)


def close(world: World, generation: int = 0, signal: bool = True) -> Any:
    return world.ask(FreezeGeneration(generation=generation, reason="closed", signal=signal))


def states(world: World) -> dict[str, str]:
    return {job.tag: job.state for job in world.broker.state.jobs.values()}


def test_a_close_rejects_what_waits_drains_what_runs_and_then_signals() -> None:
    world = World(limit=1)
    for tag in ("runs", "waits"):
        submit(world, tag)
    world.settle()
    reply = close(world)
    assert (reply.rejected, reply.draining) == (("j-2",), ("j-1",))
    assert reply.generation.state == "frozen"
    assert world.closing == {0}
    assert states(world) == {"runs": "running", "waits": "rejected"}
    assert submit(world, "late").code == "generation_closing"
    world.finish_one(75)
    world.settle()
    assert states(world)["runs"] == "failed", "no retry after the freeze"
    assert world.phase(0) == "closed"
    assert world.ask(ShowGeneration()).generation.jobs["rejected"] == 1


def test_waiting_clients_of_rejected_jobs_are_answered_in_the_same_turn() -> None:
    world = World(limit=1)
    for tag in ("runs", "waits"):
        submit(world, tag)
    world.settle()
    assert world.ask(WatchJob(job="j-2", until="terminal"), "watch-2") is None
    assert world.ask(WatchJob(job="j-1", until="terminal"), "watch-1") is None
    close(world)
    (reply,) = world.replies["watch-2"]
    assert (reply.job.state, reply.job.reject_code) == ("rejected", "generation_closing")
    assert reply.job.failure_signature == "generation 0 is frozen: closed"
    assert "watch-1" not in world.replies
    world.finish_one(3)
    world.settle()
    assert world.replies["watch-1"][0].job.exit_code == 3


@pytest.mark.parametrize("steps", range(9))
@pytest.mark.parametrize("crash", [False, True])
def test_what_stands_at_its_barrier_never_runs_after_a_freeze(steps: int, crash: bool) -> None:
    world = World(limit=1)
    submit(world, "a")
    for _ in range(steps):
        world.deliver()
    ran = bool(world.launcher.runs)
    told = any(isinstance(order, ReleaseAttempt) for order in world.to_launcher)
    close(world)
    if crash:
        world.crash_broker()
    world.settle()
    world.finish_one()
    world.settle()
    assert bool(world.launcher.runs) == (ran or told)
    assert states(world)["a"] == ("completed" if ran or told else "rejected")
    assert world.phase(0) == "closed"
    assert not world.broker.state.attempts
    assert not world.registry.state.rows
    assert check_at_rest(world.broker.state) == []
    assert check_history(decode_event(body) for body in world.disk) == []


def test_a_go_that_was_lost_is_not_given_again_after_a_freeze() -> None:
    world = World(limit=1)
    submit(world, "a")
    while not any(isinstance(order, ReleaseAttempt) for order in world.to_launcher):
        assert world.deliver()
    world.to_launcher.clear()
    assert close(world).draining == ("j-1",), "for all that is known it runs"
    world.connect_launcher()  # the same one: it did not read for a while
    world.settle()
    assert world.launcher.runs == {}
    assert states(world) == {"a": "rejected"}
    assert world.phase(0) == "closed"


def test_a_restart_finishes_a_close_that_was_cut_off() -> None:
    world = World(limit=1)
    for tag in ("runs", "waits", "waits too"):
        submit(world, tag)
    world.settle()
    close(world)
    kinds = [decode_event(body).kind for body in world.disk]
    del world.disk[kinds.index("generation_frozen") + 2 :]  # the freeze, and one rejection
    world.closing.clear()
    world.crash_broker()
    assert sorted(states(world).values()) == ["rejected", "rejected", "running"]
    assert world.closing == {0}
    assert submit(world, "late").code == "generation_closing"


@pytest.mark.parametrize("kept", range(1, 5))
def test_a_generation_is_closed_when_nothing_of_it_is_held(kept: int) -> None:
    """Whatever part of the batch that ends its last attempt has reached the disk
    (`bin/simulate --seed 1478`)."""
    world = World(limit=1)
    submit(world, "a")
    while not any(isinstance(order, SpawnAttempt) for order in world.to_launcher):
        assert world.deliver()
    close(world)
    world.settle()
    assert world.phase(0) == "closed"
    kinds = [decode_event(body).kind for body in world.disk]
    before = kinds.index("attempt_exited")
    assert len(kinds) == before + 5
    del world.disk[before + kept :]
    world.crash_broker()
    world.settle()
    assert states(world) == {"a": "rejected"}
    kinds = [decode_event(body).kind for body in world.disk]
    assert kinds.index("allocation_released") < kinds.index("generation_closed")
    assert world.phase(0) == "closed"


def test_both_fences_hold_over_a_restart_and_a_snapshot() -> None:
    world = World()
    world.ask(OpenGeneration(generation=1, deadline_seconds=600))
    world.ask(AssessGeneration(generation=1))
    close(world, 0, signal=False)
    world.take_snapshot()
    for _ in range(2):
        world.crash_broker()
        world.broker.state.generation = 1
        assert submit(world, "o", generation=1).code == "generation_assessment"
        assert submit(world, "c", generation=0).code == "generation_closing"
    assert world.closing == set()


def test_assessment_rejects_ordinary_work_and_keeps_mature_work() -> None:
    world = World(limit=1)
    world.ask(OpenGeneration(generation=0, cohort_size=12, deadline_seconds=600))
    submit(world, "runs")
    world.settle()
    for tag, work_class in (("o", "ordinary"), ("s", "scout"), ("m", "mature")):
        submit(world, tag, work_class, eta_seconds=5)
    reply = world.ask(AssessGeneration(generation=0, reason="half time"))
    assert reply.rejected == ("j-2", "j-3")
    assert world.closing == set(), "assessment is no close"
    world.finish_one(75)
    world.settle()
    assert states(world) == {
        "runs": "failed", "o": "rejected", "s": "rejected", "m": "running",
    }  # fmt: skip
    again = world.ask(AssessGeneration(generation=0))
    assert (again.rejected, again.generation.reason) == ((), "half time")
    close(world)
    assert world.ask(AssessGeneration(generation=0)).generation.state in ("frozen", "closed")


def test_an_assessment_outlives_an_opening_that_is_no_rerun() -> None:
    world = World()
    world.ask(AssessGeneration(generation=0))
    assert world.ask(OpenGeneration(generation=0)).generation.state == "assessment"
    assert submit(world, "o").code == "generation_assessment"
    assert world.ask(OpenGeneration(generation=0, rerun=True)).generation.state == "open"
    assert submit(world, "o").verdict == "queued"


def test_the_quota_ends_an_assessment() -> None:
    world = World()
    world.ask(OpenGeneration(generation=0, cohort_size=4, mature_quorum=2, deadline_seconds=600))
    for tag, peer in (("a", "p1"), ("b", "p1")):
        world.ask(PublishResult(tag=tag, peer=peer, mature=True))
    assert world.ask(AssessGeneration(generation=0)).generation.state == "assessment"
    world.pass_time(1_000)
    assert world.phase(0) == "assessment", "two results of one peer"
    world.ask(PublishResult(tag="c", peer="p2", mature=True))
    assert world.phase(0) == "closed"
    assert world.closing == {0}


def test_the_deadline_ends_an_open_generation_by_itself() -> None:
    world = World()
    world.ask(OpenGeneration(generation=0, deadline_seconds=10))
    submit(world, "a")
    world.settle()
    due = world.broker.wake_at_ms()
    assert due is not None
    assert due <= world.now_ms + 10_000
    world.pass_time(10_000)
    assert world.phase(0) == "frozen"
    assert world.closing == {0}
    assert submit(world, "b").code == "generation_closing"
    world.finish_one()
    world.settle()
    assert states(world)["a"] == "completed"


@pytest.mark.parametrize("step_ms", [86_400_000, -86_400_000])
def test_a_step_of_the_wall_clock_across_a_restart_moves_no_deadline(step_ms: int) -> None:
    world = World()
    world.ask(OpenGeneration(generation=0, deadline_seconds=100))
    world.pass_time(40_000)
    world.crash_broker()
    world.wall_step_ms = step_ms
    world.pass_time(20_000)
    world.start_broker()
    assert world.phase(0) == "open"
    world.pass_time(39_000)
    assert world.phase(0) == "open", "1 s is left"
    world.pass_time(1_000)
    assert world.phase(0) == "closed"


def test_no_deadline_ends_nothing_until_somebody_closes() -> None:
    world = World()
    world.ask(OpenGeneration(generation=0))
    world.pass_time(365 * 86_400_000)
    assert world.phase(0) == "open"
    assert world.ask(GetStatus()).generation["deadline"] is None
    world.ask(CancelJobs(jobs=(submit(world, "a", eta_seconds=86_400).job.job,)))
    close(world)
    world.crash_broker()
    assert submit(world, "b").code == "generation_closing"
    assert world.phase(0) == "closed"


def test_a_close_file_of_others_freezes() -> None:
    world = World(limit=1)
    submit(world, "a")
    world.turn(SignalSeen(0, "STOP_SIGNAL"), *_asked(world, "b"))
    assert states(world) == {"a": "rejected"}
    (reply,) = world.replies["b"]
    assert isinstance(reply, Refusal)
    assert (reply.code, reply.detail) == (
        "generation_closing", "generation 0 is frozen: STOP_SIGNAL is there",
    )  # fmt: skip
    assert world.closing == set(), "the file is theirs"


def _asked(world: World, tag: str) -> list[ClientRequest]:
    request = SubmitJob(peer="p1", tag=tag, command=("run",), cwd="/", environment={})
    return [ClientRequest("client", tag, "0" * 64, request, 0, 1)]


def test_freezing_all_closes_admission_until_a_generation_is_opened() -> None:
    world = World(limit=1)
    for tag in ("runs", "waits"):
        submit(world, tag)
    world.settle()
    reply = world.ask(FreezeGeneration(reason="maintenance"))
    assert (reply.rejected, reply.draining) == (("j-2",), ("j-1",))
    assert world.closing == set()
    world.crash_broker()
    assert not world.broker.soft.stopping, "it is no stop"
    assert submit(world, "b").code == "admission_closed"
    world.start_broker(reopen=True)
    assert submit(world, "b").code == "admission_closed", "`up` alone opens nothing"
    world.ask(OpenGeneration(generation=1))
    assert submit(world, "b").verdict == "queued"
    assert states(world)["runs"] == "running"


def test_an_opening_that_reached_the_disk_in_part_is_done_again_by_the_next_up() -> None:
    world = World()
    world.ask(FreezeGeneration(reason="all"))
    before = len(world.disk)
    world.ask(OpenGeneration(generation=0))
    assert len(world.disk) == before + 2
    del world.disk[-1:]
    world.crash_broker()
    world.broker.begin(
        world.stamp(), run_id="run", boot_id="boot-1", version="test", policy=world.policy,
        generation=0, reopen=True, open_generation=True,
    )  # fmt: skip
    assert world.phase(0) == "open"
    assert world.broker.state.closed_reason is None


def test_a_stop_of_a_run_that_was_frozen_is_a_stop() -> None:
    world = World()
    world.ask(FreezeGeneration())
    world.ask(StopRun())
    world.crash_broker()
    assert world.broker.stopped
    refused = world.ask(OpenGeneration(generation=1))
    assert refused.code == "admission_closed"


# -- rerun: the identities that it frees -----------------------------------------------------


def rerun(world: World) -> None:
    world.ask(OpenGeneration(generation=0, rerun=True))


def test_a_rerun_frees_what_the_close_refused_and_keeps_what_ended() -> None:
    world = World(limit=1)
    for tag in ("good", "bad", "never", "cancelled"):
        submit(world, tag)
    world.ask(CancelJobs(jobs=("j-4",)))
    world.settle()
    world.finish_one(0)
    world.settle()
    world.finish_one(3)
    world.deliver()
    close(world)
    world.settle()
    assert states(world) == {
        "good": "completed", "bad": "failed", "never": "rejected", "cancelled": "cancelled",
    }  # fmt: skip
    rerun(world)
    assert world.closing == set()
    assert submit(world, "good").verdict == "done"
    assert submit(world, "bad").code == "terminal_duplicate"
    assert submit(world, "cancelled").code == "terminal_duplicate"
    again = submit(world, "never")
    assert (again.verdict, again.new, again.job.job) == ("queued", True, "j-5")
    world.crash_broker()
    world.settle()
    world.finish_one(0)
    world.settle()
    close(world)
    rerun(world)
    assert submit(world, "never").verdict == "done", "freed once, it is another job's by now"
    assert check_history(decode_event(body) for body in world.disk) == []


@pytest.mark.parametrize("fence", ["close", "assess", "stop"])
def test_a_rerun_frees_what_any_fence_refused(fence: str) -> None:
    world = World(limit=1)
    world.ask(OpenGeneration(generation=0, deadline_seconds=600))
    for tag in ("runs", "waits"):
        submit(world, tag)
    world.settle()
    if fence == "close":
        close(world)
    elif fence == "assess":
        world.ask(AssessGeneration(generation=0))
    else:
        world.ask(StopRun())
        world.settle()
        world.start_broker(reopen=True)
    assert states(world)["waits"] == "rejected"
    world.ask(OpenGeneration(generation=0))
    still = "generation_assessment" if fence == "assess" else "terminal_duplicate"
    assert submit(world, "waits").code == still, "only a rerun frees it"
    rerun(world)
    assert submit(world, "waits").new


def test_up_with_a_generation_that_had_ended_runs_it_again() -> None:
    world = World(limit=1)
    for tag in ("runs", "waits"):
        submit(world, tag)
    world.settle()
    close(world)
    begin = {
        "run_id": "run", "boot_id": "boot-1", "version": "test", "policy": world.policy,
        "generation": 0,
    }  # fmt: skip
    for opens, phase in ((False, "frozen"), (True, "open")):
        world.broker.begin(
            Stamp(at_ms=1_800_000_000_000, mono_ms=world.now_ms), reopen=True,
            open_generation=opens, **begin,
        )  # fmt: skip
        assert world.phase(0) == phase
    assert submit(world, "waits").new


def test_what_is_not_told_of_the_peers_of_a_generation_stays_as_it_was() -> None:
    world = World()
    peers = ("a", "b", "c")
    world.ask(OpenGeneration(generation=3, peers=peers, mature_quorum=2, deadline_seconds=60))
    close(world, 3)
    again = world.ask(OpenGeneration(generation=3, rerun=True)).generation
    assert (again.cohort_size, again.mature_quorum, again.deadline) == (3, 2, None)
    assert set(again.advice) == set(peers)
    changed = world.ask(OpenGeneration(generation=3, peers=("x", "y"), cohort_size=9)).generation
    assert (changed.cohort_size, changed.mature_quorum, set(changed.advice)) == (9, 2, {"x", "y"})


def test_a_quorum_that_no_cohort_meets_and_a_peer_named_twice_are_refused() -> None:
    world = World()
    for facts in (
        {"cohort_size": 2, "mature_quorum": 3},
        {"peers": ("a", "b"), "mature_quorum": 3},
        {"peers": ("a", "a")},
    ):
        reply = world.ask(OpenGeneration(generation=3, **facts))  # type: ignore[arg-type]
        assert reply.code == "malformed_request"
    assert 3 not in world.broker.state.generations


# -- evidence -------------------------------------------------------------------------------


def test_results_are_told_once_and_mature_is_never_taken_back() -> None:
    world = World()
    submit(world, "a", peer="p7")
    first = world.ask(PublishResult(tag="a"))
    assert (first.new, first.result.peer, first.result.mature) == (True, "p7", False)
    events = len(world.disk)
    assert not world.ask(PublishResult(tag="a")).new
    assert len(world.disk) == events
    assert world.ask(PublishResult(tag="a", mature=True)).result.mature
    assert world.ask(PublishResult(tag="a", mature=False)).result.mature
    assert world.ask(PublishResult(tag="store only", source="store")).result.peer is None
    assert world.ask(PublishResult(tag="store only", peer="p8")).result.peer == "p8"
    listed = world.ask(ListResults())
    assert [one.tag for one in listed.results] == ["a", "store only"]
    assert listed.maturity.completed == 1
    assert world.ask(ListResults(generation=4)).code == "generation_unknown"
    newest = world.ask(ListResults(limit=1))
    assert (newest.results, newest.total) == (listed.results[-1:], len(listed.results))


@pytest.mark.parametrize(("publish", "known"), [(True, {"m"}), (False, set())])
def test_mature_work_that_completes_is_evidence_where_the_run_says_so(
    publish: bool, known: set[str]
) -> None:
    world = World(limit=4)
    world.ask(OpenGeneration(generation=0, cohort_size=4, publish_completed=publish))
    submit(world, "m", "mature")
    submit(world, "o")
    submit(world, "fails", "mature")
    world.settle()
    for attempt, code in (("j-1.1", 0), ("j-2.1", 0), ("j-3.1", 1)):
        world.finish(attempt, code)
    world.settle()
    assert {one.tag for one in world.ask(ListResults()).results} == known


@pytest.mark.parametrize("kept", range(5))
def test_evidence_of_completed_work_outlives_a_batch_that_reached_the_disk_in_part(
    kept: int,
) -> None:
    world = World()
    world.ask(OpenGeneration(generation=0, publish_completed=True))
    submit(world, "m", "mature")
    world.settle()
    before = len(world.disk)
    world.finish("j-1.1", 0)
    world.deliver()
    world.to_launcher.clear()  # nothing is sent of what is not on disk
    assert len(world.disk) == before + 4
    del world.disk[before + kept :]
    world.crash_broker()
    world.settle()
    assert states(world) == {"m": "completed"}
    assert [one.tag for one in world.ask(ListResults()).results] == ["m"]
    assert not world.broker.state.attempts


def test_the_store_adds_evidence_and_a_failing_one_takes_nothing_back() -> None:
    world = World()
    submit(world, "a", peer="p7")
    found = (StoreResult(tag="a", mature=True), StoreResult(tag="b", generation=9))
    world.turn(StoreRead(results=found))
    (only,) = world.ask(ListResults()).results
    assert (only.tag, only.peer, only.source) == ("a", "p7", "store")
    assert any("never opened: [9]" in text for text in world.ask(GetStatus()).warnings)
    world.turn(StoreRead(results=(), problem="it ended with exit 1"))
    warning = "the results command: it ended with exit 1; what is known stays"
    assert warning in world.ask(GetStatus()).warnings
    assert len(world.ask(ListResults()).results) == 1
    world.turn(StoreRead(results=found[:1]))
    assert not any("results command" in text for text in world.ask(GetStatus()).warnings)


def test_evidence_and_counters_belong_to_their_generation() -> None:
    world = World()
    submit(world, "a")
    world.ask(PublishResult(tag="a", mature=True))
    world.ask(OpenGeneration(generation=1, cohort_size=2, peers=("p1", "p2")))
    submit(world, "a", "mature")
    world.settle()
    old, new = (world.ask(ShowGeneration(generation=n)).generation for n in (0, 1))
    assert (old.results, new.results) == (1, 0)
    assert (old.jobs["running"], new.jobs["running"], new.attempts) == (1, 1, 1)
    assert new.maturity.inflight_jobs == 1
    assert new.advice == {"p1": "direct_mature", "p2": "explore"}
    status = world.ask(GetStatus())
    assert set(status.resource_supply["maturity"]) == {"0", "1"}
    assert status.generation["number"] == 1


def test_a_snapshot_of_the_old_form_still_loads() -> None:
    world = World(limit=1)
    for tag in ("a", "b"):
        submit(world, tag, "mature")
    world.settle()
    world.take_snapshot()
    assert world.snapshot is not None
    old = json.loads(world.snapshot)
    del old["generations"]
    old |= {"cohort_size": 8, "deadline_at_ms": 1_800_000_000_000}
    state = broker_snapshot.load(json.dumps(old).encode())
    found = state.generations[0]
    assert (found.phase, found.cohort_size, found.deadline_at_ms) == ("open", 8, 1_800_000_000_000)
    assert (found.counts["running"], found.counts["queued"], found.attempts) == (1, 1, 1)
    assert check_at_rest(state) == []
    world.snapshot = json.dumps(old).encode()
    world.crash_broker()
    close(world)
    world.finish_one()
    world.settle()
    assert world.phase(0) == "closed"


def test_no_word_of_a_client_brings_a_credential_to_the_disk_or_a_view() -> None:
    secret, told = "0123456789abcdef0", "ghp_" + "a" * 36
    world = World(limit=1)
    submit(world, "a", environment={"MY_TOKEN": secret})
    world.settle()
    words = f"look at {secret} and {told}"
    for request in (
        PublishResult(tag=f"x/{told}"),
        PublishResult(tag="c", peer=told),
        OpenGeneration(generation=4, peers=("p1", told)),
        RegisterIdle(peer=told),
    ):
        assert world.ask(request).code == "literal_secret", request
    assert submit(world, "named", environment={told: "x"}).code == "literal_secret"
    world.turn(
        StoreRead(results=(StoreResult(tag=f"x/{told}"), StoreResult(tag="b")), problem=None)
    )
    assert "looks like a credential" in " ".join(world.ask(GetStatus()).warnings)
    assert [one.tag for one in world.ask(ListResults()).results] == ["b"]
    leader = world.broker.state.attempts["j-1.1"].leader
    assert leader is not None
    progress = ReportProgress(attempt="j-1.1", pgid=leader.pid, done=1, total=2, text=words)
    assert world.ask(progress).taken
    assert world.ask(AssessGeneration(generation=0, reason=words)).generation.reason is not None
    world.ask(FreezeGeneration(generation=0, reason=words))
    written = b"".join(world.disk) + repr((world.replies, world.broker.soft.warnings)).encode()
    for value in (secret, told):
        assert value.encode() not in written


def test_an_assessment_that_has_its_evidence_freezes_at_once_and_names_all_it_rejects() -> None:
    world = World(limit=1)
    world.ask(OpenGeneration(generation=0, cohort_size=4, deadline_seconds=600))
    submit(world, "runs")
    world.settle()
    for tag, work_class in (("o", "ordinary"), ("s", "scout"), ("m", "mature")):
        submit(world, tag, work_class, eta_seconds=5)
    world.ask(PublishResult(tag="a", peer="p1", mature=True))
    reply = world.ask(AssessGeneration(generation=0))
    assert (reply.generation.state, reply.rejected) == ("frozen", ("j-2", "j-3", "j-4"))
    assert reply.draining == ("j-1",)
    assert reply.generation.reason == "no debt of mature evidence is left", "no quorum is set"
    assert world.closing == {0}


def test_what_an_assessment_refused_is_refused_the_same_when_it_comes_again() -> None:
    """Not once as closed, then as a duplicate, then as closed again."""
    world = World(limit=1)
    submit(world, "first")
    submit(world, "o")
    world.ask(AssessGeneration(generation=0))
    world.settle()
    assert world.broker.state.jobs["j-2"].reject_code == "generation_assessment"
    for more in ({}, {}, {"retry_terminal": True}, {}):
        assert submit(world, "o", **more).code == "generation_assessment"
