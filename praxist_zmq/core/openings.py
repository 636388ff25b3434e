"""What may have to happen before the end of any work is of use to a waiting job.

A pressure, a rest or foreign load holds those ahead of a job as well: they start first once it is
over, and the job after they have ended. Devices of which nothing is known hold it in another way:
only the driver's answer, or a fresh sample, tells what it waits for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..protocol.views import WouldStart
from .demand import demand_of
from .placement import probe_blocker, stale_sample
from .pressure import believed_sample, pressed_words
from .shortage import device_name
from .soft import SoftState
from .state import BrokerState, Job
from .storm import place_name
from .survey import look_round
from .what_if import WhatIf

NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Opening:
    """Something that has to happen first. `at_ms`: when, CLOCK_BOOTTIME; infinite is unknown."""

    words: str
    happen: Callable[[WhatIf], object]
    at_ms: float = math.inf


def pressed(job: Job, state: BrokerState, soft: SoftState) -> str:
    """Which pressure of those that the job's profile declares has to fall, in words."""
    profile = state.policy.profiles.get(job.profile)
    return pressed_words(profile, state.policy, believed_sample(soft))


def openings(job: Job, state: BrokerState, soft: SoftState) -> list[Opening]:
    """Each of them alone, then all of them together."""
    found = []
    words = pressed(job, state, soft)
    if words:
        found.append(Opening(words, WhatIf.end_pressure))
    resting = {key: rest for key, rest in soft.storms.rests.items() if not rest.is_open}
    if resting:
        words = f"the rest of {_listed([place_name(soft, key) for key in resting])} is over"
        over_ms = max(rest.until_ms for rest in resting.values())
        found.append(Opening(words, WhatIf.end_rests, float(over_ms)))
    foreign = _foreign(job, state, soft)
    if foreign:
        words = f"external use of {_listed(list(foreign.values()))} ends"
        found.append(Opening(words, partial(_quiet, uuids=tuple(foreign))))
    if len(found) > 1:
        every = tuple(found)
        words = " and ".join(opening.words for opening in every)
        last_ms = max(opening.at_ms for opening in every)
        found.append(
            Opening(words, lambda what_if: [one.happen(what_if) for one in every], last_ms)
        )
    return found


def devices_become_known(job: Job, state: BrokerState, soft: SoftState) -> WouldStart | None:
    """Of a job whose devices nothing is known of: what tells of them. None for any other."""
    profile = state.policy.profiles.get(job.profile)
    if profile is None or profile.accelerator == "cpu":
        return None
    unknown = probe_blocker(soft)
    if unknown is None:
        return None
    if soft.sample is None or stale_sample(soft) is not None:
        event = "a fresh sample of the host comes"
    elif unknown.code == "probe_unknown":
        event = "the driver tells of the devices again"
    else:
        event = "the driver tells of a usable device"
    ahead = soft.queue.ahead_in_lane(job.job)
    if ahead:
        names = f"the {ahead} jobs" if ahead > 1 else "the job"
        event += f", then its turn comes after {names} before it"
    return WouldStart(event=event, job=None, likely_s=None, by_s=None)


def _foreign(job: Job, state: BrokerState, soft: SoftState) -> dict[str, str]:
    """Devices that are used by others than runs, with their names."""
    profile = state.policy.profiles.get(job.profile)
    if profile is None or profile.accelerator == "cpu":
        return {}
    return {
        look.load.sample.uuid: device_name(look)
        for look in look_round(demand_of(profile), state, soft)
        if look.load.external_memory_mib or look.load.external_utilization_pct
    }


def _quiet(what_if: WhatIf, uuids: tuple[str, ...]) -> None:
    for uuid in uuids:
        what_if.quiet_external(uuid)


def _listed(names: list[str]) -> str:
    shown = names[:NAMES_SHOWN]
    if len(names) > NAMES_SHOWN:
        shown.append(f"{len(names) - NAMES_SHOWN} more")
    return " and ".join(shown)
