"""What follows from the launcher's reports, with a world of the real machines around it."""

from __future__ import annotations

from praxist_zmq.core.attempts import STUCK_PAUSE_MS
from praxist_zmq.core.commands import LauncherLost, LauncherSaid
from praxist_zmq.core.launcher_side import ASK_LAUNCHER_MS
from praxist_zmq.core.queries import LAUNCHER_SILENCE_MS
from praxist_zmq.protocol import orders
from praxist_zmq.protocol.codec import decode_event
from praxist_zmq.protocol.events import AttemptStuck
from praxist_zmq.protocol.reports import AttemptEnded, AttemptUnkillable
from praxist_zmq.protocol.requests import CancelJobs, FreezeGeneration, GetStatus, SubmitJob
from tests.support.broker_world import World


def test_a_cancel_before_the_launcher_told_that_it_runs_ends_it_all_the_same() -> None:
    world = World()
    world.ask(SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={}))
    while not any(a.phase == "running" for a in world.launcher.attempts.values()):
        assert world.deliver()
    world.crash_broker()  # the launcher's word that it started is lost with it
    reports = list(world.to_broker)
    world.to_broker.clear()
    (result,) = world.ask(CancelJobs(jobs=("j-1",), running=True)).results
    assert result.outcome == "ending"
    world.to_broker.extend(reports)
    sent = []
    while world.to_broker or world.to_registry or world.to_launcher:
        sent += [type(order) for order in world.to_launcher]
        world.deliver()
    assert orders.StopAttempt in sent
    assert world.broker.state.jobs["j-1"].state == "cancelled"
    assert not world.broker.state.attempts


def test_a_launcher_that_lost_an_order_but_no_connection_is_asked_to_introduce_itself() -> None:
    world = World()
    world.settle()
    world.ask(SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={}))
    while not world.to_launcher:
        assert world.deliver()
    world.to_launcher.clear()  # the link was full
    world.turn(LauncherLost("launcher"))
    assert not world.broker.soft.launcher_ready
    world.settle()
    assert (world.broker.wake_at_ms() or 0) <= world.now_ms + ASK_LAUNCHER_MS
    world.pass_time(ASK_LAUNCHER_MS)
    world.settle()
    assert world.broker.soft.launcher_ready
    assert world.broker.state.jobs["j-1"].state == "running"
    assert world.broker.state.attempts["j-1.1"].phase == "running"


def test_a_launcher_that_is_gone_is_asked_in_vain_until_the_next_one_is_there() -> None:
    world = World()
    world.settle()
    world.turn(LauncherLost("launcher"))
    world.launcher_address = "another"
    for _ in range(3):
        world.pass_time(ASK_LAUNCHER_MS)
        world.turn(LauncherLost("launcher"))
        world.settle()
        assert not world.broker.soft.launcher_ready
    world.connect_launcher()
    world.settle()
    assert world.broker.soft.launcher_ready
    world.pass_time(ASK_LAUNCHER_MS)
    assert not world.to_launcher


def test_a_launcher_that_just_starts_is_no_trouble_and_one_that_stays_away_is() -> None:
    world = World()
    world.settle()
    world.turn(LauncherLost("launcher"))
    world.launcher_address = "another"
    assert world.ask(GetStatus()).health == "healthy"
    world.pass_time(LAUNCHER_SILENCE_MS)
    status = world.ask(GetStatus())
    assert status.health == "troubled"
    assert status.warnings == ("the launcher has not answered for 2 s: nothing starts",)
    world.connect_launcher()
    world.settle()
    assert world.ask(GetStatus()).health == "healthy"


def test_a_tree_that_forks_on_is_told_once_a_minute() -> None:
    world = World()
    world.ask(SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={}))
    world.settle()
    for pid in range(10, 15):
        report = AttemptUnkillable(attempt="j-1.1", pids=(pid,), detail="still there")
        world.turn(LauncherSaid("launcher", report))
        world.pass_time(1_000)
    told = [event for body in world.disk if isinstance(event := decode_event(body), AttemptStuck)]
    assert [event.pids for event in told] == [(10,)]
    due = world.broker.wake_at_ms()
    assert due is not None
    assert due <= world.now_ms + STUCK_PAUSE_MS
    world.pass_time(STUCK_PAUSE_MS)
    assert world.broker.state.attempts["j-1.1"].stuck_pids == (14,), "the last word is kept"
    world.turn(LauncherSaid("launcher", AttemptEnded(attempt="j-1.1", outcome="exited")))
    assert not world.broker.state.attempts
    world.settle()


def lost_go(world: World, profile: str = "cpu") -> None:
    """A job is let go, and the order is lost with the link."""
    world.ask(
        SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={}, profile=profile)
    )
    while not any(isinstance(order, orders.ReleaseAttempt) for order in world.to_launcher):
        assert world.deliver()
    world.to_launcher.clear()


def test_a_go_that_was_lost_with_the_link_is_given_again() -> None:
    world = World()
    lost_go(world)
    world.connect_launcher()
    world.settle()
    assert world.launcher.runs == {"j-1.1": 1}


def test_a_go_that_was_lost_is_not_given_again_after_a_freeze() -> None:
    world = World()
    lost_go(world)
    world.ask(FreezeGeneration())
    world.connect_launcher()
    world.settle()
    assert not world.launcher.runs
    job = world.broker.state.jobs["j-1"]
    assert (job.state, job.reject_code) == ("rejected", "generation_closing")


def test_a_go_is_given_once_a_link_whatever_the_launcher_repeats() -> None:
    """A shim that is slow to start is reported as ready; that asks for nothing."""
    world = World()
    lost_go(world)
    report = world.launcher.attempts["j-1.1"].report
    world.turn(LauncherSaid("launcher", report))
    assert not world.to_launcher
    world.connect_launcher()
    for _ in range(3):
        world.turn(
            world.to_broker.popleft() if world.to_broker else LauncherSaid("launcher", report)
        )
    told = [order for order in world.to_launcher if isinstance(order, orders.ReleaseAttempt)]
    assert len(told) == 1


def test_a_go_that_was_lost_is_not_given_again_where_others_are_now() -> None:
    world = World(devices=1)
    lost_go(world, "gpu")
    seen = world.sample()
    taken = seen.devices[0].model_copy(update={"memory_used_mib": 79_000, "processes": None})
    world.turn(seen.model_copy(update={"devices": (taken,)}))
    world.connect_launcher()
    while world.to_broker:
        world.turn(world.to_broker.popleft())
    told = [type(order) for order in world.to_launcher]
    assert orders.AbandonAttempt in told
    assert orders.ReleaseAttempt not in told
