"""What the registry must hold for the run's attempts: compared with each view, asked until granted.

A registry may have lost its ledger, or denied a claim for a reason that passes. While it lacks the
row of a live attempt, another run may be given its device. So each view is compared with the
attempts, and a denial is asked again after a pause. Whatever has a process occupies its devices
already: it says so, and is taken beside others. It never reserves for what does not hold anything.
Source: design 2 (promise 5).
"""

from __future__ import annotations

from ..protocol import claims
from ..protocol.claims import Envelope
from .soft import SoftState
from .state import Attempt
from .turn import Turn

CLAIM_AGAIN_MS = 1_000
"""Before a claim that was denied is asked for again."""
_UNDER_WAY = ("reserve", "reserve_again", "bind", "release")


def compare(turn: Turn) -> None:
    """Claim what the view lacks that has just come, unless an answer about it is still to come.

    Only then: a view is not told of what its own run was granted since.
    """
    soft, state = turn.soft, turn.state
    view = soft.host_view
    if not soft.registry_ready or view is None:
        return
    rows = {row.attempt: row for row in view.allocations if row.run_key == soft.run_key}
    lacking = [
        attempt
        for attempt in state.attempts.values()
        if (row := rows.get(attempt.attempt)) is None or (attempt.shim and row.bound is None)
    ]
    if not lacking:
        return
    asked = {told.attempt for told in soft.registry_requests.values() if told.what in _UNDER_WAY}
    for attempt in lacking:
        if attempt.attempt in asked or attempt.attempt in soft.claim_again_ms:
            continue
        if attempt.attempt not in rows:
            _reserve_again(turn, attempt)
        bind(turn, attempt)


def ask_again(turn: Turn) -> None:
    """Once a turn: what was denied, when its pause is over."""
    waits = turn.soft.claim_again_ms
    for name in [name for name, due_ms in waits.items() if due_ms <= turn.stamp.mono_ms]:
        del waits[name]
        attempt = turn.state.attempts.get(name)
        if attempt is not None:
            _reserve_again(turn, attempt)
            bind(turn, attempt)


def again_due_ms(soft: SoftState) -> int | None:
    """When a denied claim is asked for again."""
    if not soft.registry_ready:
        return None
    return min(soft.claim_again_ms.values(), default=None)


def denied(turn: Turn, attempt: str) -> None:
    """The registry holds nothing for a live attempt, and says that it won't now."""
    if attempt in turn.state.attempts:
        turn.soft.claim_again_ms[attempt] = turn.stamp.mono_ms + CLAIM_AGAIN_MS


def over(soft: SoftState, attempt: str) -> None:
    """The attempt needs no hold any more."""
    soft.claim_again_ms.pop(attempt, None)


def runs_already(attempt: Attempt, soft: SoftState) -> bool:
    """Whether its process may be on its devices: then no denial takes it from there."""
    return attempt.phase not in ("allocated", "bound") or attempt.attempt in soft.released


def _reserve_again(turn: Turn, attempt: Attempt) -> None:
    turn.claim(
        claims.Reserve(
            run_key=turn.soft.run_key,
            epoch=turn.state.epoch,
            registration=turn.soft.registrations,
            attempt=attempt.attempt,
            envelope=Envelope(
                device_uuids=attempt.device_uuids,
                exclusive=attempt.exclusive,
                memory_mib=attempt.memory_mib,
                utilization_pct=attempt.utilization_pct,
            ),
            shim=attempt.shim if runs_already(attempt, turn.soft) else None,
        ),
        "reserve_again",
        attempt.attempt,
    )


def bind(turn: Turn, attempt: Attempt) -> None:
    """Tell the registry which process proves the allocation."""
    if attempt.shim is None:
        return
    turn.claim(
        claims.Bind(
            run_key=turn.soft.run_key,
            epoch=turn.state.epoch,
            registration=turn.soft.registrations,
            attempt=attempt.attempt,
            shim=attempt.shim,
        ),
        "bind",
        attempt.attempt,
    )
