"""The place that is kept for the oldest job that waits for devices, and who may pass it."""

from __future__ import annotations

from praxist_zmq.core.registry_side import wanted
from praxist_zmq.protocol.requests import CancelJobs
from tests.support.broker_world import policy
from tests.support.explained import LoadedWorld, Wish
from tests.support.host_world import Device, Host


def test_who_passes_is_judged_by_the_same_run_times_as_the_job_that_waits() -> None:
    """An end teaches that jobs take much less than they declare. The newcomer then seems to end
    before the old time at which the place was needed; but that time has come nearer too."""
    world = LoadedWorld([(18_000, 0.0)], limit=2)
    holds = world.submit(Wish("p1", "small", eta_s=600.0))
    waits = world.submit(Wish("p1", "big"))
    teaches = world.submit(Wish("p1", "cpu", eta_s=600.0))
    passes = world.submit(Wish("p1", "small", eta_s=600.0))
    world.look()
    assert world.running() == [holds, teaches]
    kept = world.broker.soft.reservation
    assert kept is not None
    assert kept.job == waits
    world.finish(teaches)
    assert world.queued() == [waits, passes]
    world.finish(holds)
    assert waits in world.running()


def test_nothing_is_kept_for_the_last_job_once_it_waits_no_more() -> None:
    host = Host([Device(0, 81_920)])
    one, two = (host.add(name, policy(limit=2)) for name in ("one", "two"))
    host.settle()
    one.submit("holds", "gpu")
    host.rest()
    two.submit("waits", "gpu")
    host.rest()
    assert wanted(two.broker.state, two.broker.soft) is not None

    two.ask(CancelJobs(jobs=("j-1",)))
    assert wanted(two.broker.state, two.broker.soft) is None
    one.finish()
    one.submit("next", "gpu")
    host.rest()
    assert [attempt.name for attempt in one.running()] == ["j-2.1"]
