"""The parts of `explain`'s page about what holds a job: gates, devices, what would start it.

Pure: the broker's explanation becomes lines. Memory is in GiB, compute in percent points.
Standard library only.
"""

from __future__ import annotations

from ..protocol.envelope import Json
from .words import count, cut, named_devices, safe, span

DEVICES_SHOWN = 32


def gate_lines(gates: list[Json]) -> list[str]:
    """Every gate, passed or not."""
    if not gates:
        return []
    lines = ["", "gates             state    detail"]
    for gate in gates:
        state = "BLOCKED" if gate["state"] == "blocked" else gate["state"]
        detail = named_devices(safe(gate["detail"]))
        lines.append(f"  {cut(safe(gate['name']), 15):<15} {state:<8} {detail}")
    return lines


def device_lines(devices: list[Json]) -> list[str]:
    """Every device against the need, with what is declared, external and free."""
    if not devices:
        return []
    need = devices[0]
    compute, memory = need["need_utilization_pct"], need["need_memory_mib"]
    wants = f"need compute {_points(compute)}, memory {_gib(memory)} GiB"
    if compute is None or memory is None:
        wants = "its demand is not declared: it needs devices alone"
    head = ("device", "compute: decl", "ext", "free", "memory: decl", "ext", "free", "verdict")
    rows = [_device(device) for device in devices[:DEVICES_SHOWN]]
    widths = [max(len(head[n]), *(len(row[n]) for row in rows)) for n in range(len(head) - 1)]
    lines = ["", f"devices           {wants}", _line(head, widths)]
    lines += [_line(row, widths) for row in rows]
    if len(devices) > DEVICES_SHOWN:
        lines.append(f"  and {count(len(devices) - DEVICES_SHOWN, 'more device')}; --json has all")
    limits = sorted({d["memory_limit_mib"] for d in devices if d["memory_limit_mib"] is not None})
    bounds = " or ".join(f"{_gib(limit)} GiB" for limit in limits[:3]) or "95 % of its memory"
    lines.append(f"  at most 100 points and {bounds} (95 %) of a device")
    return lines


def _device(device: Json) -> list[str]:
    held = f" ({' '.join(device['jobs'])})" if device["jobs"] else ""
    return [
        f"GPU {device['index']}",
        _points(device["declared_utilization_pct"]),
        _points(device["external_utilization_pct"]),
        _points(device["free_utilization_pct"]),
        _gib(device["declared_memory_mib"]),
        _gib(device["external_memory_mib"]),
        _gib(device["free_memory_mib"]),
        safe(device["verdict"]) + safe(held),
    ]


def _line(row: list[str] | tuple[str, ...], widths: list[int]) -> str:
    first, *numbers = row[:-1]
    told = "  ".join(f"{text:>{width}}" for text, width in zip(numbers, widths[1:], strict=True))
    return f"  {first:<{widths[0]}}  {told}  {row[-1]}"


def _points(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _gib(mib: float | None) -> str:
    return "?" if mib is None else f"{mib / 1024:.1f}"


def start_lines(entries: list[Json], *, waits: bool) -> list[str]:
    """What would let it start, likeliest first."""
    if not entries:
        return ["", "WOULD START  nothing that can be foreseen would start it"] if waits else []
    lines = ["", "WOULD START when one of these happens"]
    for number, entry in enumerate(entries, 1):
        event = named_devices(safe(entry["event"]))
        lines.append(f"  {number}. {event}   {_when(entry)}")
    return lines


def _when(entry: Json) -> str:
    if entry["likely_s"] is None:
        return "no forecast"
    by = "" if entry["by_s"] is None else f" (90 %: {span(entry['by_s'])})"
    return f"likely in {span(entry['likely_s'])}{by}"


def option_lines(options: list[str]) -> list[str]:
    """What the peer can do."""
    lines = [""] if options else []
    for number, option in enumerate(options):
        lines.append(f"{'YOU CAN' if number == 0 else '':<8}  {safe(option)}")
    return lines


def facts_line(snapshot: Json) -> list[str]:
    """The facts that all of it rests on, with their ages."""
    if not snapshot:
        return []
    age = snapshot.get("sample_age_s")
    stale = ", too old" if snapshot.get("sample_stale") else ""
    told = [f"host sample {span(age)} old{stale}" if age is not None else "no host sample yet"]
    if snapshot.get("attribution"):
        told.append(f"attribution {safe(snapshot['attribution'])}")
    learnt = snapshot.get("eta_endings") or 0
    told.append(
        f"ETA model from {count(learnt, 'finished job')}" if learnt else "run times not learnt yet"
    )
    told.append(f"registry {safe(snapshot.get('registry') or 'unknown')}")
    limit = f"limit {snapshot.get('limit')}"
    if snapshot.get("limit_before") is not None:
        limit += f", was {snapshot['limit_before']}: {safe(snapshot.get('limit_reason') or '')}"
    told.append(limit)
    if snapshot.get("simulated"):
        told.append("SIMULATED devices")
    return [f"facts     {', '.join(told)}"]
