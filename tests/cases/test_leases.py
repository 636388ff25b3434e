"""Rules of leases that no other test tells: what a lease outlives, and when debt wakes a peer."""

from __future__ import annotations

import pytest

from praxist_zmq.protocol.replies import LeasesReply, Refusal
from praxist_zmq.protocol.reports import HostSampled
from praxist_zmq.protocol.requests import (
    AssessGeneration,
    DeclineLease,
    ListLeases,
    SubmitJob,
    UnregisterIdle,
)
from tests.support.lease_world import LeaseWorld


class BusyWorld(LeaseWorld):
    """A world whose host can get busy; its profiles mind."""

    cpu_pct = 1.0

    def sample(self) -> HostSampled:
        return super().sample().model_copy(update={"cpu_pct": self.cpu_pct})


def consumed(world: LeaseWorld) -> int:
    reply: LeasesReply = world.ask(ListLeases())
    return reply.stats.consumed


def refused(world: LeaseWorld, peer: str) -> str:
    """The code of a submission that is wrong as sent."""
    reply = world.ask(
        SubmitJob(
            peer=peer, tag="wrong", command=("true",), cwd="/", environment={}, profile="nope"
        )
    )
    assert isinstance(reply, Refusal)
    return reply.code


@pytest.mark.parametrize("after", ["the peer leaves", "assessment"])
def test_a_lease_that_was_answered_is_consumed_for_good(after: str) -> None:
    """S120, S121: what comes after the submission changes nothing about it."""
    world = LeaseWorld()
    lease = world.granted("a")
    world.send("a", "t", lease.lease_id, work_class="mature")
    world.settle()
    world.ask(
        UnregisterIdle(peer="a") if after == "the peer leaves" else AssessGeneration(generation=0)
    )
    assert world.ended(lease.lease_id) == ("consumed", "experiment_submitted")
    assert consumed(world) == 1


def test_pressure_that_comes_later_takes_no_lease_back() -> None:
    """S155: the offer stands; the launch looks at the pressure again."""
    world = BusyWorld()
    lease = world.granted("a")
    world.cpu_pct = 99.0
    world.look(3)
    assert world.lease("a") is not None
    world.send("a", "t", lease.lease_id, work_class="mature")
    assert world.ended(lease.lease_id)[0] == "consumed"


def test_a_submission_that_is_refused_ends_neither_lease_nor_cooldown() -> None:
    """S159."""
    world = LeaseWorld()
    lease = world.granted("a")
    assert refused(world, "a") == "unknown_profile"
    assert world.lease("a") is not None
    world.ask(DeclineLease(peer="a", lease_id=lease.lease_id))
    cooling = dict(world.broker.soft.leases.cooling_ms)
    assert cooling
    assert refused(world, "a") == "unknown_profile"
    assert world.broker.soft.leases.cooling_ms == cooling


def test_a_peer_waits_through_assessment_until_there_is_debt_again() -> None:
    """S73, S148: mature work on its way is counted once; when it fails, the peer is woken."""
    world = LeaseWorld(slots=2, mature_supply_redundancy=1.0)
    world.open(0, cohort_size=4, mature_quorum=1, deadline_seconds=10_000)
    job = world.send("x", "t", work_class="mature", eta_seconds=60).job.job
    world.settle()
    world.ask(AssessGeneration(generation=0))
    world.idle("a")
    world.look(4)
    assert world.lease("a") is None, "what is wanted is on its way"
    assert world.broker.soft.leases.idle, "and the peer waits on"
    world.finish(f"{job}.1", 1)
    world.settle()
    world.look(3)
    lease = world.lease("a")
    assert lease is not None
    assert lease.priority == "mature"


def test_a_mature_peer_waits_until_follow_ups_are_wanted() -> None:
    """S169: under a hard quorum others come first; then it is asked for something else."""
    world = LeaseWorld(slots=1)
    world.open(0, cohort_size=4, mature_quorum=1)
    world.idle("a", "b")
    world.look(2)
    first = next(iter(world.broker.state.leases.live.values()))
    assert first.priority == "mature"
    job = world.send(first.peer, "t", first.lease_id, work_class="mature").job.job
    world.settle()
    world.finish(f"{job}.1", 0)
    world.settle()
    world.look(3)
    other = next(iter(world.broker.state.leases.live.values()))
    assert other.peer != first.peer
