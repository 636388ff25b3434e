"""How much close-grade evidence a generation has, is about to have, and still needs.

    Q = max(1, ceil(cohort x fraction)), or the hard quorum where that is larger
    M = mature results published: unique results, or distinct peers under a hard quorum
    D = max(0, Q - M)
    A = min(cohort, ceil(redundancy x D)), how many are to be on their way

A fraction or redundancy of zero switches the controller off, also with a hard quorum. Source: seed
000 "Mature Evidence And Idle Supply Feedback"; the reference of the original system, "Supply
leases" and "First wave".
"""

from __future__ import annotations

import math
from typing import Literal

from ..protocol.views import MaturityView
from .state import BrokerState, Generation

ROUNDING = 1e-9
"""0.1 x 30 is not more than 3."""


def maturity(generation: Generation, state: BrokerState, leases: tuple[str, ...]) -> MaturityView:
    """The controller's figures. `leases`: peers with a live lease of mature priority."""
    policy = state.policy
    by_peer = generation.mature_quorum is not None
    cohort = generation.cohort_size or len(generation.peers) or 1
    target = _target(generation, policy.mature_supply_fraction, cohort)
    if policy.mature_supply_redundancy == 0:
        target = 0
    grown = {one.tag for one in generation.results.values() if one.mature}
    done = grown_peers(generation) if by_peer else grown
    debt = max(0, target - len(done))
    wanted = min(cohort, math.ceil(policy.mature_supply_redundancy * debt - ROUNDING))
    jobs = on_their_way(generation.number, state)
    if by_peer:
        inflight = {peer for peer in jobs.values() if peer not in done}
        offered = len({peer for peer in leases if peer not in done} - inflight)
    else:
        inflight = {tag for tag in jobs if tag not in grown}
        offered = len(leases)  # each stands for one that is to come
    return MaturityView(
        counted_in="peers" if by_peer else "results",
        target=target,
        completed=len(done),
        debt=debt,
        target_inflight=wanted,
        inflight_jobs=len(inflight),
        priority_leases=len(leases),
        needed_inflight=max(0, wanted - len(inflight) - offered),
    )


def quota_met(generation: Generation, state: BrokerState) -> bool:
    """Whether the evidence that ends an assessment is there: the hard quorum of distinct mature
    peers, also where the supply of mature work is switched off; without one, no debt."""
    if generation.mature_quorum is not None:
        grown = {one.peer for one in generation.results.values() if one.mature}
        return len(grown - {None}) >= generation.mature_quorum
    figures = maturity(generation, state, ())
    return figures.target > 0 and figures.debt == 0


def _target(generation: Generation, fraction: float, cohort: int) -> int:
    if fraction == 0:
        return 0
    soft = max(1, math.ceil(cohort * fraction - ROUNDING))
    return max(soft, generation.mature_quorum or 0)


def grown_peers(generation: Generation) -> set[str]:
    """Peers with a mature result. Under a hard quorum they are not asked for another."""
    return {one.peer for one in generation.results.values() if one.mature and one.peer is not None}


def on_their_way(number: int, state: BrokerState) -> dict[str, str]:
    """Tag -> peer of the mature work of a generation that is queued or running. A retry keeps its
    identity, so it counts once."""
    return {job.tag: job.peer for job in state.mature_open.get(number, {}).values()}


def advice(generation: Generation, target: int) -> dict[str, Literal["direct_mature", "explore"]]:
    """First wave: the first peers go for mature work at once, and one at least explores."""
    peers = generation.peers
    if not target or not peers:
        return {}
    direct = 1 if len(peers) == 1 else min(target, len(peers) - 1)
    return {
        peer: "direct_mature" if rank < direct else "explore" for rank, peer in enumerate(peers)
    }
