"""Liveness: once nothing goes wrong any more, what must come about does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from praxist_zmq.protocol.job_states import TERMINAL_STATES
from praxist_zmq.protocol.replies import Refusal

from . import calamities
from .devices import SAMPLE_MS
from .peers import SimPeer
from .scripts import end_it, leave, release_hold, use_a_lease

if TYPE_CHECKING:
    from .world import SimRun, SimWorld

WINDOW_MS = 185_000
"""By then every lease that nobody has answered is over."""
BOUND_MS = 120_000
"""Above the slowest that is right: five tries that are withdrawn, and escapees that linger."""


def play(world: SimWorld) -> None:
    """Heal; all that was accepted ends; leases come and are used; then everything is closed."""
    calamities.heal(world)
    for run in world.runs:
        if run.stopped and world.rng.random() < 0.5:
            world.note("fate", f"up {run.name} again")
            run.up(reopen=True)
    world.run_until(lambda: all(peer.done for run in world.runs for peer in _all(run)), BOUND_MS)
    for run in world.runs:
        if not run.stopped and run.operator.done:
            run.operator.start(release_hold(run.operator))
    _wait(world, "all that was accepted ends", _unfinished)
    if world.broken:
        return
    if world.patient:
        world.sample_ms = 4_000
        world.run_until(lambda: False, WINDOW_MS)
        world.sample_ms = SAMPLE_MS
        for run in world.runs:
            for peer in [] if run.stopped else run.peers:
                peer.start(leave(peer))
    found: dict[str, Any] = {}
    takers = [run for run in world.runs if _takes_leases(run)]
    for run in takers:
        peer = SimPeer(world, run, "newcomer")
        run.peers.append(peer)
        peer.start(use_a_lease(peer, found))
    _wait(world, "an idle peer uses a lease", _unfinished)
    for run in takers:
        lease = found.get(run.peers[-1].name)
        if (lease is None or isinstance(lease, Refusal)) and not world.broken:
            world.fault(f"an idle peer of {run.name} gets no lease: {lease}")
    for run in world.runs:
        if not run.stopped:
            run.operator.start(end_it(run.operator, whole=world.rng.random() < 0.4))
    _wait(world, "everything is closed", lambda w: [*_unfinished(w), *_unclosed(w)])


def _all(run: SimRun) -> list[SimPeer]:
    return [*run.peers, run.operator] if not run.stopped else []


def _wait(world: SimWorld, what: str, left: Any) -> None:
    if not world.run_until(lambda: not left(world), BOUND_MS):
        world.fault(f"never comes about: {what}: {'; '.join(left(world)[:8])}")


def _takes_leases(run: SimRun) -> bool:
    if run.stopped:
        return False
    state = run.broker.machine.state
    current = state.current
    return (
        current is not None
        and current.phase == "open"
        and current.deadline_at_ms is None
        and state.closed_reason is None
    )


def _unfinished(world: SimWorld) -> list[str]:
    """What is still under way, in words."""
    found = []
    for run in world.runs:
        broker = run.broker
        for peer in _all(run):
            if not peer.done:
                found.append(f"{peer.name} waits for {peer.waits_for}")
        if not broker.up and not run.stopped:
            found.append(f"{broker.name} is not up")
            continue
        state, soft = broker.machine.state, broker.machine.soft
        found += [
            f"{job.job} of {run.name} is {job.state}"
            for job in state.jobs.values()
            if job.state not in TERMINAL_STATES
        ]
        found += [f"{name} of {run.name} is held" for name in state.attempts]
        found += [f"{shim.attempt} of {run.name} lives" for shim in run.shims.values() if shim.tree]
        if run.stopped:
            continue
        found += [f"{name} of {run.name} is planned" for name in soft.plans]
        if not soft.registry_ready or not soft.launcher_ready:
            found.append(f"{broker.name} lacks its registry or its launcher")
        found += [f"{name} of {run.name} is to be released" for name in soft.leases.releasing]
    if not world.registry.up:
        return [*found, "the registry is not up"]
    rows = world.registry.machine.state.rows
    return [*found, *(f"{attempt} holds a row of {key[:6]}" for key, attempt in rows)]


def _unclosed(world: SimWorld) -> list[str]:
    """Leases that outlive their generation."""
    found = []
    for run in world.runs:
        if run.stopped:
            continue
        state = run.broker.machine.state
        current = state.current
        if current is not None and current.phase not in ("closed",):
            found.append(f"the generation of {run.name} is {current.phase}")
        found += [f"{name} of {run.name} is out" for name in state.leases.live]
        keys = {row.lease_id for row in _rows(world) if row.run_key == run.key}
        held = set(run.broker.machine.soft.leases.holds)
        found += [f"{name} is held at the host for nobody" for name in keys - held]
    return found


def _rows(world: SimWorld) -> Any:
    view = world.registry.machine._views.of(0)
    return view.leases
