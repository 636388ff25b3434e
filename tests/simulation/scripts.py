"""What peers and operators do in a simulation: scripts, drawn from the seed as they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from praxist_zmq.protocol.replies import Refusal, Submitted
from praxist_zmq.protocol.requests import (
    AssessGeneration,
    CancelJobs,
    DeclineLease,
    ExplainJob,
    FreezeGeneration,
    GetLease,
    GetStatus,
    HoldAdmission,
    ListLeases,
    OpenGeneration,
    PublishResult,
    RetryJob,
    StopRun,
    SubmitJob,
    SubmitJobs,
    UnregisterIdle,
    WatchJob,
)

from .peers import TIMEOUT_MS, Script, SimPeer

if TYPE_CHECKING:
    from .world import SimRun

ENVIRONMENT = {"PATH": "/bin"}
PROFILES = ("cpu", "cpu", "gpu", "half", "half", "twin", None)
CLASSES = ("ordinary", "ordinary", "mature", "scout")


def submission(peer: SimPeer, tag: str, **facts: Any) -> SubmitJob:
    """One experiment."""
    return SubmitJob(
        peer=peer.peer, tag=tag, command=("run", tag), cwd="/", environment=ENVIRONMENT, **facts
    )


def drawn(peer: SimPeer, **facts: Any) -> SubmitJob:
    """Any experiment; now and then one whose tag is known."""
    rng = peer.world.rng
    run = peer.run
    if run.tags and rng.random() < 0.15:
        tag = rng.choice(run.tags)
    else:
        tag = f"t{len(run.tags)}"
        run.tags.append(tag)
    facts.setdefault("profile", rng.choice(PROFILES))
    facts.setdefault("work_class", rng.choice(CLASSES))
    facts.setdefault("eta_seconds", rng.choice((None, None, 0.3, 5.0)))
    facts.setdefault("retry_terminal", rng.random() < 0.1)
    return submission(peer, tag, **facts)


def peer_life(peer: SimPeer) -> Script:
    """A peer works, rests, waits for leases, until the faults are over."""
    world, rng = peer.world, peer.world.rng
    yield "sleep", rng.randint(0, 3_000)
    while not (world.healing or peer.run.stopped):
        choice = rng.random()
        if choice < 0.45:
            yield from _submit(peer, drawn(peer), wait=rng.random() < 0.5)
        elif choice < 0.80:
            yield from _with_a_lease(peer)
        elif choice < 0.90 and peer.run.tags:
            yield from _meddle(peer)
        else:
            request = rng.choice(
                (GetLease(peer=peer.peer), ListLeases(), UnregisterIdle(peer=peer.peer))
            )
            yield "ask", (request, TIMEOUT_MS)
        yield "sleep", rng.choice((10, 300, 2_000))
    if not world.patient:
        yield from leave(peer)


def leave(peer: SimPeer) -> Script:
    """It takes no lease any more."""
    yield "ask", (UnregisterIdle(peer=peer.peer), TIMEOUT_MS)


def _submit(peer: SimPeer, request: SubmitJob, *, wait: bool) -> Script:
    """Until it is taken or refused; who gives up sends the same again, under another id."""
    reply = None
    for _ in range(3):
        reply = yield "ask", (request, TIMEOUT_MS)
        if reply is not None:
            break
    if wait and isinstance(reply, Submitted):
        yield "ask", (WatchJob(job=reply.job.job, until="terminal"), None)
    return reply


def _with_a_lease(peer: SimPeer) -> Script:
    """Idle; then what was planned, or nothing, or an answer that comes too late."""
    rng = peer.world.rng
    lease = yield from peer.lease_wait(rng.choice((2_000, 8_000, 20_000)))
    if lease is None or isinstance(lease, Refusal):
        return
    choice = rng.random()
    if choice < 0.1:
        yield "sleep", rng.choice((2_000, 6_000))  # it looks at its plans, and forgets
        return
    if choice < 0.25:
        yield "ask", (DeclineLease(peer=peer.peer, lease_id=lease.lease_id), TIMEOUT_MS)
        return
    work_class = "mature" if lease.priority == "mature" and rng.random() < 0.8 else "ordinary"
    profile = rng.choice(lease.profiles) if rng.random() < 0.9 else "gpu"
    request = drawn(peer, lease_id=lease.lease_id, work_class=work_class, profile=profile)
    yield from _submit(peer, request, wait=rng.random() < 0.7)
    if rng.random() < 0.15:
        # The same locator once more: it is worth nothing, and harms nothing.
        yield from _submit(peer, drawn(peer, lease_id=lease.lease_id), wait=False)


def _meddle(peer: SimPeer) -> Script:
    rng = peer.world.rng
    tag = f"tag:{rng.choice(peer.run.tags)}"
    choice = rng.randrange(4)
    if choice == 0:
        request: Any = CancelJobs(jobs=(tag,), running=rng.random() < 0.6)
    elif choice == 1:
        request = CancelJobs(jobs=(tag,), admission_timeout=True)
    elif choice == 2:
        request = RetryJob(job=tag, environment=ENVIRONMENT)
    else:
        request = PublishResult(tag=tag[4:], mature=rng.random() < 0.5)
    yield "ask", (request, TIMEOUT_MS)


def operator_life(peer: SimPeer) -> Script:
    """Whoever leads the research: generations, looks, holds, at last perhaps a stop."""
    world, rng, run = peer.world, peer.world.rng, peer.run
    yield "sleep", rng.randint(0, 2_000)
    if rng.random() < 0.6:
        yield "ask", (_opening(rng, 0), TIMEOUT_MS)
    while not (world.healing or run.stopped):
        yield "sleep", rng.choice((500, 3_000, 8_000))
        yield "ask", (_order(run, rng), TIMEOUT_MS)
        if rng.random() < 0.03:
            yield "ask", (StopRun(grace_seconds=rng.choice((0, 1))), TIMEOUT_MS)


def _opening(rng: Any, number: int) -> OpenGeneration:
    return OpenGeneration(
        generation=number,
        cohort_size=rng.choice((None, 3)),
        deadline_seconds=rng.choice((None, None, 15.0)),
        mature_quorum=rng.choice((None, 1)),
        publish_completed=rng.random() < 0.5,
        rerun=rng.random() < 0.5,
    )


def _order(run: SimRun, rng: Any) -> Any:
    choice = rng.randrange(12)
    number = rng.randrange(2)
    if choice < 3:
        return _opening(rng, number)
    if choice == 3:
        return AssessGeneration(generation=number)
    if choice in (4, 5):
        whole = rng.random() < 0.2
        return FreezeGeneration(generation=None if whole else number, signal=rng.random() < 0.5)
    if choice == 11:
        return HoldAdmission(held=rng.random() < 0.5)
    if choice == 6:
        return ExplainJob(subject="profile:half")
    if choice == 7:
        operator = run.peers[-1]
        return SubmitJobs(jobs=(drawn(operator), drawn(operator)))
    if choice == 8:
        return ListLeases()
    return GetStatus()


# -- when nothing is wrong any more -----------------------------------------------------------


def use_a_lease(peer: SimPeer, found: dict[str, Any]) -> Script:
    """An idle peer with room for what it has planned gets a lease, and uses it."""
    lease = yield from peer.lease_wait(60_000)
    found[peer.name] = lease
    if lease is None or isinstance(lease, Refusal):
        return
    tag = f"healed-{peer.peer}"
    peer.run.tags.append(tag)
    work_class = "mature" if lease.priority == "mature" else "ordinary"
    yield from _submit(
        peer,
        submission(
            peer, tag, lease_id=lease.lease_id, work_class=work_class, profile=lease.profiles[0]
        ),
        wait=True,
    )


def end_it(peer: SimPeer, *, whole: bool) -> Script:
    """The last act of an operator: freeze, or stop."""
    request: Any = StopRun(grace_seconds=0) if whole else FreezeGeneration(signal=True)
    yield "ask", (request, TIMEOUT_MS)


def release_hold(peer: SimPeer) -> Script:
    """A drain that nobody meant to last."""
    yield "ask", (HoldAdmission(held=False), TIMEOUT_MS)
