"""Making offers: facts for the supply process, its plan looked at again, room claimed, recorded.

The supply process counts and plans; here each offer is judged anew by what is known now, the host's
registry holds room for it, and only then is it recorded and, once on disk, told to its peer.
Source: seed 000 "Mature Evidence And Idle Supply Feedback"; the reference of the original system,
"Supply leases" (order of a grant); design 3 "Leases are hints until the broker says so".
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from ..protocol import claims
from ..protocol import events as ev
from ..protocol.policy import Priority
from ..protocol.replies import LeasesAlive
from ..protocol.supply import IdlePeer, LeaseOffer, LeasesPlanned, SupplyFacts, SupplyGeneration
from .admission import closed_words
from .commands import SupplySaid
from .generation_gate import takes_work
from .lease_memory import HostHold, PendingOffer, Proposal
from .lease_room import free_slots, propose
from .lease_state import PRIORITIES
from .leases import ask_release, end, tell
from .maturity import grown_peers, maturity
from .soft import SoftState
from .state import BrokerState, Generation, Job
from .turn import Turn

HOLD_LONGER_MS = 10_000
"""By which the registry holds the room of a lease longer than its peer may answer. It counts from
before the grant is known here, and room that ends first would look as if real work had taken it."""
ALIVE_MS = 2_000
"""Between two publications of the sequence: how long a lost one may go unnoticed."""


# -- the supply process ---------------------------------------------------------------------


def said(turn: Turn, command: SupplySaid) -> None:
    """The supply process is there, or has a plan."""
    memory = turn.soft.leases
    memory.supply.spoke(command.address)
    if command.plan is None:
        memory.facts_sample_ms = -1  # a fresh one knows nothing
    else:
        _planned(turn, command.plan)


def supply_lost(turn: Turn, address: Any) -> None:
    """Facts did not reach the supply process. The next go where it may be now: not at once, for
    it may be nowhere."""
    turn.soft.leases.supply.failed(address)


def send_facts(turn: Turn) -> None:
    """Once a sample, while peers wait."""
    state, soft, memory = turn.state, turn.soft, turn.soft.leases
    sample = soft.sample
    if not memory.idle:
        memory.facts_sample_ms = -1  # what comes next is not in a row with what was told
        return
    if not memory.supply.known or sample is None:
        return
    previous_ms = memory.facts_sample_ms
    if sample.sampled_at_mono_ms <= previous_ms:
        return
    memory.facts_sample_ms = sample.sampled_at_mono_ms
    free = free_slots(state, soft)
    proposal = propose(state, soft) if free else None
    serving = [found for found in state.generations.values() if takes_work(found, soft)]
    facts = SupplyFacts(
        epoch=state.epoch,
        sample_ms=sample.sampled_at_mono_ms,
        previous_ms=previous_ms,
        free_slots=free,
        profiles=() if proposal is None else proposal.profiles,
        idle_samples=state.policy.supply_idle_samples,
        generations=tuple(
            SupplyGeneration(
                generation=found.number,
                assessment=found.phase == "assessment",
                needed=needed(found, state, soft),
            )
            for found in serving
        ),
        idle=() if proposal is None else _waiters(serving, soft),
    )
    turn.send("supply", facts, memory.supply.best)


def _waiters(serving: list[Generation], soft: SoftState) -> tuple[IdlePeer, ...]:
    grown = {
        found.number: grown_peers(found) if found.mature_quorum is not None else set()
        for found in serving
    }
    return tuple(
        IdlePeer(
            peer=peer,
            generation=number,
            cooling=tuple(p for p in PRIORITIES if cools(peer, number, p, soft)),
            mature=peer in grown[number],
        )
        for peer, number in soft.leases.idle.items()
        if number in grown
    )


def cools(peer: str, generation: int, priority: Priority, soft: SoftState) -> bool:
    """Whether a peer is offered nothing of this kind for a while."""
    return soft.leases.cooling_ms.get((peer, generation, priority), 0) > soft.now_ms


def needed(found: Generation, state: BrokerState, soft: SoftState) -> int:
    """Mature work of a generation that is still to be offered; offers under way count."""
    asked = tuple(
        offer.peer
        for offer in soft.leases.offers.values()
        if offer.generation == found.number and offer.priority == "mature"
    )
    return maturity(found, state, state.leases.mature_peers(found.number) + asked).needed_inflight


# -- a plan ---------------------------------------------------------------------------------


def _planned(turn: Turn, plan: LeasesPlanned) -> None:
    """Ask the host for the room of each offer that still stands."""
    state, soft = turn.state, turn.soft
    for offer in plan.offers:
        if not _stands(offer.peer, offer.generation, offer.priority, state, soft):
            continue
        if not free_slots(state, soft):
            return
        proposal = propose(state, soft)
        if proposal is None:
            return
        _claim(turn, offer, proposal)


def _stands(
    peer: str, number: int, priority: Priority, state: BrokerState, soft: SoftState
) -> bool:
    """Whether a peer can be offered this now."""
    memory = soft.leases
    found = state.generations.get(number)
    if found is None or memory.idle.get(peer) != number or not takes_work(found, soft):
        return False
    if closed_words(state, soft) is not None or not state.policy.supply_signal_enabled:
        return False
    if any(pending.peer == peer for pending in memory.offers.values()):
        return False
    if cools(peer, number, priority, soft):
        return False
    if priority == "frontier_followup":
        return found.phase == "open" and needed(found, state, soft) == 0
    if found.mature_quorum is not None and peer in grown_peers(found):
        return False
    return needed(found, state, soft) > 0


def _still_stands(offer: PendingOffer, state: BrokerState, soft: SoftState) -> bool:
    """Looked at again when the host has answered: meanwhile work came, or the limit fell."""
    stands = _stands(offer.peer, offer.generation, offer.priority, state, soft)
    return stands and free_slots(state, soft) > 0


def _claim(turn: Turn, offer: LeaseOffer, proposal: Proposal) -> None:
    soft, memory = turn.soft, turn.soft.leases
    memory.last_number += 1
    lease_id = make_id(soft.credentials_key, turn.state.epoch, memory.last_number)
    memory.offers[lease_id] = PendingOffer(offer.peer, offer.generation, offer.priority, proposal)
    _ask_hold(turn, lease_id, proposal, window_ms(turn.state))


def _ask_hold(turn: Turn, lease_id: str, proposal: Proposal, window: int) -> None:
    message = claims.ClaimLease(
        run_key=turn.soft.run_key,
        epoch=turn.state.epoch,
        registration=turn.soft.registrations,
        lease_id=lease_id,
        envelope=proposal.envelope,
        facts=proposal.facts,
        window_ms=window + HOLD_LONGER_MS,
    )
    turn.claim(message, "claim_lease", lease_id)


def window_ms(state: BrokerState) -> int:
    """How long a peer may answer."""
    return state.policy.supply_lease_seconds * 1000


def make_id(key: bytes, epoch: int, number: int) -> str:
    """A lease id that nobody can guess and that never comes again: the epoch is on disk."""
    mark = hmac.new(key, f"lease {epoch} {number}".encode(), hashlib.sha256).hexdigest()
    return f"supply-{number}-{mark[:16]}"


# -- the registry's word --------------------------------------------------------------------


def hold_granted(turn: Turn, lease_id: str) -> None:
    """The host holds room for an offer: record it, unless its peer cannot use it any more."""
    state, memory = turn.state, turn.soft.leases
    offer = memory.offers.pop(lease_id, None)
    hold = memory.holds.get(lease_id)
    if hold is not None:
        hold.before, hold.asked = turn.soft.host_view, False  # the registry had been away
        return
    if offer is None or not _still_stands(offer, state, turn.soft):
        memory.releasing[lease_id] = None
        ask_release(turn, lease_id)
        return
    memory.holds[lease_id] = HostHold(offer.proposal, turn.soft.host_view)
    window = window_ms(state)
    memory.due_ms[lease_id] = turn.soft.now_ms + window
    memory.idle.pop(offer.peer)
    turn.record(
        ev.LeaseGranted(
            at_ms=turn.stamp.at_ms,
            lease_id=lease_id,
            peer=offer.peer,
            generation=offer.generation,
            priority=offer.priority,
            profiles=offer.proposal.profiles,
            window_ms=window,
            expires_at_ms=turn.stamp.at_ms + window,
        )
    )
    tell(turn, offer.peer)


def hold_denied(turn: Turn, lease_id: str, code: str) -> None:
    """Real work or another offer has the room. The peer waits on; a lease that was out is over."""
    memory = turn.soft.leases
    memory.offers.pop(lease_id, None)
    if lease_id in memory.holds and code != "unknown_run":
        _reclaimed(turn, lease_id)


def released(turn: Turn, lease_id: str) -> None:
    """The registry holds nothing for it any more."""
    turn.soft.leases.releasing.pop(lease_id, None)


def job_placed(turn: Turn, job: Job) -> None:
    """The job of a lease has room of its own: the registry put it in the place of the lease's."""
    lease_id = turn.soft.leases.answered.pop(job.job, None)
    if lease_id is not None:
        turn.soft.leases.holds.pop(lease_id, None)


