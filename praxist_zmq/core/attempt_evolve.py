"""What events of an attempt's processes change in the broker's state; a part of `core.evolve`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..protocol import events as ev
from .state import Attempt, BrokerState
from .transitions import START, IllegalTransition, next_attempt_phase


def advance(name: str, kind: str, state: BrokerState, sequence: int) -> Attempt:
    """The attempt in its next phase. Raises IllegalTransition."""
    attempt = state.attempts.get(name)
    if attempt is None:
        raise IllegalTransition(name, START, kind)
    attempt.phase = next_attempt_phase(name, attempt.phase, kind)
    state.jobs[attempt.job].version = sequence
    return attempt


def _attempt_bound(event: ev.AttemptBound, state: BrokerState, sequence: int) -> None:
    attempt = advance(event.attempt, event.kind, state, sequence)
    attempt.shim = event.shim


def _attempt_launched(event: ev.AttemptLaunched, state: BrokerState, sequence: int) -> None:
    attempt = advance(event.attempt, event.kind, state, sequence)
    attempt.leader = event.leader
    attempt.launched_at_ms = event.at_ms
    state.jobs[attempt.job].started_at_ms = event.at_ms


def _attempt_exited(event: ev.AttemptExited, state: BrokerState, sequence: int) -> None:
    attempt = advance(event.attempt, event.kind, state, sequence)
    attempt.outcome = event.outcome
    attempt.exit_code = event.exit_code
    attempt.signal = event.signal
    attempt.errno = event.errno
    attempt.detail = event.detail
    attempt.survivors = event.survivors


def _attempt_stuck(event: ev.AttemptStuck, state: BrokerState, sequence: int) -> None:
    attempt = advance(event.attempt, event.kind, state, sequence)
    attempt.stuck_pids = event.pids


def _attempt_found(event: ev.AttemptFound, state: BrokerState, sequence: int) -> None:
    attempt = advance(event.attempt, event.kind, state, sequence)
    attempt.found, attempt.evidence = event.found, event.evidence
    if event.found == "unseen":
        attempt.stuck_pids = ()  # numbers of another namespace, as earlier releases recorded them


def _attempt_presumed_dead(
    event: ev.AttemptPresumedDead, state: BrokerState, sequence: int
) -> None:
    advance(event.attempt, event.kind, state, sequence).presumed_dead = True


OF_ATTEMPTS: dict[type, Callable[[Any, BrokerState, int], None]] = {
    ev.AttemptBound: _attempt_bound,
    ev.AttemptLaunched: _attempt_launched,
    ev.AttemptExited: _attempt_exited,
    ev.AttemptStuck: _attempt_stuck,
    ev.AttemptFound: _attempt_found,
    ev.AttemptPresumedDead: _attempt_presumed_dead,
}
