"""What is done about holds that the registry lacks: by their broker, and by the registry."""

from __future__ import annotations

from typing import Any

from praxist_zmq.core.claim import ClaimMachine
from praxist_zmq.core.claim_commands import RegistryStarted
from praxist_zmq.core.commands import RegistryConnected, RegistryLost, RegistrySaid
from praxist_zmq.core.holds import CLAIM_AGAIN_MS
from praxist_zmq.protocol.claims import (
    Bind,
    Denied,
    Granted,
    HostView,
    RegisterRun,
    Release,
    Reserve,
)
from praxist_zmq.protocol.requests import ExplainJob, GetDevices, GetStatus, ShowJob, SubmitJob
from tests.support.broker_world import BOOT, RUN_KEY, World
from tests.support.claims import command, exclusive, reserve, run_key, run_row


def submit(world: World, tag: str) -> None:
    """One more job that needs a device alone."""
    world.ask(SubmitJob(peer="p", tag=tag, command=("x",), cwd="/", environment={}, profile="gpu"))


def running(world: World) -> World:
    """j-1.1 runs on GPU-0."""
    submit(world, "t")
    world.settle()
    assert world.broker.state.attempts["j-1.1"].phase == "running"
    return world


def lose_registry(world: World) -> None:
    """It comes back with nothing; another run is quicker, and takes the device."""
    world.registry = ClaimMachine()
    world.registry.decide(RegistryStarted(BOOT), world.stamp())
    for request in (
        RegisterRun(registration=1, run=run_row("b", limit=8), attempts=()),
        reserve("b", "j-9.1", exclusive("GPU-0")),
    ):
        (send, *_) = world.registry.decide(command(request), world.stamp()).outbox
        assert not isinstance(send.message, Denied)


def other(world: World, attempt: str) -> Any:
    """What the registry says when the other run asks for the device."""
    asked = command(reserve("b", attempt, exclusive("GPU-0")))
    return world.registry.decide(asked, world.stamp()).outbox[0].message


def forgotten(world: World) -> None:
    """A view comes in which the run holds nothing."""
    state = world.registry.state
    pushed = HostView(version=state.version + 1, runs=tuple(state.runs.values()), allocations=())
    world.turn(RegistrySaid(None, pushed))


def holds(world: World) -> dict[str, bool]:
    """Attempt -> whether its shim is known, of the rows of the run."""
    return {row.attempt: row.bound is not None for row in world.registry.state.of_run(RUN_KEY)}


def test_what_runs_where_the_registry_gave_its_device_away_is_held_and_told() -> None:
    world = running(World(devices=1, limit=2))
    lose_registry(world)
    world.turn(RegistryLost(), RegistryConnected())
    world.settle()
    assert holds(world) == {"j-1.1": True}
    (row,) = world.registry.state.of_run(RUN_KEY)
    assert row.overcommitted
    assert len(world.registry.state.rows) == 2, "its slot of the host counts too"
    (warning,) = world.ask(GetStatus()).warnings
    assert warning.startswith("GPU 0 is promised twice, to j-1.1 and j-9.1 of run b: ")
    assert "cancel one of them" in warning
    told = "GPU 0 is promised twice"
    assert told in (world.ask(GetDevices()).devices[0].reason or "")
    assert told in (world.ask(ShowJob(job="j-1")).job.note or "")
    # The other one ends: the device stays ours.
    world.registry_turn(command(_release("j-9.1")))
    world.settle()
    assert world.ask(GetStatus()).health == "healthy"
    assert other(world, "j-10.1").code == "conflict"


def _release(attempt: str) -> Release:
    return Release(registration=1, run_key=run_key("b"), epoch=1, attempt=attempt)


def test_a_row_that_a_pushed_view_lacks_is_claimed_again() -> None:
    world = running(World(devices=1, limit=2))
    forgotten(world)
    asked = [request for _, request in world.to_registry]
    assert [type(request) for request in asked] == [Reserve, Bind]
    assert asked[0].shim == world.broker.state.attempts["j-1.1"].shim
    forgotten(world)
    assert len(world.to_registry) == 2, "asked once for each answer"
    world.settle()
    assert holds(world) == {"j-1.1": True}


