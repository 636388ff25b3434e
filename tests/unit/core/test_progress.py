"""Progress: monotonic, for running attempts, by the word of their own group, never durable."""

from __future__ import annotations

from typing import Any

import pytest

from praxist_zmq.protocol.replies import ProgressNoted, Refusal
from praxist_zmq.protocol.requests import ReportProgress, ShowJob, SubmitJob
from tests.support.broker_world import World


def running(world: World, tag: str = "t") -> int:
    """Start one job; its process group."""
    request = SubmitJob(peer="p", tag=tag, command=("true",), cwd="/", environment={})
    job = world.ask(request).job.job
    world.settle()
    pgid = world.ask(ShowJob(job=job)).job.pgid
    assert pgid is not None
    return int(pgid)


def tell(world: World, pgid: int, done: int, **more: Any) -> Any:
    told = {"attempt": "j-1.1", "pgid": pgid, "done": done, "total": 6, **more}
    return world.ask(ReportProgress(**told))


def shown(world: World) -> Any:
    return world.ask(ShowJob(job="j-1")).job.progress


def test_it_is_shown_and_never_goes_back() -> None:
    world = World()
    pgid = running(world)
    assert shown(world) is None
    before = world.broker.state.last_sequence
    reply = tell(world, pgid, 3, text="fold 3")
    assert isinstance(reply, ProgressNoted)
    assert reply.taken
    assert (shown(world).done, shown(world).total, shown(world).text) == (3, 6, "fold 3")
    kept = tell(world, pgid, 2, text="late")
    assert not kept.taken
    assert kept.progress == shown(world)
    assert tell(world, pgid, 3, total=9, text="more came").taken
    assert (shown(world).total, shown(world).text) == (9, "more came")
    assert world.broker.state.last_sequence == before, "nothing durable"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"done": 7}, "malformed_request"),
        ({"text": "ü" * 600}, "too_large"),
        ({"attempt": "j-1.2"}, "unknown_job"),
        ({"attempt": "j-9.1"}, "unknown_job"),
    ],
)
def test_what_does_not_fit_is_refused(more: dict[str, Any], code: str) -> None:
    world = World()
    pgid = running(world)
    reply = world.ask(
        ReportProgress(**{"attempt": "j-1.1", "pgid": pgid, "done": 3, "total": 6, **more})
    )
    assert isinstance(reply, Refusal)
    assert reply.code == code
    assert shown(world) is None


def test_it_goes_with_the_attempt() -> None:
    world = World()
    pgid = running(world)
    tell(world, pgid, 3)
    world.finish("j-1.1")
    world.settle()
    assert shown(world) is None
    assert tell(world, pgid, 4).code == "unknown_job"
    other = running(world, "other")
    tell(world, other, 1, attempt="j-2.1")
    assert set(world.broker.soft.progress) == {"j-2.1"}, "the ended one's is dropped"


def test_a_restart_loses_it_until_it_is_told_again() -> None:
    world = World()
    pgid = running(world)
    tell(world, pgid, 3)
    world.crash_broker()
    world.start_broker()
    world.settle()
    assert shown(world) is None
    assert tell(world, pgid, 2).taken
