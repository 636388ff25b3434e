"""Leases from the peers' side: who waits, what an answer does, how an offer ends.

An offer is a hint with a deadline: nothing that becomes of it can harm a submission. Every end is
recorded once, in one batch with what caused it; a lease is consumed exactly when its job is queued.
Offers are made in `core.lease_grant`. Source: seed 000 "Mature Evidence And Idle Supply Feedback";
the reference of the original system, "Supply leases" (ends and reasons, cooldown).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ..protocol import events as ev
from ..protocol import requests as req
from ..protocol.claims import ReleaseLease
from ..protocol.replies import Done, LeaseDeclined, LeaseReply, LeasesReply
from .admission import closed_help, closed_words
from .credentials import refuse_in_plain
from .generation_gate import PEER_GENERATION, generation_of, named, takes_work
from .lease_memory import IDLE_PEERS_MAX
from .lease_state import Lease
from .lease_views import ended_words, lease_reply, lease_view, leases_reply
from .maturity import grown_peers, maturity
from .soft import SoftState
from .state import BrokerState, Generation, Job
from .turn import Refused, Turn

COOLDOWN_MS = 60_000
COOLDOWN_MAX_MS = 900_000
STRANGE = "another peer's or generation's"
"""Of a lease that a job has nothing to do with: no reason of an end."""
Outcome = Literal["consumed", "declined", "expired", "revoked"]


# -- requests -------------------------------------------------------------------------------


def register(turn: Turn, request: req.RegisterIdle) -> LeaseReply:
    """A peer would take a lease. Again, it keeps its place; a lease that it has stays its own.
    Raises Refused, PraxistError `literal_secret`."""
    state, memory, peer = turn.state, turn.soft.leases, request.peer
    refuse_in_plain("the peer's name", peer, {})
    if not state.policy.supply_signal_enabled:
        raise Refused("supply_disabled", "supply_signal_enabled is false in the contract in force")
    closed = closed_words(state, turn.soft)
    if closed is not None:
        raise Refused("admission_closed", closed, closed_help(closed))
    number = generation_of(state, request.generation, peer)
    found = named(state, number)
    if not takes_work(found, turn.soft):
        raise Refused("generation_closing", f"generation {number}: {found.reason or 'is over'}")
    _lapse(turn, peer, "idle_peer_reregistered_after_expiry")
    lease = state.leases.of_peer(peer)
    if lease is not None and lease.generation != number:
        end(turn, lease, "revoked", "peer_release")
        lease = None
    if lease is None and memory.idle.get(peer) != number:
        if peer not in memory.idle and len(memory.idle) >= IDLE_PEERS_MAX:
            raise Refused("busy", f"{IDLE_PEERS_MAX} peers wait for a lease already")
        memory.idle.pop(peer, None)
        memory.idle[peer] = number
    reply = lease_reply(peer, state, turn.soft)
    return reply.model_copy(update={"note": _other_generation(request, number)})


def _other_generation(request: req.RegisterIdle, number: int) -> str | None:
    """That the generation in the peer's name is not the one that it is taken for."""
    match = PEER_GENERATION.match(request.peer)
    if match is None or request.generation is not None or int(match[1]) == number:
        return None
    return f"generation {match[1]} was never opened; taken for the current one, {number}"


def unregister(turn: Turn, request: req.UnregisterIdle) -> Done:
    """The peer takes no lease any more."""
    dropped = turn.soft.leases.idle.pop(request.peer, None) is not None
    lease = turn.state.leases.of_peer(request.peer)
    if lease is not None:
        _end_by(turn, lease, "peer_unregistered_idle_supply")
    elif dropped:
        tell(turn, request.peer)
    return Done()


def get(turn: Turn, request: req.GetLease) -> LeaseReply:
    """The peer's live lease."""
    _lapse(turn, request.peer, "lease_fetched_after_expiry")
    return lease_reply(request.peer, turn.state, turn.soft)


