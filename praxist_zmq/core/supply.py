"""The supply process's machine: when room has been idle for long enough, whom to offer it.

Counts good samples in a row: each new, with free slots and a profile that could start, while
somebody waits. Enough of them, and it plans at most as many offers as there are free slots, to the
peers that have waited longest; then it counts anew. It keeps nothing that matters: a fresh one only
counts from zero. Never grants: the broker looks again, claims, records and publishes. Source: seed
000 "Mature Evidence And Idle Supply Feedback"; the reference of the original system, "Supply
leases".
"""

from __future__ import annotations

from ..protocol.policy import Priority
from ..protocol.supply import IdlePeer, LeaseOffer, LeasesPlanned, SupplyFacts, SupplyGeneration


class SupplyPlanner:
    """Facts in, a plan out. `good` is the number of good samples in a row."""

    def __init__(self) -> None:
        self.good = 0
        self._epoch: int | None = None
        self._sample_ms: int | None = None

    def forget(self) -> None:
        """The broker is another one, or was away: what was counted may not be in a row."""
        self.good = 0
        self._epoch = self._sample_ms = None

    def decide(self, facts: SupplyFacts) -> LeasesPlanned:
        """What to offer by the facts of one sample; mostly nothing."""
        if facts.epoch != self._epoch:
            self.forget()
            self._epoch = facts.epoch
        if facts.previous_ms != self._sample_ms:
            self.good = 0  # samples passed that nobody told of: these are not in a row
        offers: tuple[LeaseOffer, ...] = ()
        if self._sample_ms is None or facts.sample_ms > self._sample_ms:
            self._sample_ms = facts.sample_ms
            self.good = self.good + 1 if facts.free_slots and facts.profiles else 0
            if self.good >= facts.idle_samples:
                offers = _offers(facts)
                self.good = 0
        return LeasesPlanned(sample_ms=facts.sample_ms, offers=offers)


def _offers(facts: SupplyFacts) -> tuple[LeaseOffer, ...]:
    generations = {found.generation: found for found in facts.generations}
    needed = {number: found.needed for number, found in generations.items()}
    offers: list[LeaseOffer] = []
    for peer in facts.idle:
        if len(offers) == facts.free_slots:
            break
        generation = generations.get(peer.generation)
        if generation is None:
            continue
        priority = _priority(peer, generation, needed[peer.generation])
        if priority is None:
            continue
        if priority == "mature":
            needed[peer.generation] -= 1
        offers.append(LeaseOffer(peer=peer.peer, generation=peer.generation, priority=priority))
    return tuple(offers)


def _priority(peer: IdlePeer, generation: SupplyGeneration, needed: int) -> Priority | None:
    """What to ask of one peer; None for nothing now.

    While mature work is needed nothing else is asked for: who cannot be asked for it waits until
    enough is on its way. Source: seed 000, "spare leases return to follow-ups" once mature
    commitments satisfy A_target.
    """
    wanted: Priority = "mature" if needed > 0 else "frontier_followup"
    if wanted in peer.cooling:
        return None
    if wanted == "mature":
        return None if peer.mature else wanted
    return None if generation.assessment else wanted
