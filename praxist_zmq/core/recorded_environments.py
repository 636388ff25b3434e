"""How many jobs still need a recorded environment, and which unused ones are kept.

Part of `core.evolve.apply`: nothing else changes them.
"""

from __future__ import annotations

from .state import BrokerState
from .transitions import START, IllegalTransition

IDLE_ENVIRONMENTS_KEPT = 64


def use_environment(state: BrokerState, environment_id: str) -> None:
    """One job more needs it. Raises IllegalTransition when it was never recorded."""
    recorded = state.environments.get(environment_id)
    if recorded is None:
        raise IllegalTransition(f"environment {environment_id[:12]}", START, "use by a job")
    if recorded.users == 0:
        state.idle_environments -= 1
    recorded.users += 1
    state.environments.move_to_end(environment_id)


def drop_environment(state: BrokerState, environment_id: str) -> None:
    """One job less needs it. A few unused ones are kept, so that a run of short jobs with one
    environment does not write it again for each."""
    recorded = state.environments[environment_id]
    recorded.users -= 1
    if recorded.users:
        return
    state.idle_environments += 1
    if state.idle_environments > IDLE_ENVIRONMENTS_KEPT:
        oldest = next(key for key, value in state.environments.items() if value.users == 0)
        del state.environments[oldest]
        state.idle_environments -= 1