def decline(turn: Turn, request: req.DeclineLease) -> LeaseDeclined:
    """The peer has nothing planned. What has ended stays as it ended."""
    state, peer = turn.state, request.peer
    lease = state.leases.of_peer(peer)
    if request.lease_id is not None and (lease is None or lease.lease_id != request.lease_id):
        lease = state.leases.ended.get(request.lease_id)
        if lease is None or lease.peer != peer:
            raise Refused("unknown_lease", f"{peer} has none called {request.lease_id!r}")
    if lease is None:
        raise Refused("unknown_lease", f"{peer} has none")
    if lease.state == "out" and not _lapse(turn, peer, "release_after_response_window"):
        detail = turn.redacted(request.reason)[:500]
        end(turn, lease, "declined", "session_ended_without_submission", detail=detail)
    return LeaseDeclined(lease=lease_view(lease, turn.soft))


def listed(turn: Turn, request: req.ListLeases) -> LeasesReply:
    """All leases in memory."""
    return leases_reply(turn.state, turn.soft)


# -- a submission answers -------------------------------------------------------------------


def answer(turn: Turn, job: Job, locator: str | None) -> tuple[str, ...]:
    """A submission was accepted: what it does to its peer's lease. Same batch as its event.
    What its sender should know of it: why the lease that it named was worth nothing."""
    leases, memory = turn.state.leases, turn.soft.leases
    for key in [key for key in memory.cooling_ms if key[0] == job.peer]:
        del memory.cooling_ms[key]
    worth = None if locator is None else _redeem(turn, job, locator)
    notes = [] if worth is None else [f"lease {locator} {worth}; taken without it"]
    other = leases.of_peer(job.peer)
    if other is not None:
        _end_by(turn, other, "submission_without_matching_lease")
        notes.append(f"this peer's lease {other.lease_id} has ended: this was sent without it")
    return tuple(notes)


def _redeem(turn: Turn, job: Job, locator: str) -> str | None:
    """Why the lease is worth nothing to the job; None when it brought the job."""
    leases = turn.state.leases
    lease = leases.live.get(locator)
    worth = worthless(turn, job, locator)
    refusal = "" if lease is None else _refusal(lease, job)
    if lease is None or refusal == STRANGE:
        used = locator in leases.consumed
        _count(turn, job, locator, "reuse_ignored" if used else "stale_submission")
    elif _overdue(turn, lease):
        end(turn, lease, "expired", "response_window_elapsed")
        _count(turn, job, locator, "stale_submission")
    elif refusal is not None:
        end(turn, lease, "revoked", refusal)
    else:
        end(turn, lease, "consumed", "experiment_submitted", job=job.job)
    return worth


def worthless(turn: Turn, job: Job, locator: str) -> str | None:
    """In words, why a lease cannot be redeemed by a job now; None when it can."""
    leases, at_ms = turn.state.leases, turn.stamp.at_ms
    lease = leases.live.get(locator) or leases.ended.get(locator)
    if lease is None:
        return "was answered before" if locator in leases.consumed else "is unknown"
    refusal = _refusal(lease, job)
    if refusal == STRANGE:
        return f"is {lease.peer}'s, of generation {lease.generation}"
    if lease.state != "out":
        return ended_words(lease, at_ms)
    if _overdue(turn, lease):
        return ended_words(replace(lease, state="expired"), at_ms)
    if refusal == "work_class_not_mature":
        return "was for mature work"
    return None if refusal is None else f"was for {', '.join(lease.profiles)}"


def _refusal(lease: Lease, job: Job) -> str | None:
    """Why a job is not what a lease asked for; None when it is."""
    if (lease.peer, lease.generation) != (job.peer, job.generation):
        return STRANGE
    if lease.priority == "mature" and job.work_class != "mature":
        return "work_class_not_mature"
    return None if job.profile in lease.profiles else "profile_not_admissible"


def _count(
    turn: Turn, job: Job, locator: str, what: Literal["stale_submission", "reuse_ignored"]
) -> None:
    turn.record(ev.LeaseCounted(at_ms=turn.stamp.at_ms, lease_id=locator, peer=job.peer, what=what))


