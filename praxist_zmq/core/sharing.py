"""Devices that are promised twice all the same: what ran there was not known when another came.

Only a registry that lost what it held lets that happen. It then takes what runs there beside what
others hold (`core.claim_admit`), so nothing more is placed; here it is told. Decides nothing.
"""

from __future__ import annotations

from ..protocol.claims import AllocationRow
from .claim_fit import DeviceSums, devices_of, misfit
from .run_names import run_words
from .soft import SoftState

HELP = "nothing more is placed there; cancel one of them if they cannot work side by side"


def promised_twice(rows: tuple[AllocationRow, ...]) -> dict[str, list[AllocationRow]]:
    """Device -> its rows, of each on which one that was claimed again has no room beside others."""
    again = {u for row in rows if row.overcommitted for u in row.envelope.device_uuids}
    found: dict[str, list[AllocationRow]] = {}
    for device in sorted(again):
        there = [row for row in rows if device in row.envelope.device_uuids]
        if any(row.overcommitted and _crowded(device, row, there) for row in there):
            found[device] = there
    return found


def _crowded(device: str, row: AllocationRow, there: list[AllocationRow]) -> bool:
    others = DeviceSums()
    for other in there:
        if other is not row:
            others.add(other.envelope, dict(devices_of(other))[device])
    return misfit(device, others, row.envelope, None, again=True) is not None


def shared_words(soft: SoftState) -> dict[str, str]:
    """Device -> in words, who shares it, of each of ours that is promised twice."""
    view = soft.host_view
    if view is None:
        return {}
    told: dict[str, str] = {}
    for device, rows in promised_twice(view.allocations).items():
        ours = sorted(row.attempt for row in rows if row.run_key == soft.run_key)
        theirs = sorted(
            f"{row.attempt} of run {run_words(view, row.run_key)}"
            for row in rows
            if row.run_key != soft.run_key
        )
        if not ours:
            continue
        known = soft.fleet.devices.get(device)
        name = device if known is None else f"GPU {known.index}"
        told[device] = (
            f"{name} is promised twice, to {' and '.join([*ours, *theirs])}: the host's claim "
            "registry had lost what one of them holds when the other was placed"
        )
    return told
