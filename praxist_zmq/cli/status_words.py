"""Lines of `status` about the limit, the marks of pressure, the devices and what is done on them.

Pure; standard library only.
"""

from __future__ import annotations

from ..protocol.envelope import Json
from .words import count, local_time, run_words, safe

DEVICES_SHOWN = 8


def limit_words(status: Json) -> str | None:
    """`5 now (range 1-8); last change +1 at 2026-03-01 14:57:02: cpu 58 <= 65 and work queued`."""
    limit = status.get("concurrency_limit")
    if limit is None:
        return None
    limits = status.get("limits") or {}
    low, high = limits.get("range") or (None, None)
    told = f"{limit} at once"
    if low is not None:
        told += ", fixed" if low == high else f" (range {low}-{high})"
    cap = status.get("max_parallel_runs_per_peer")
    told += "" if cap is None else f", {cap} of one peer"
    if limits.get("before") is not None and limits.get("reason"):
        at = local_time(limits.get("changed_at"))
        told += f"; last change {limit - limits['before']:+d} at {at}: {safe(limits['reason'])}"
    if limits.get("rises"):
        told += f"; {safe(limits['rises'])}"
    return told


def marks_words(status: Json) -> str:
    """The high marks of pressure, after the readings."""
    marks = (status.get("limits") or {}).get("high_pct") or {}
    if not marks:
        return ""
    numbers = "/".join(f"{marks.get(name, 0):g}" for name in ("cpu", "memory", "io"))
    return f"  high marks {numbers}"


def device_words(devices: list[Json] | None) -> list[str]:
    """`0: 90/100 compute, 40.4/76.0 GiB, 2 jobs + external`, a line for each of the first: what
    counts against the bounds, the larger of what is declared or others' and what is seen."""
    lines = [_device(device) for device in (devices or [])[:DEVICES_SHOWN]]
    if devices and len(devices) > DEVICES_SHOWN:
        lines.append(f"and {count(len(devices) - DEVICES_SHOWN, 'more device')}: praxist-zmq gpus")
    return lines


def _device(device: Json) -> str:
    if device["state"] != "available":
        return f"{device['index']}: {safe(device['state'])}"
    declared, external = device["declared_utilization_pct"], device["external_utilization_pct"]
    seen = device["utilization_pct"] or 0
    busy = "?" if external is None else f"{max(declared + external, seen):.0f}"
    used, total = device["memory_used_mib"], device["memory_total_mib"]
    if used is not None:
        used = max(used, device["declared_memory_mib"] + (device["external_memory_mib"] or 0))
    memory = "?" if used is None else f"{used / 1024:.1f}"
    most = "?" if total is None else f"{total * 0.95 / 1024:.1f}"
    told = f"{device['index']}: {busy}/100 compute, {memory}/{most} GiB"
    holders = [count(len(device["jobs"]), "job")] if device["jobs"] else []
    holders += [f"run {run_words(run)}" for run in device.get("other_runs") or []]
    told += f", {' and '.join(holders)}" if holders else ", no job"
    told += " alone" if device["exclusive"] else ""
    return told + (" + external" if device.get("external") or (external or 0) > 0 else "")


def activity_words(status: Json, devices: list[Json] | None) -> str | None:
    """`3 gpu compute active, 1 non gpu allocation   attribution complete`."""
    phases = (status.get("running_activity") or {}).get("by_resource_phase") or {}
    if not phases:
        return None
    told = ", ".join(f"{number} {safe(word).replace('_', ' ')}" for word, number in phases.items())
    known = {device.get("attribution") for device in devices or []}
    worst = next((word for word in ("unavailable", "partial", "complete") if word in known), None)
    return told + (f"   attribution {worst}" if worst else "")


def stats_line(stats: Json) -> str:
    """`granted 9  consumed 6  declined 2  expired 0  revoked 0  out 1   conversion 0.67`."""
    words = "  ".join(
        f"{name} {stats[name]}"
        for name in ("granted", "consumed", "declined", "expired", "revoked")
    )
    rate = stats["conversion_rate"]
    told = "" if rate is None else f"   conversion {rate:.2f}"
    for name in ("stale_submission", "reuse_ignored"):
        told += f"   {name} {stats[name]}" if stats[name] else ""
    return f"{words}  out {stats['outstanding']}{told}"


def supply_words(status: Json) -> str | None:
    """Who waits for room, and what became of offers; nothing where there never was any."""
    supply = status.get("resource_supply") or {}
    stats, idle = supply.get("stats") or {}, supply.get("idle_waiters") or 0
    if not idle and not stats.get("granted"):
        return None
    return f"{count(idle, 'idle peer')}   {stats_line(stats)}"