# -- ends -----------------------------------------------------------------------------------


def end(
    turn: Turn,
    lease: Lease,
    outcome: Outcome,
    reason: str,
    *,
    job: str | None = None,
    detail: str | None = None,
) -> None:
    """An offer is over: recorded, its room given back or kept for its job, its peer told."""
    memory, name = turn.soft.leases, lease.lease_id
    turn.record(
        ev.LeaseEnded(
            at_ms=turn.stamp.at_ms,
            lease_id=name,
            outcome=outcome,
            reason=reason[:200],
            job=job,
            detail=detail,
        )
    )
    memory.due_ms.pop(name, None)
    if outcome == "consumed" and job is not None and name in memory.holds:
        memory.answered[job] = name
    else:
        give_back(turn, name)
    if outcome == "declined":
        _cool(turn, lease)
    tell(turn, lease.peer)


def give_back(turn: Turn, lease_id: str) -> None:
    """The host's room for a lease is not needed. Asked again until the registry has said so."""
    memory = turn.soft.leases
    if memory.holds.pop(lease_id, None) is None:
        return
    memory.releasing[lease_id] = None
    ask_release(turn, lease_id)


def ask_release(turn: Turn, lease_id: str) -> None:
    """Tell the registry; without one it is told once it is there."""
    soft = turn.soft
    if soft.registry_ready:
        message = ReleaseLease(
            run_key=soft.run_key,
            epoch=turn.state.epoch,
            registration=soft.registrations,
            lease_id=lease_id,
        )
        turn.claim(message, "release_lease", lease_id)


def tell(turn: Turn, peer: str) -> None:
    """A fact about a peer's lease, for who listens to its topic."""
    turn.soft.leases.sequence += 1
    topic = b"lease/" + peer.encode()
    turn.send("leases", lease_reply(peer, turn.state, turn.soft), topic)


def _overdue(turn: Turn, lease: Lease) -> bool:
    return turn.soft.now_ms >= turn.soft.leases.due_ms.get(lease.lease_id, 0)


def _lapse(turn: Turn, peer: str, reason: str) -> bool:
    """End a peer's lease whose window is over; whether it was."""
    lease = turn.state.leases.of_peer(peer)
    if lease is None or not _overdue(turn, lease):
        return False
    end(turn, lease, "expired", reason)
    return True


def _end_by(turn: Turn, lease: Lease, reason: str) -> None:
    """Take an offer back; one whose window is over has expired."""
    if _overdue(turn, lease):
        end(turn, lease, "expired", "response_window_elapsed")
    else:
        end(turn, lease, "revoked", reason)


def _cool(turn: Turn, lease: Lease) -> None:
    times = turn.state.leases.declined_times(lease.peer, lease.generation, lease.priority)
    key = (lease.peer, lease.generation, lease.priority)
    turn.soft.leases.cooling_ms[key] = turn.soft.now_ms + cooldown_ms(times)


def cooldown_ms(times: int) -> int:
    """How long a peer that declined so often in a row is offered nothing of that priority."""
    return min(COOLDOWN_MAX_MS, COOLDOWN_MS << min(4, max(0, times - 1)))


# -- once a turn ----------------------------------------------------------------------------


def upkeep(turn: Turn) -> None:
    """End what is over, take back what is not needed any more, drop who cannot be served."""
    state, memory = turn.state, turn.soft.leases
    for job, name in list(memory.answered.items()):
        if state.jobs[job].state != "queued":
            del memory.answered[job]
            give_back(turn, name)
    for lease in list(state.leases.live.values()):
        reason = _revocation(turn, lease)
        if reason is not None:
            _end_by(turn, lease, reason)
        elif _overdue(turn, lease):
            end(turn, lease, "expired", "response_window_elapsed")
    for number in {lease.generation for lease in state.leases.live.values()}:
        _take_surplus_back(turn, state.generations[number])
    closed = closed_words(state, turn.soft)
    for peer, number in list(memory.idle.items()):
        if closed is not None or not takes_work(state.generations[number], turn.soft):
            del memory.idle[peer]
            tell(turn, peer)


