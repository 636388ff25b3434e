"""What the driver sees running attempts do, and whether that is where they were placed.

Telemetry: nothing here admits, retries or ends anything. Source: seed 000 "State And
Compatibility" (the seven states) and "Optional Managed NVIDIA/CUDA Descendant Binding".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ..protocol import events as ev
from ..protocol.reports import DeviceProcess, DeviceSample
from ..protocol.views import ActivityState, Attribution, ResourceActivity
from .device_load import Holding, owner_of
from .fleet import of_attempt
from .placement import stale_sample
from .soft import SoftState
from .state import Attempt, BrokerState
from .timestamps import timestamp
from .turn import Turn

UNOBSERVED_AFTER_MS = 60_000
"""So long after its start an attempt whose processes no driver shows is told to be unobserved."""

BindingStatus = Literal["verified", "conflict", "unobserved"]


def activity(attempt: Attempt, state: BrokerState, soft: SoftState) -> ResourceActivity:
    """What one attempt is seen doing now."""
    sample = soft.sample
    observed_at = None
    if sample is not None:
        age_ms = max(0, soft.now_ms - sample.sampled_at_mono_ms)
        observed_at = timestamp(max(0, soft.now_at_ms - age_ms))
    if not attempt.device_uuids:
        return _told("non_gpu_allocation", "not_applicable", None, observed_at)
    devices = [soft.fleet.devices.get(uuid) for uuid in attempt.device_uuids]
    if sample is None or stale_sample(soft) is not None or sample.probe_state != "available":
        return _told("unknown", "unavailable", None, observed_at)
    seen = [device for device in devices if device is not None and device.processes is not None]
    if len(seen) < len(devices):
        return _told("unknown", "unavailable", None, observed_at)
    holding = of_attempt(soft.run_key, attempt)
    ours = [p for device in seen for p in device.processes or () if owner_of(p, (holding,))]
    unmapped = any(not p.lineage for device in seen for p in device.processes or ())
    if not ours:
        if unmapped:
            word: ActivityState = "gpu_process_attribution_unavailable"
            return _told(word, "unavailable", [], observed_at)
        return _told("no_gpu_process_observed", "complete", [], observed_at)
    attribution: Attribution = "partial" if unmapped else "complete"
    if any((p.utilization_pct or 0.0) > 0 for p in ours):
        return _told("gpu_compute_active", attribution, ours, observed_at)
    if any(p.utilization_pct is None for p in ours):
        return _told("gpu_context_present", attribution, ours, observed_at)
    return _told("gpu_context_idle", attribution, ours, observed_at)


def _told(
    state: ActivityState,
    attribution: Attribution,
    processes: list[DeviceProcess] | None,
    observed_at: str | None,
) -> ResourceActivity:
    memory = [p.memory_mib for p in processes or ()]
    busy = [p.utilization_pct for p in processes or ()]
    known_memory = [mib for mib in memory if mib is not None]
    known_busy = [pct for pct in busy if pct is not None]
    return ResourceActivity(
        state=state,
        attribution=attribution,
        gpu_processes=None if processes is None else len({p.pid for p in processes}),
        gpu_memory_mb=sum(known_memory) if known_memory or processes == [] else None,
        gpu_utilization_pct=sum(known_busy) if known_busy or processes == [] else None,
        observed_at=observed_at,
    )


def phases(state: BrokerState, soft: SoftState) -> dict[str, int]:
    """Running attempts by what they are seen doing."""
    found: dict[str, int] = {}
    for attempt in state.attempts.values():
        word = activity(attempt, state, soft).state
        found[word] = found.get(word, 0) + 1
    return found


def observe_bindings(turn: Turn) -> None:
    """Compare the driver's process map with the assignments; record what it says once it does.

    `verified` may still become `conflict`: a later child can go astray."""
    state, soft = turn.state, turn.soft
    sample = soft.sample
    if sample is None or sample.probe_state != "available":
        return
    for attempt in list(state.attempts.values()):
        if attempt.phase != "running" or not attempt.device_uuids:
            continue
        known = state.jobs[attempt.job].binding_status
        if known == "conflict":
            continue
        found = _binding(turn, attempt, of_attempt(soft.run_key, attempt))
        if found is None or found[0] == known or (known == "verified" and found[0] != "conflict"):
            continue
        status, detail = found
        turn.decision.lazy = True
        turn.record(
            ev.BindingObserved(
                at_ms=turn.stamp.at_ms,
                attempt=attempt.attempt,
                status=status,
                detail=detail[:500],
            )
        )


def _binding(turn: Turn, attempt: Attempt, holding: Holding) -> tuple[BindingStatus, str] | None:
    """What the newest sample says; None when it says nothing yet."""
    on_its_own = False
    for device, process in _seen(turn.soft, holding):
        if device.uuid not in attempt.device_uuids:
            return "conflict", f"pid {process.pid} is on {device.uuid}, which it was not given"
        on_its_own = True
    if on_its_own:
        return "verified", ""
    if turn.stamp.at_ms - attempt.allocated_at_ms > UNOBSERVED_AFTER_MS:
        return "unobserved", "the driver shows no process of it on any device"
    return None


def _seen(soft: SoftState, holding: Holding) -> Iterator[tuple[DeviceSample, DeviceProcess]]:
    for device in soft.fleet.devices.values():
        for process in device.processes or ():
            if owner_of(process, (holding,)) is not None:
                yield device, process
