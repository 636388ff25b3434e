"""Why a peer that waits for a lease gets none, gate by gate, for `explain lease:PEER`.

The gates are those by which leases are granted (`lease_grant`, `lease_room`). Decides nothing.
"""

from __future__ import annotations

from ..protocol.policy import Priority
from ..protocol.replies import Explanation, Gate
from .admission import closed_words, run_gates
from .generation_gate import takes_work
from .lease_grant import cools, needed
from .lease_room import free_slots, propose
from .maturity import grown_peers
from .slots import free_slots as empty_slots
from .state import Generation
from .turn import Turn


def explain_waiting_peer(turn: Turn, peer: str) -> Explanation:
    """One peer that waits."""
    state, soft = turn.state, turn.soft
    found = state.generations.get(soft.leases.idle[peer])
    gates = [*_of_the_run(turn), *([] if found is None else _of_the_peer(turn, peer, found))]
    gates.append(_room(turn))
    blocked = next((gate for gate in gates if gate.state == "blocked"), None)
    count = state.policy.supply_idle_samples
    verdict = f"a lease comes when {count} samples in a row, one a second, have shown room"
    if blocked is not None:
        verdict = f"no lease comes: {blocked.detail}"
    return Explanation(
        job=None,
        verdict=verdict,
        position=None,
        gates=tuple(gates),
        blockers=(),
        options=(f"submit without one: praxist-zmq submit --peer {peer} ...",),
    )


def _of_the_run(turn: Turn) -> list[Gate]:
    state, soft = turn.state, turn.soft
    closed = closed_words(state, soft)
    offers = state.policy.supply_signal_enabled
    disabled = "the contract has supply_signal_enabled: false"
    known = bool(soft.leases.supply.known)
    return [
        _gate("admission", closed is None, closed or "open"),
        _gate("supply", offers, "the contract allows leases" if offers else disabled),
        _gate("planner", known, "it answers" if known else "the supply process is not there yet"),
    ]


def _of_the_peer(turn: Turn, peer: str, found: Generation) -> list[Gate]:
    """Whether its generation wants anything of it now."""
    state, soft = turn.state, turn.soft
    takes = takes_work(found, soft)
    words = f"generation {found.number} is {found.phase}"
    gates = [_gate("generation", takes, words if takes else f"{words} and takes no work")]
    mature = needed(found, state, soft)
    priority: Priority = "mature" if mature > 0 else "frontier_followup"
    if mature > 0 and found.mature_quorum is not None and peer in grown_peers(found):
        detail = f"{mature} mature results are wanted first, and this peer has given its own"
        gates.append(_gate("work", False, detail))
    elif mature <= 0 and found.phase == "assessment":
        gates.append(_gate("work", False, "enough mature work is under way, and in assessment "
                           "nothing else is asked for"))  # fmt: skip
    else:
        wanted = f"{mature} mature experiments are wanted" if mature > 0 else "any class is wanted"
        gates.append(_gate("work", True, wanted))
    pauses = cools(peer, found.number, priority, soft)
    until_ms = soft.leases.cooling_ms.get((peer, found.number, priority), 0)
    left_s = max(0, until_ms - soft.now_ms) // 1000
    cooling = f"its last lease went unused; it is offered the next in {left_s} s"
    gates.append(_gate("pause", not pauses, cooling if pauses else "none"))
    return gates


def _room(turn: Turn) -> Gate:
    """Whether there is room that no planned work could take."""
    state, soft = turn.state, turn.soft
    run = run_gates(state, soft).blockers
    if run:
        return _gate("room", False, run[0].detail)
    if not free_slots(state, soft):
        detail = (
            f"{max(0, empty_slots(state, soft))} slots are free, and queued work and other leases "
            "take them"
        )
        return _gate("room", False, detail)
    proposal = propose(state, soft)
    if proposal is None:
        return _gate("room", False, "no profile of the contract could start now: explain profile:N")
    return _gate("room", True, f"room for {', '.join(proposal.profiles)}")


def _gate(name: str, ok: bool, detail: str) -> Gate:
    return Gate(name=name, state="ok" if ok else "blocked", detail=detail[:500])