def _revocation(turn: Turn, lease: Lease) -> str | None:
    """Why a live lease cannot stand, whatever its window."""
    state = turn.state
    closed = closed_words(state, turn.soft)
    if closed is not None:
        return "scheduler_stopped" if turn.soft.stopping else f"admission_closed:{closed}"
    found = state.generations[lease.generation]
    if found.phase in ("frozen", "closed"):
        return "generation_frozen"
    if found.phase == "assessment" and lease.priority != "mature":
        return "assessment_mature_only"
    return None


def _take_surplus_back(turn: Turn, found: Generation) -> None:
    """Mature leases beyond what is wanted, newest first."""
    leases = [
        lease
        for lease in turn.state.leases.live.values()
        if lease.generation == found.number and lease.priority == "mature"
    ]
    if found.mature_quorum is not None and leases:
        grown = grown_peers(found)
        for lease in [lease for lease in leases if lease.peer in grown]:
            _end_by(turn, lease, "mature_peer_completed")
            leases.remove(lease)
    while leases:
        figures = maturity(found, turn.state, tuple(lease.peer for lease in leases))
        if figures.inflight_jobs + figures.priority_leases <= figures.target_inflight:
            return
        _end_by(turn, leases.pop(), "mature_demand_satisfied")


def reopened(turn: Turn, generation: int) -> None:
    """The generation is being opened again: what was offered before was for another life of it."""
    for lease in list(turn.state.leases.live.values()):
        if lease.generation == generation:
            _end_by(turn, lease, "generation_reopened")
    memory = turn.soft.leases
    for key in [key for key in memory.cooling_ms if key[1] == generation]:
        del memory.cooling_ms[key]


def superseded(turn: Turn) -> None:
    """Another generation is the current one: what was offered for work that would now go there
    cannot be answered any more. Peers whose name keeps them in their generation keep their own."""
    state, memory = turn.state, turn.soft.leases
    for lease in list(state.leases.live.values()):
        if lease.generation != generation_of(state, None, lease.peer):
            _end_by(turn, lease, "generation_superseded")
    for peer, number in list(memory.idle.items()):
        if number != generation_of(state, None, peer):
            del memory.idle[peer]
            tell(turn, peer)  # who still listens registers again


def recover(turn: Turn) -> None:
    """After a restart: no offer outlives the broker that made it. Who declined cools on."""
    state, memory = turn.state, turn.soft.leases
    carried = {
        job.lease_id: job for job in state.jobs.values() if job.lease_id in state.leases.live
    }
    for lease in list(state.leases.live.values()):
        job = carried.get(lease.lease_id)
        if job is not None and _refusal(lease, job) is None:
            # Of one batch, but only the first of it reached the disk before the end.
            end(turn, lease, "consumed", "experiment_submitted", job=job.job)
            continue
        over = lease.expires_at_ms <= turn.stamp.at_ms
        outcome: Outcome = "expired" if over else "revoked"
        end(turn, lease, outcome, "response_window_elapsed" if over else "scheduler_restarted")
    for peer, declines in state.leases.declines.items():
        for found in declines:
            whole = cooldown_ms(found.times)
            left_ms = min(whole, found.at_ms + whole - turn.stamp.at_ms)
            if left_ms > 0:
                key = (peer, found.generation, found.priority)
                memory.cooling_ms[key] = turn.soft.now_ms + left_ms
    memory.last_number = state.leases.last_number


def leave(turn: Turn) -> None:
    """The scheduler ends in order: nobody would be there to take an answer."""
    for lease in list(turn.state.leases.live.values()):
        _end_by(turn, lease, "scheduler_stopped")


def due_ms(state: BrokerState, soft: SoftState) -> int | None:
    """When the next window is over."""
    return min((soft.leases.due_ms[name] for name in state.leases.live), default=None)