def lease_of(job: Job, soft: SoftState) -> str | None:
    """The lease whose room a job's own is to replace."""
    return soft.leases.answered.get(job.job)


def registry_lost(turn: Turn) -> None:
    """What was asked is not answered any more. What was out stays out until the host is seen."""
    turn.soft.leases.offers.clear()


def registered(turn: Turn, view: claims.HostView) -> None:
    """The run is registered (again): ask for room that it forgot, give back what is strange."""
    state, memory = turn.state, turn.soft.leases
    ours = {row.lease_id for row in view.leases if row.run_key == turn.soft.run_key}
    memory.view = view
    for lease_id in ours - set(memory.holds):
        memory.releasing[lease_id] = None
    for lease_id in list(memory.releasing):
        if lease_id in ours:
            ask_release(turn, lease_id)
        else:
            del memory.releasing[lease_id]
    for lease_id, hold in memory.holds.items():
        hold.before, hold.asked = None, lease_id not in ours
        if hold.asked:
            left_ms = memory.due_ms.get(lease_id, turn.soft.now_ms) - turn.soft.now_ms
            window = min(window_ms(state), max(1, left_ms))
            _ask_hold(turn, lease_id, hold.proposal, window)


def compare_with_host(turn: Turn) -> None:
    """Once a turn: room that the host gave to real work takes its lease along."""
    soft, memory = turn.soft, turn.soft.leases
    view = soft.host_view
    if not soft.registry_ready or view is None or view is memory.view:
        return
    memory.view = view
    ours = {row.lease_id for row in view.leases if row.run_key == soft.run_key}
    for lease_id, hold in list(memory.holds.items()):
        if not hold.asked and hold.before is not view and lease_id not in ours:
            _reclaimed(turn, lease_id)


