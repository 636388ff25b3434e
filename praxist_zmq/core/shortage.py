"""What a survey of the devices is short of, as blockers with numbers and as words a device.

Source: the closed list of blocker codes in the reference of the commands (`explain`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.views import Blocker
from .demand import MEMORY_LIMIT_PCT, UTILIZATION_LIMIT_PCT, Demand
from .device_load import DeviceLoad
from .storm import pause_blocker
from .survey import Look

NAMES_SHOWN = 4


def gib(mib: float) -> str:
    """MiB as GiB with one decimal."""
    return f"{mib / 1024:.1f} GiB"


def device_name(look: Look) -> str:
    """How people are told a device."""
    return f"GPU {look.load.sample.index}"


def device_blockers(demand: Demand, looks: Sequence[Look], now_ms: int) -> tuple[Blocker, ...]:
    """Every kind of obstacle on the devices that do not fit, each with its best number."""
    fitting = sum(look.fits for look in looks)
    found: list[Blocker] = []
    if demand.devices > 1 or len(looks) < demand.devices:
        known = len(looks)
        found.append(
            Blocker(
                code="gpu_count_short",
                detail=f"needs {demand.devices} of {known} devices, {fitting} fit now",
                need=demand.devices,
                free=fitting,
                limit=known,
                unit="devices",
            )
        )
    rest = [look for look in looks if not look.fits]
    found += _compute(demand, rest)
    found += _memory(demand, rest)
    found += _alone(demand, rest)
    found += _kept(rest)
    found += _resting(rest, now_ms)
    found += _silent(rest)
    return tuple(found)


def _compute(demand: Demand, looks: Sequence[Look]) -> list[Blocker]:
    short = [look for look in looks if look.room.utilization_short_pct > 0]
    if not short:
        return []
    best = max(short, key=lambda look: look.room.free_utilization_pct or 0.0)
    need, free = demand.utilization_pct or 0.0, max(0.0, best.room.free_utilization_pct or 0.0)
    return [
        Blocker(
            code="gpu_compute_short",
            detail=f"compute: needs {need:g} %, at best {free:g} % free on {device_name(best)}",
            need=need,
            free=free,
            limit=UTILIZATION_LIMIT_PCT,
            unit="percent_points",
        )
    ]


def _memory(demand: Demand, looks: Sequence[Look]) -> list[Blocker]:
    short = [look for look in looks if look.room.memory_short_mib > 0]
    if not short:
        return []
    best = max(short, key=lambda look: look.room.free_memory_mib or 0)
    need, free = demand.memory_mib or 0, max(0, best.room.free_memory_mib or 0)
    external = best.load.external_memory_mib or 0
    foreign = f" ({gib(external)} in use by others)" if external else ""
    text = f"memory: needs {gib(need)}, at best {gib(free)} free on {device_name(best)}{foreign}"
    text += _bound_words(best.load, need - free)
    return [
        Blocker(
            code="gpu_memory_short",
            detail=text,
            need=need,
            free=free,
            limit=best.load.memory_limit_mib,
            unit="MiB",
        )
    ]


def _bound_words(load: DeviceLoad, short_mib: int) -> str:
    """What may be promised of a device, where all of it would be enough."""
    total, limit = load.sample.memory_total_mib, load.memory_limit_mib
    if total is None or limit is None or short_mib > total - limit:
        return ""
    driver = load.driver_memory_mib
    kept = f" and its driver keeps {gib(driver)}" if driver else ""
    return (
        f"; {gib(limit)} of its {gib(total)} may be promised: at most {MEMORY_LIMIT_PCT} % of a "
        f"device{kept}"
    )


def _alone(demand: Demand, looks: Sequence[Look]) -> list[Blocker]:
    found = []
    alone = [look for look in looks if look.room.held_alone]
    if alone:
        detail = f"{_names(alone)} held by a job that needs it alone"
        found.append(
            Blocker(code="gpu_held_exclusive", detail=detail, free=0, unit="devices",
                    need=demand.devices)
        )  # fmt: skip
    loud = [look for look in looks if look.room.not_quiet and not look.room.held_alone]
    if loud:
        why = "its demand is not declared" if demand.exclusive else "the driver tells too little"
        detail = f"needs {demand.devices} alone ({why}); {_names(loud)} in use"
        found.append(
            Blocker(code="gpu_needs_exclusive", detail=detail, free=0, unit="devices",
                    need=demand.devices)
        )  # fmt: skip
    return found


def _kept(looks: Sequence[Look]) -> list[Blocker]:
    found: dict[str, Blocker] = {}
    for look in looks:
        if look.kept is not None and look.kept.code not in found:
            same = [other for other in looks if other.kept and other.kept.code == look.kept.code]
            detail = f"{_names(same)} kept for {look.kept.whose}"
            found[look.kept.code] = Blocker(code=look.kept.code, detail=detail)
    return list(found.values())


def _resting(looks: Sequence[Look], now_ms: int) -> list[Blocker]:
    """Of the devices that rest, the one whose rest is over first."""
    resting = [(look.rest.until_ms, look) for look in looks if look.rest is not None]
    if not resting:
        return []
    _, first = min(resting, key=lambda item: item[0])
    assert first.rest is not None
    return [pause_blocker(device_name(first), first.rest, now_ms)]


def _silent(looks: Sequence[Look]) -> list[Blocker]:
    found = []
    settling = [look for look in looks if look.settling and look.room.unusable is None]
    if settling:
        detail = f"{_names(settling)} not sampled since a job left"
        found.append(Blocker(code="probe_unknown", detail=detail))
    unusable = [look for look in looks if look.room.unusable is not None]
    others = [look for look in unusable if look.load.elsewhere is not None]
    if others:
        detail = f"{_names(others)} {others[0].load.elsewhere}"[:500]
        found.append(Blocker(code="gpu_held_elsewhere", detail=detail))
    lost = [look for look in unusable if look.load.elsewhere is None]
    if lost:
        detail = f"{_names(lost)} not usable: {lost[0].room.unusable}"[:500]
        unknown = any(look.load.sample.state == "unknown" for look in lost)
        code = "probe_unknown" if unknown else "probe_unavailable"
        found.append(Blocker(code=code, detail=detail))  # type: ignore[arg-type]
    return found


def _names(looks: Sequence[Look]) -> str:
    """`GPU 0`, `GPU 0 and GPU 1 are`..., ready for a participle."""
    shown = [device_name(look) for look in looks[:NAMES_SHOWN]]
    if len(looks) > NAMES_SHOWN:
        return f"{', '.join(shown)} and {len(looks) - NAMES_SHOWN} more are"
    if len(shown) == 1:
        return f"{shown[0]} is"
    return f"{', '.join(shown[:-1])} and {shown[-1]} are"


def device_words(look: Look, others: str) -> str:
    """The verdict on one device, in words; `others` are the other runs that hold it, if any."""
    by = f" by {others}" if others else ""
    verdict = look.room
    if verdict.unusable is not None:
        return verdict.unusable[:200]
    words = []
    if verdict.utilization_short_pct > 0:
        words.append(f"compute short by {verdict.utilization_short_pct:g}")
    if verdict.memory_short_mib > 0:
        words.append(f"memory short by {gib(verdict.memory_short_mib)}")
    if verdict.held_alone:
        words.append(f"held alone{by}")
    elif verdict.not_quiet:
        words.append(f"in use{by}" if look.load.holdings else "not idle: external use")
    if look.kept is not None:
        words.append(f"kept for {look.kept.whose}")
    if look.rest is not None:
        words.append(f"rests: {look.rest.ends} attempts in a row ended with 75")
    if look.settling:
        words.append("not sampled since a job left")
    return ", ".join(words) or ("fits, alone" if verdict.alone else "fits")
