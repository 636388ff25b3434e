"""Whether a generation takes such work now: by its phase, and by the time that it has left.

Before assessment a declared run time must fit before the deadline; an unknown one passes. In
assessment only mature work may start, and only if it is likely enough to end in time. Source: seed
000 "Mature Evidence", "Timing And Close"; the reference of the original system, 3 "Time" and 7.
"""

from __future__ import annotations

import re

from .soft import SoftState
from .state import BrokerState, Generation
from .turn import Refused

UNDECLARED_HELP = (
    "declare its run time with --eta, if it ends in time; else send it in the next generation"
)
STEP_MS = 1_000
"""What the wall clock differs by less is no step of it."""
PEER_GENERATION = re.compile(r"gen(0|[1-9][0-9]{0,5})_")


def named(state: BrokerState, number: int | None) -> Generation:
    """A generation by its number, or the current one. Raises Refused `generation_unknown`."""
    found = state.generations.get(state.generation if number is None else number)
    if found is None:
        raise Refused("generation_unknown", f"generation {number} was never opened")
    return found


def generation_of(state: BrokerState, number: int | None, peer: str) -> int:
    """The generation that is named; else the one in the peer's name, `gen3_peer1`, when that was
    opened; else the current one. Raises Refused `generation_unknown`."""
    if number is not None:
        return named(state, number).number
    found = PEER_GENERATION.match(peer)
    by_name = int(found[1]) if found is not None else state.generation
    return by_name if by_name in state.generations else state.generation


def takes_work(found: Generation, soft: SoftState) -> bool:
    """Whether it takes any: it is open or in assessment, and its deadline is not past."""
    left_ms = time_left_ms(found, soft)
    return found.phase in ("open", "assessment") and (left_ms is None or left_ms > 0)


def time_left_ms(found: Generation, soft: SoftState) -> float | None:
    """Until its deadline; None when it has none. A step of the wall clock does not move it."""
    if found.deadline_at_ms is None:
        return None
    due = soft.deadlines_ms.get(found.number)
    if due is None:
        due = soft.now_ms + (found.deadline_at_ms - soft.now_at_ms)
        soft.deadlines_ms[found.number] = due
    return due - soft.now_ms


def shown_deadline(found: Generation, soft: SoftState) -> int | None:
    """A deadline by the wall clock, for readers: after a step of that clock it is where the time
    that is really left ends, not where it was written."""
    if found.phase not in ("open", "assessment") or found.deadline_at_ms is None:
        return found.deadline_at_ms
    now_ms = round(soft.now_at_ms + (time_left_ms(found, soft) or 0))
    stepped = abs(now_ms - found.deadline_at_ms) >= STEP_MS
    return now_ms if stepped else found.deadline_at_ms


def takes_class(number: int, work_class: str, state: BrokerState) -> bool:
    """Whether such work of a generation may still start, as far as its phase says."""
    found = state.generations.get(number)
    if found is None or found.phase == "open":
        return True
    return found.phase == "assessment" and work_class == "mature"


def generation_refusal(
    number: int, profile: str, work_class: str, eta_ms: int | None, state: BrokerState,
    soft: SoftState,
) -> Refused | None:  # fmt: skip
    """Why a generation does not take such work now; None when it does."""
    found = state.generations.get(number)
    if found is None:
        return None
    if found.phase in ("frozen", "closed"):
        return Refused("generation_closing", f"generation {number} is frozen: {found.reason}")
    if found.phase == "assessment" and work_class != "mature":
        return Refused("generation_assessment", f"generation {number}: {found.reason}")
    left_ms = time_left_ms(found, soft)
    if left_ms is None:
        return None
    policy = state.policy
    if found.phase == "assessment":
        time = state.calibration.run_time(profile, eta_ms)
        chance = 0.0 if time is None else time.within(left_ms)
        least = policy.mature_assessment_min_completion_probability
        if chance >= least:
            return None
        told = "its run time is not declared" if time is None else f"chance {chance:.2f}"
        return Refused(
            "insufficient_generation_time",
            f"generation {number} ends in {left_ms / 1000:.0f} s: {told}, at least {least:g} is "
            "needed",
            None if time is not None else [UNDECLARED_HELP],
        )
    if eta_ms is None or not policy.deadline_admission or eta_ms <= left_ms:
        return None
    return Refused(
        "insufficient_generation_time",
        f"generation {number} ends in {left_ms / 1000:.0f} s; it declares {eta_ms / 1000:g} s",
    )
