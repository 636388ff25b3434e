"""The devices with what is declared on them, what they are seen to use, and what is left."""

from __future__ import annotations

from ..protocol.ids import job_of
from ..protocol.replies import DevicesReply
from ..protocol.reports import DeviceProcess
from ..protocol.views import DeviceView
from .demand import ROUNDING
from .device_load import DeviceLoad
from .placement import stale_sample
from .room import free
from .run_names import holding_run
from .sharing import shared_words
from .soft import SoftState
from .state import BrokerState
from .turn import Turn

EXTERNAL_SHOWN = 16


def devices(turn: Turn) -> DevicesReply:
    """Every device that was sampled, in the driver's order."""
    state, soft = turn.state, turn.soft
    if soft.sample is None:
        return DevicesReply(devices=(), simulated=soft.simulated)
    stale = stale_sample(soft) is not None
    shared = shared_words(soft)
    views = tuple(
        _view(load, soft, state.run_id, stale, shared.get(load.sample.uuid))
        for load in soft.fleet.loads(state)
    )
    return DevicesReply(devices=views, simulated=soft.simulated)


def _view(
    load: DeviceLoad, soft: SoftState, run_id: str, stale: bool, shared: str | None
) -> DeviceView:
    device = load.sample
    memory, busy = free(load)
    others = {h.run: holding_run(soft.host_view, h.run) for h in load.holdings}
    others.pop(soft.run_key, None)
    ours = [holding for holding in load.holdings if holding.run == soft.run_key]
    return DeviceView(
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        state="unknown" if stale else device.state,
        memory_total_mib=device.memory_total_mib,
        memory_used_mib=None if stale else device.memory_used_mib,
        utilization_pct=None if stale else device.utilization_pct,
        declared_memory_mib=load.declared_memory_mib,
        declared_utilization_pct=load.declared_utilization_pct,
        external_memory_mib=None if stale else load.external_memory_mib,
        external_utilization_pct=None if stale else load.external_utilization_pct,
        exclusive=load.held_alone,
        jobs=tuple(sorted({job_of(h.attempt) for h in ours}, key=lambda j: int(j[2:]))),
        runs=tuple(sorted({*((run_id,) if ours else ()), *(r.run_id for r in others.values())})),
        other_runs=tuple(sorted(others.values(), key=lambda run: run.run_id)),
        free_memory_mib=None if stale or memory is None else max(0, memory),
        free_utilization_pct=None if stale or busy is None else max(0.0, busy),
        attribution="unavailable" if stale else load.attribution,
        external=external_words(load.external),
        reason=device.reason or shared,
        held_elsewhere=load.elsewhere,
    )


def device_warnings(state: BrokerState, soft: SoftState) -> list[str]:
    """Devices that were lost, that are gone from under an attempt, and whose real use has passed
    what they may carry."""
    known = soft.sample is not None and soft.sample.probe_state != "unknown"
    found = [
        f"{uuid} is not there any more, and {', '.join(sorted(names))} ran on it: mend the device, "
        "or cancel what cannot go on"
        for uuid, names in sorted(state.device_holders.items())
        if known and names and uuid not in soft.fleet.devices
    ]
    for load in soft.fleet.loads(state):
        device = load.sample
        if device.state == "lost":
            why = device.reason or "no reason given"
            found.append(f"GPU {device.index} is lost: {why}; nothing is placed on it")
        if load.elsewhere is not None:
            found.append(f"GPU {device.index} is {load.elsewhere}; nothing is placed on it")
        memory, busy = free(load)
        over = [
            f"{what} by {amount}"
            for what, amount in (
                ("memory", "" if memory is None or memory >= 0 else f"{-memory} MiB"),
                ("compute", "" if busy is None or busy >= -ROUNDING else f"{-busy:.0f} points"),
            )
            if amount
        ]
        if over and load.holdings:
            found.append(f"GPU {device.index} is over its bounds: {', '.join(over)}")
    return found


def external_words(processes: tuple[DeviceProcess, ...]) -> tuple[str, ...]:
    """`pid 881 python, user dana` of every process of others, so far as it is known."""
    words = []
    for process in processes[:EXTERNAL_SHOWN]:
        name = f" {process.name}" if process.name else ""
        user = f", user {process.user}" if process.user else ""
        busy = "" if process.utilization_pct is None else f", {process.utilization_pct:g} %"
        memory = "" if process.memory_mib is None else f", {process.memory_mib} MiB"
        words.append(f"pid {process.pid}{name}{user}{busy}{memory}")
    if len(processes) > EXTERNAL_SHOWN:
        words.append(f"and {len(processes) - EXTERNAL_SHOWN} more")
    return tuple(words)
