"""May this job start now? One function admits, explains and fills `blockers` everywhere.

Run-wide gates first, then the gates of the job's lane. The seam of the next rules (host pressure,
the moving limit, per-peer cap, backfill) is `run_gates` and `lane_gates`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..protocol.claims import Envelope
from ..protocol.ids import attempt_id
from ..protocol.policy import Profile
from ..protocol.replies import Gate
from ..protocol.views import Blocker, BlockerCode
from .placement import choose
from .queue import Lane, lane_of
from .soft import Denial, SoftState
from .state import BrokerState, Job

COARSE = {
    "run_limit": "concurrency_limit",
    "host_limit": "concurrency_limit",
    "peer_cap": "per_peer_capacity",
    "probe_unknown": "accelerator_unknown",
    "probe_unavailable": "accelerator_unavailable",
}
"""Blocker code -> the original system's coarse word; the rest is resource_pressure_or_capacity."""
SILENCE_MAX_MS = 5_000
"""An answer takes milliseconds. After this long the registry counts as hung."""
NAMES_SHOWN = 5
NAME_SHOWN = 64
"""A submitter chooses the names of variables, and a blocker's detail has a bound."""


@dataclass(frozen=True, slots=True)
class Gates:
    """The outcome of some gates: all of them in words, and those that block."""

    told: tuple[tuple[str, bool, str], ...]
    """(name, whether it lets through, in words)"""
    blockers: tuple[Blocker, ...]
    envelope: Envelope | None = None

    @property
    def gates(self) -> tuple[Gate, ...]:
        """For `explain`; every turn admits, few explain, so they are made only here."""
        return tuple(
            Gate(name=name, state="ok" if ok else "blocked", detail=detail)
            for name, ok, detail in self.told
        )


def occupied(state: BrokerState, soft: SoftState) -> int:
    """Slots in use: attempts that hold an allocation, and plans under way."""
    return len(state.attempts) + len(soft.plans)


def concurrency_limit(state: BrokerState) -> int:
    """How many attempts may hold an allocation at once."""
    return state.policy.max_concurrent_experiments


def registry_silence(soft: SoftState) -> str | None:
    """In words, that the registry leaves a request unanswered for too long; else None."""
    silent_ms = soft.registry_silence_ms()
    if silent_ms < SILENCE_MAX_MS:
        return None
    return f"the host's claim registry has not answered for {silent_ms // 1000} s"


def run_gates(state: BrokerState, soft: SoftState) -> Gates:
    """The gates that are the same for every job of the run."""
    denial = soft.registry_denial
    return _run_gates(
        state.closed_reason or ("admission is held for a drain" if soft.held else None),
        soft.launcher_ready,
        soft.registry_ready,
        registry_silence(soft),
        None if denial is None else (denial.code, denial.detail),
        concurrency_limit(state),
        occupied(state, soft),
    )


# Asked once a submission and once a turn, and nearly always as before: 8 us each time.
@lru_cache(maxsize=64)
def _run_gates(
    closed: str | None,
    launcher_ready: bool,
    registry_ready: bool,
    silence: str | None,
    denial: tuple[str, str] | None,
    limit: int,
    used: int,
) -> Gates:
    told: list[tuple[str, bool, str]] = []
    blockers: list[Blocker] = []

    def gate(name: str, ok: bool, detail: str, code: BlockerCode, **numbers: Any) -> None:
        told.append((name, ok, detail))
        if not ok:
            blockers.append(Blocker(code=code, detail=detail, **numbers))

    gate("admission", closed is None, closed or "open", "admission_closed")
    away = [
        name
        for name, ready in (("launcher", launcher_ready), ("registry", registry_ready))
        if not ready
    ]
    text = f"waiting for the {' and the '.join(away)}" if away else "launcher and registry answer"
    if silence is not None:
        text = f"{text}; {silence}" if away else silence
    gate("recovery", not away and silence is None, text, "recovery_pending")
    if denial is not None:
        denial_code, detail = denial
        code: BlockerCode = "host_limit" if denial_code == "busy" else "registry_refused"
        gate("registry", False, f"the host's registry said: {detail}", code)
    text = f"{used} of {limit} running"
    gate(
        "run limit",
        used < limit,
        text,
        "run_limit",
        need=1,
        free=max(0, limit - used),
        limit=limit,
        unit="jobs",
    )
    return Gates(tuple(told), tuple(blockers))


def lane_gates(profile: Profile | None, state: BrokerState, soft: SoftState) -> Gates:
    """The gates that are the same for every job of a lane."""
    if profile is None:
        detail = "the contract in force does not declare its profile"
        blocker = Blocker(code="profile_undeclared", detail=detail)
        return Gates((("devices", False, blocker.detail),), (blocker,))
    placement = choose(profile, state, soft)
    if placement.envelope is None:
        detail = "; ".join(blocker.detail for blocker in placement.blockers)
        return Gates((("devices", False, detail),), placement.blockers)
    uuids = placement.envelope.device_uuids
    detail = f"{', '.join(uuids)} free" if uuids else "needs none"
    return Gates((("devices", True, detail),), (), placement.envelope)


def credential_blocker(names: list[str]) -> Blocker:
    """The blocker of a job whose secrets did not survive a restart."""
    shown = ", ".join(name[:NAME_SHOWN] for name in names[:NAMES_SHOWN])
    if len(names) > NAMES_SHOWN:
        shown += f" and {len(names) - NAMES_SHOWN} more"
    return Blocker(
        code="credentials_missing",
        detail=f"credential values are not in memory: {shown}; send the same request again",
    )


def denial_blocker(denial: Denial) -> Blocker:
    """The blocker of a job for which the registry committed no plan."""
    detail = f"the host's registry said: {denial.detail}"
    return Blocker(code="registry_refused", detail=detail)


class BlockerTable:
    """The blockers of every waiting job at one moment, worked out once a lane."""

    def __init__(self, state: BrokerState, soft: SoftState) -> None:
        self._state = state
        self._soft = soft
        self._run = run_gates(state, soft).blockers
        self._lanes: dict[Lane, tuple[Blocker, ...]] = {}

    def of(self, job: Job) -> tuple[Blocker, ...]:
        """Every blocker of one queued job; empty when it is being started."""
        if attempt_id(job.job, job.attempt_counter + 1) in self._soft.plans:
            # Its registry was asked. The one gate that can hold it now is that nobody answers.
            return tuple(b for b in self._run if b.code == "recovery_pending")
        lane = lane_of(job)
        found = self._lanes.get(lane)
        if found is None:
            profile = self._state.policy.profiles.get(job.profile)
            found = self._run + lane_gates(profile, self._state, self._soft).blockers
            self._lanes[lane] = found
        denial = self._soft.held_back.get(job.job)
        if denial is not None:
            return (*self._run, denial_blocker(denial))
        if not found and self._soft.queue.head(lane) != job.job:
            return (Blocker(code="queue_order", detail="older jobs of its kind go first"),)
        return found


def coarse_reason(blockers: tuple[Blocker, ...]) -> str | None:
    """The original system's word for why a job waits."""
    if not blockers:
        return None
    return COARSE.get(blockers[0].code, "resource_pressure_or_capacity")
