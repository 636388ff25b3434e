"""Whether the host is too busy for one more attempt of a profile.

A declared domain at or over its high mark refuses. Below it, only so many attempts may begin on
one sample as the cores have headroom for: what began since is not in the sample yet, and a burst
must not fill every slot on one reading. A domain that the host does not tell cannot refuse; it is
never taken for zero either: with no reading at all, or an old one, one attempt begins at a time.
Source: seed 000 "Task Contract" (pressure domains), seed 001; design 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..protocol.policy import PressureDomain, Profile, SchedulerPolicy
from ..protocol.reports import HostSampled
from ..protocol.views import Blocker, BlockerCode
from .placement import stale_sample
from .soft import SoftState

HOST: tuple[PressureDomain, ...] = ("cpu", "memory", "io")
"""The kinds of pressure of the host as a whole."""
IN_SAMPLE_MS = 500
"""An attempt this much older than a sample has made its mark on it."""


@dataclass(frozen=True, slots=True)
class Domain:
    """One kind of pressure: its reading and its high mark, in percent points."""

    name: str
    code: BlockerCode
    reading: float | None
    high: float


def domains_of(
    profile: Profile, policy: SchedulerPolicy, sample: HostSampled | None
) -> list[Domain]:
    """The host's pressure in the domains that a profile declares. `gpu` is judged by placement."""
    cpu = memory = io = None
    if sample is not None:
        cpu, memory, io = sample.cpu_pct, sample.memory_pct, sample.io_pct
    every = {
        "cpu": Domain("cpu", "pressure_cpu", cpu, policy.cpu_high_pct),
        "memory": Domain("memory", "pressure_memory", memory, policy.memory_high_pct),
        "io": Domain("io", "pressure_io", io, policy.io_pressure_high_pct),
    }
    return [every[name] for name in profile.pressure_domains if name in every]


def declares_pressure(profile: Profile | None) -> bool:
    """Whether the host's pressure can hold a profile back."""
    return profile is not None and any(name in HOST for name in profile.pressure_domains)


def at_high_mark(
    profile: Profile | None, policy: SchedulerPolicy, sample: HostSampled | None
) -> bool:
    """Whether a domain that a profile declares is at its high mark; unknown is not."""
    domains = [] if profile is None else domains_of(profile, policy, sample)
    return any(d.reading is not None and d.reading >= d.high for d in domains)


def believed_sample(soft: SoftState) -> HostSampled | None:
    """The newest sample, unless it is so old that it says nothing of now."""
    return None if stale_sample(soft) is not None else soft.sample


def begun_since_sample(soft: SoftState) -> int:
    """Attempts and plans that the newest sample cannot have seen yet."""
    return len(soft.begun_ms)


def note_sample(soft: SoftState, sample: HostSampled) -> None:
    """What began long enough before a sample is in it."""
    seen_ms = sample.sampled_at_mono_ms - IN_SAMPLE_MS
    for attempt, begun_ms in list(soft.begun_ms.items()):
        if begun_ms <= seen_ms:
            del soft.begun_ms[attempt]


def burst_limit(domains: Sequence[Domain], cpus: float | None) -> int:
    """How many attempts may begin on one sample: the free share of the cores, at least one."""
    readings = [(d.reading, d.high) for d in domains if d.reading is not None and d.high > 0]
    if not readings or cpus is None:
        return 1
    headroom = min((high - reading) / high for reading, high in readings)
    return max(1, math.ceil(cpus * headroom - 1e-9))


def pressure_words(domains: Sequence[Domain]) -> str:
    """`cpu 61 < 92   memory 48 < 95`."""
    told = []
    for domain in domains:
        if domain.reading is None:
            told.append(f"{domain.name} unknown")
            continue
        sign = "<" if domain.reading < domain.high else ">="
        told.append(f"{domain.name} {domain.reading:.0f} {sign} {domain.high:g}")
    return "   ".join(told) or "declares no domain"


def pressed_words(
    profile: Profile | None, policy: SchedulerPolicy, sample: HostSampled | None
) -> str:
    """`cpu pressure falls below 92 (now 97)`, for every domain at its high mark that the profile
    declares; else empty."""
    told = [
        f"{domain.name} pressure falls below {domain.high:g} (now {domain.reading:.0f})"
        for domain in (domains_of(profile, policy, sample) if profile is not None else ())
        if domain.reading is not None and domain.reading >= domain.high
    ]
    return " and ".join(told)


MARKS = {
    "pressure_cpu": ("cpu", "cpu_high_pct"),
    "pressure_memory": ("memory", "memory_high_pct"),
    "pressure_io": ("io", "io_pressure_high_pct"),
}
"""Blocker code -> its domain, and the contract's key of its high mark."""


def pressure_options(profile: str, blockers: Sequence[Blocker]) -> list[str]:
    """What of the contract makes a profile wait for the host's pressure."""
    return [
        f"{profile} waits for {MARKS[found.code][0]} because its pressure_domains name it; the "
        f"contract sets that, and the mark {MARKS[found.code][1]}: "
        "praxist-zmq config explain pressure_domains"
        for found in blockers
        if found.code in MARKS
    ]


def pressure_blockers(domains: Sequence[Domain], soft: SoftState) -> tuple[Blocker, ...]:
    """Every declared domain that refuses now, and the burst if one is under way."""
    found = [
        Blocker(
            code=domain.code,
            detail=f"{domain.name} pressure {domain.reading:.0f}, high mark {domain.high:g}",
            need=domain.high,
            free=max(0.0, domain.high - domain.reading),
            limit=domain.high,
            unit="percent_points",
        )
        for domain in domains
        if domain.reading is not None and domain.reading >= domain.high
    ]
    if found or not domains:
        return tuple(found)
    begun = begun_since_sample(soft)
    sample = believed_sample(soft)
    allowed = burst_limit(domains, sample.cpus if sample is not None else None)
    if begun < allowed:
        return ()
    tight = min(
        domains, key=lambda d: math.inf if d.reading is None else (d.high - d.reading) / d.high
    )
    verb = "attempt has" if begun == 1 else "attempts have"
    return (
        Blocker(
            code=tight.code,
            detail=f"{begun} {verb} begun since the last sample; {allowed} may at this pressure",
            need=1,
            free=max(0, allowed - begun),
            limit=allowed,
            unit="jobs",
        ),
    )