def test_what_the_registry_denied_is_asked_for_until_it_is_granted() -> None:
    world = running(World(devices=1, limit=2))
    forgotten(world)
    for round_number in range(3):
        asked = [told for told in world.to_registry if isinstance(told[1], Reserve | Bind)]
        world.to_registry.clear()
        assert [type(request) for _, request in asked] == [Reserve, Bind], round_number
        for request_id, _ in asked:
            world.turn(RegistrySaid(request_id, Denied(code="busy", detail="4096 rows are held")))
        assert not world.to_registry, "not at once"
        assert "4096 rows" in world.ask(GetStatus()).warnings[0]
        due = world.broker.wake_at_ms()
        assert due is not None
        assert due - world.now_ms <= CLAIM_AGAIN_MS
        world.pass_time(CLAIM_AGAIN_MS)
    for request_id, request in list(world.to_registry):
        if isinstance(request, Reserve | Bind):
            world.turn(RegistrySaid(request_id, Granted(attempt=request.attempt, view_version=9)))
    world.to_registry.clear()
    assert world.ask(GetStatus()).warnings == ()
    world.pass_time(10 * CLAIM_AGAIN_MS)
    assert not [r for _, r in world.to_registry if isinstance(r, Reserve | Bind)]


def test_what_did_not_begin_gives_way_where_its_device_is_taken() -> None:
    world = World(devices=1, limit=2)
    submit(world, "t")
    while not world.broker.state.attempts:
        world.deliver()
    lose_registry(world)
    world.to_registry.clear()
    world.turn(RegistryLost(), RegistryConnected())
    world.settle()
    assert holds(world) == {}
    assert world.broker.state.jobs["j-1"].state == "queued"


def test_a_run_that_another_epoch_fenced_says_so_and_what_to_do() -> None:
    world = running(World(devices=1, limit=2))
    world.registry.state.runs[RUN_KEY] = world.registry.state.runs[RUN_KEY].model_copy(
        update={"epoch": 1_000_000}
    )
    submit(world, "u")
    world.finish_one()
    world.settle()
    status = world.ask(GetStatus())
    assert status.health == "troubled"
    (warning,) = [w for w in status.warnings if "claim registry" in w]
    assert "1000000 serves it; nothing starts" in warning
    assert "`praxist-zmq host` names it" in warning
    assert world.ask(ExplainJob(subject="j-2")).blockers[0].code == "recovery_pending"


def test_a_process_at_its_barrier_and_a_plan_say_that_the_registry_does_not_answer() -> None:
    world = World(devices=2, limit=3)
    submit(world, "t")
    while not any(isinstance(request, Bind) for _, request in world.to_registry):
        world.deliver()
    submit(world, "u")
    world.pass_time(600)
    assert "has not answered" in world.ask(ExplainJob(subject="j-2")).blockers[0].detail
    world.pass_time(5_000)
    assert world.broker.state.attempts["j-1.1"].phase == "bound"
    note = world.ask(ShowJob(job="j-1")).job.note or ""
    assert note.startswith("not begun yet: the host's claim registry has not answered for 5 s")
    world.turn(RegistryLost())
    note = world.ask(ShowJob(job="j-1")).job.note or ""
    assert note == "not begun yet: the host's claim registry does not answer"
    world.turn(RegistryConnected())
    world.settle()
    assert world.ask(ShowJob(job="j-1")).job.note is None


def test_a_device_that_went_from_under_its_job_is_trouble() -> None:
    """As after a restart of the driver, or of the host's container, with fewer devices."""
    world = running(World(devices=2, limit=2))
    assert world.ask(GetStatus()).health == "healthy"
    world.devices = 0
    world.pass_time(1_000)
    status = world.ask(GetStatus())
    assert status.health == "troubled"
    (warning,) = [told for told in status.warnings if "j-1.1" in told]
    assert warning.startswith("GPU-0 is not there any more, and j-1.1 ran on it: ")
