"""The last look at its devices before an attempt may run.

A placement rests on a sample that can be a second old, and what others took since is not in it. So
an attempt on devices gets GO only when they were read at about the time of its plan or later. The
look is asked for with the plan, and has mostly come before the attempt waits at its barrier.
Nobody is held for long by a driver that tells nothing: then what was decided stays.
Source: the fault list of the reference (another process takes the memory between sample and
launch).
"""

from __future__ import annotations

from .placement import SAMPLE_AGE_MAX_MS, probe_blocker
from .soft import SoftState

FRESH_MS = 100
"""A reading that is this much older than the plan will do: samples do not come faster."""


def expect_look(soft: SoftState, attempt: str, uuids: tuple[str, ...], since_ms: int) -> None:
    """These devices are to be read again before the attempt may run, unless they just were.
    `since_ms`: CLOCK_BOOTTIME of its plan."""
    if not _looked(soft, uuids, since_ms):
        soft.unlooked[attempt] = (since_ms, uuids)


def take_look(soft: SoftState) -> None:
    """There is a new sample: whom it serves waits no more."""
    for attempt, (since_ms, uuids) in list(soft.unlooked.items()):
        if _looked(soft, uuids, since_ms):
            del soft.unlooked[attempt]


def waits_for_look(soft: SoftState, attempt: str) -> bool:
    """Whether GO has to wait for a newer reading of the attempt's devices."""
    expected = soft.unlooked.get(attempt)
    if expected is None or soft.now_ms - expected[0] > SAMPLE_AGE_MAX_MS:
        return False
    return soft.sample is None or probe_blocker(soft) is None


def look_wanted(soft: SoftState) -> bool:
    """Whether a newer reading is waited for, now or when an attempt is at its barrier."""
    return any(soft.now_ms - since <= SAMPLE_AGE_MAX_MS for since, _ in soft.unlooked.values())


def _looked(soft: SoftState, uuids: tuple[str, ...], since_ms: int) -> bool:
    if soft.sample is None:
        return not uuids
    for uuid in uuids:
        device = soft.fleet.devices.get(uuid)
        if device is None or device.state != "available":
            continue  # nothing more will be read of it; the check before GO says so
        if (device.read_at_mono_ms or soft.sample.sampled_at_mono_ms) < since_ms - FRESH_MS:
            return False
    return True
