"""Words of a connection that is lost are read after those of the one that followed."""

from __future__ import annotations

from typing import Any

from praxist_zmq.core.commands import (
    ClientRequest,
    LauncherLost,
    LauncherSaid,
    SupplyLost,
    SupplySaid,
)
from praxist_zmq.core.decision import Decision, Send
from praxist_zmq.protocol.orders import Announce
from praxist_zmq.protocol.replies import JobReply
from praxist_zmq.protocol.reports import LauncherConnected
from praxist_zmq.protocol.requests import RegisterIdle, SubmitJob, WatchJob
from tests.support.broker_world import World, identity


def decide(world: World, *commands: Any) -> list[Send]:
    """What one turn would send."""
    stamp = world.stamp()
    whole = Decision()
    for command in commands:
        whole.outbox += world.broker.decide(command, stamp).outbox
    return whole.outbox + world.broker.settle(stamp).outbox


def test_an_old_copy_of_a_wait_takes_the_answer_from_nobody() -> None:
    world = World()
    world.ask(SubmitJob(peer="p", tag="a", command=("true",), cwd="/", environment={}))
    world.settle()
    request = WatchJob(job="j-1", until="terminal")
    for address in ("new", "old"):
        decide(world, ClientRequest(address, "w-1", "0" * 64, request, 0, 1))
    report = world.launcher.end(world.launcher.attempts["j-1.1"], "exited", exit_code=0)
    sent = decide(world, LauncherSaid("launcher", report))
    told = {send.address for send in sent if isinstance(send.message, JobReply)}
    assert told == {"new", "old"}
    assert not world.broker.soft.watchers
    assert world.broker.soft.watcher_count == 0


def test_a_client_that_reconnects_often_is_not_remembered_for_each() -> None:
    world = World(limit=1)
    world.ask(SubmitJob(peer="p", tag="a", command=("true",), cwd="/", environment={}))
    request = WatchJob(job="j-1", until="terminal")
    for number in range(20):
        decide(world, ClientRequest(f"at {number}", "w-1", "0" * 64, request, 0, 1))
    assert world.broker.soft.watcher_count == 4
    assert [key[1] for key in world.broker.soft.watchers["j-1"]] == [
        f"at {n}" for n in range(16, 20)
    ]


def test_facts_go_to_the_supply_process_that_is_there() -> None:
    world = World()
    world.ask(RegisterIdle(peer="p"))
    decide(world, SupplySaid("new"))
    sent = decide(world, SupplySaid("old"))
    assert [send.address for send in sent if send.to == "supply"] == ["old"]
    sent = decide(world, SupplyLost("old"))
    assert not [send for send in sent if send.to == "supply"], "it may be nowhere"
    world.now_ms += 1_000
    sent = decide(world, world.sample())
    assert [send.address for send in sent if send.to == "supply"] == ["new"]


def test_a_supply_process_that_is_only_slow_stays_known() -> None:
    world = World()
    world.ask(RegisterIdle(peer="p"))
    decide(world, SupplySaid("slow"))
    assert not [send for send in decide(world, SupplyLost("slow")) if send.to == "supply"]
    world.now_ms += 1_000
    sent = decide(world, world.sample())
    assert [send.address for send in sent if send.to == "supply"] == ["slow"]


def test_every_launcher_that_was_heard_is_asked_to_introduce_itself() -> None:
    world = World()
    world.settle()
    late = LauncherConnected(launcher=identity(901), attempts=())
    decide(world, LauncherSaid("old", late))
    decide(world, LauncherLost("old"))
    world.now_ms += 1_000
    sent = decide(world)
    asked = {send.address for send in sent if isinstance(send.message, Announce)}
    assert asked == {"old", "launcher"}
