"""What a lease is worth now, gate by gate, for `explain lease:ID`. Decides nothing."""

from __future__ import annotations

from ..protocol.replies import Explanation, Gate
from .lease_awaited import explain_waiting_peer
from .lease_state import Lease, Leases
from .lease_views import lease_view
from .turn import Refused, Turn


def explain_lease(turn: Turn, name: str) -> Explanation:
    """One lease, by its id or as much of it as the table of leases shows, or by its peer; of a peer
    that waits for one, why none comes. Raises Refused `unknown_lease`, also when several begin
    so."""
    leases = turn.state.leases
    lease = leases.live.get(name) or leases.ended.get(name) or _begins_with(leases, name)
    if lease is None and name in turn.soft.leases.idle:
        return explain_waiting_peer(turn, name)
    lease = lease or leases.of_peer(name)
    if lease is None:
        used = name in leases.consumed
        told = ", it was consumed long ago" if used else ""
        raise Refused("unknown_lease", f"{name[:80]!r}{told}")
    view = lease_view(lease, turn.soft)
    live = lease.state == "out"
    found = turn.state.generations[lease.generation]
    if live:
        left_s = view.left_s or 0.0
        verdict = f"{lease.peer} may answer for {left_s:.0f} s with one {_work(lease.priority)}"
    else:
        verdict = f"{lease.state}: {lease.reason}{f' by {lease.job}' if lease.job else ''}"
    held = lease.lease_id in turn.soft.leases.holds
    gates = (
        _gate("window", live, f"{view.left_s:.0f} s left" if view.left_s is not None else verdict),
        _gate("generation", found.phase in ("open", "assessment"), f"{found.number} {found.phase}"),
        _gate("profiles", True, ", ".join(lease.profiles)),
        _gate("host claim", held or not live, "held" if held else "not held"),
    )
    options = (
        f"praxist-zmq launch --peer {lease.peer} --lease {lease.lease_id} ...",
        f"praxist-zmq lease decline --peer {lease.peer}",
    )
    return Explanation(
        job=None,
        verdict=verdict,
        position=None,
        gates=gates,
        blockers=(),
        options=options if live else (),
    )


def _begins_with(leases: Leases, name: str) -> Lease | None:
    """The one lease whose id begins so, its number whole."""
    prefix = name if name.count("-") > 1 else f"{name}-"
    found = [
        lease
        for lease_id, lease in (*leases.live.items(), *leases.ended.items())
        if lease_id.startswith(prefix)
    ]
    return found[0] if len(found) == 1 else None


def _work(priority: str) -> str:
    return "mature experiment" if priority == "mature" else "experiment of any class"


def _gate(name: str, ok: bool, detail: str) -> Gate:
    return Gate(name=name, state="ok" if ok else "blocked", detail=detail)
