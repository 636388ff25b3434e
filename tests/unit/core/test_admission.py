"""Blockers are made from what submitters chose, and must always be made."""

from __future__ import annotations

from praxist_zmq.core.admission import credential_blocker
from praxist_zmq.protocol.requests import ListJobs, SubmitJob
from tests.support.broker_world import World

LONG = "A" * 5_000 + "_TOKEN"


def test_long_names_of_lost_credentials_are_cut() -> None:
    detail = credential_blocker([LONG] * 20_000).detail
    assert "A" * 64 in detail
    assert "19995 more" in detail


def test_the_queue_is_listed_with_a_long_name_of_a_lost_credential_in_it() -> None:
    world = World(limit=1)
    for tag, environment in (("first", {}), ("second", {LONG: "a secret"})):
        world.ask(SubmitJob(peer="p", tag=tag, command=("true",), cwd="/", environment=environment))
    world.settle()
    world.crash_broker()
    world.settle()
    assert world.finish_one()
    world.settle()
    assert "j-2" in world.broker.soft.lacking_credentials
    (job,) = world.ask(ListJobs()).jobs
    assert job.state == "waiting_for_credentials"
