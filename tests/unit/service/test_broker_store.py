"""Records that cannot be read: their jobs end or are set aside, and everything else goes on."""

from __future__ import annotations

import json

from praxist_zmq.core.broker import Broker
from praxist_zmq.core.invariants import check_state
from praxist_zmq.protocol.requests import SubmitJob
from praxist_zmq.service.broker_store import fold
from tests.support.broker_world import BOOT, World


def after_losing(kind: str) -> Broker:
    """A broker that starts on the ledger of one finished job, one kind of record unreadable."""
    world = World()
    world.ask(SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={}))
    world.settle()
    assert world.finish_one()
    world.settle()
    lost = {
        body: body.replace(f'"{kind}"'.encode(), b'"of_another_version"') for body in world.disk
    }
    broker = Broker()
    fold(broker, enumerate(lost.values(), 1))
    broker.begin(
        world.stamp(), run_id="run", boot_id=BOOT, version="test", policy=world.policy,
        generation=0, reopen=False,
    )  # fmt: skip
    assert json.dumps(kind).encode() in b"".join(lost)
    return broker


def test_a_job_whose_end_is_unreadable_ends_as_unknown() -> None:
    broker = after_losing("job_finished")
    job = broker.state.jobs["j-1"]
    assert job.state == "drained_unknown"
    assert "unreadable" in (job.failure_signature or "")
    assert check_state(broker.state) == []


def test_the_number_of_a_job_that_is_unreadable_is_not_given_again() -> None:
    broker = after_losing("job_queued")
    assert broker.state.jobs == {}
    assert broker.state.last_job_number == 1
