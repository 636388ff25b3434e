"""How many attempts the run, the host and a peer's cap still take. Counts, no words.

Source: seed 000 (limits, the cap of a peer); design 5 ("Fair between runs").
"""

from __future__ import annotations

from .concurrency import occupied
from .soft import SoftState
from .state import BrokerState


def host_slots(state: BrokerState, soft: SoftState) -> tuple[int, int, int, int] | None:
    """(used, limit, runs, runs that hold fewer and wait for a slot); None when we are alone."""
    view = soft.host_view
    if view is None or not view.limit or (len(view.runs) < 2 and not soft.others_hold):
        return None
    ours = occupied(state, soft)
    waiting = sum(
        1 for run in view.wants if run.want.slot and run.run_key != soft.run_key and run.held < ours
    )
    return soft.others_hold + ours, view.limit, len(view.runs), waiting


def free_slots(state: BrokerState, soft: SoftState) -> int:
    """How many more attempts the run and the host take; what runs with fewer wait for is not
    free."""
    free = state.limit - occupied(state, soft)
    host = host_slots(state, soft)
    if host is not None:
        used, limit, _, waiting = host
        free = min(free, limit - used - waiting)
    return free


def planned_by_peer(state: BrokerState, soft: SoftState) -> dict[str, int]:
    """Plans under way by peer: what they stand for counts as running."""
    planned: dict[str, int] = {}
    for plan in soft.plans.values():
        peer = state.jobs[plan.job].peer
        planned[peer] = planned.get(peer, 0) + 1
    return planned


def running_of(peer: str, state: BrokerState, planned: dict[str, int]) -> int:
    """How many jobs a peer has running, or about to."""
    return state.peers_running.get(peer, 0) + planned.get(peer, 0)


def at_cap(peer: str, state: BrokerState, planned: dict[str, int]) -> bool:
    """Whether a peer may not have one more running."""
    cap = state.policy.max_parallel_runs_per_peer
    return cap is not None and running_of(peer, state, planned) >= cap