def _reclaimed(turn: Turn, lease_id: str) -> None:
    memory = turn.soft.leases
    del memory.holds[lease_id]
    for job in [job for job, name in memory.answered.items() if name == lease_id]:
        del memory.answered[job]
    lease = turn.state.leases.live.get(lease_id)
    if lease is None:
        return
    if turn.soft.now_ms >= memory.due_ms.get(lease_id, 0):
        end(turn, lease, "expired", "response_window_elapsed")
    else:
        end(turn, lease, "revoked", "resource_claim_reclaimed")


# -- telling --------------------------------------------------------------------------------


def audience(turn: Turn, present: bool) -> None:
    """The first listener hears at once where the sequence stands."""
    memory = turn.soft.leases
    if present and not memory.audience:
        memory.alive_told_at_ms = turn.soft.now_ms - ALIVE_MS
    memory.audience = present


def tell_alive(turn: Turn) -> None:
    """The sequence, now and then, while anybody listens: a lost publication shows."""
    due = alive_due_ms(turn.soft)
    if due is None or turn.soft.now_ms < due:
        return
    memory = turn.soft.leases
    memory.alive_told_at_ms = turn.soft.now_ms
    alive = LeasesAlive(epoch=turn.state.epoch, sequence=memory.sequence)
    turn.send("leases", alive, b"leases")


def alive_due_ms(soft: SoftState) -> int | None:
    """When the sequence is told next; None while nobody listens."""
    return soft.leases.alive_told_at_ms + ALIVE_MS if soft.leases.audience else None
