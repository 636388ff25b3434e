"""May this job start now? One function admits, explains and fills `blockers` everywhere.

Run-wide gates first, then those that all jobs of one profile share, then the job's own.
Sources: seed 000 (admission), design 5, the closed list of blocker codes in the reference of
`explain`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..protocol.claims import DeviceFacts, Envelope
from ..protocol.ids import attempt_id
from ..protocol.policy import Profile
from ..protocol.replies import Gate
from ..protocol.views import Blocker, BlockerCode
from .concurrency import occupied
from .placement import ANYONE, Placement, choose, probe_blocker
from .pressure import domains_of, pressure_blockers, pressure_words
from .queue import lane_of
from .reservation import newcomer
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
    facts: tuple[DeviceFacts, ...] = ()

    @property
    def gates(self) -> tuple[Gate, ...]:
        """For `explain`; every turn admits, few explain, so they are made only here."""
        return tuple(
            Gate(name=name, state="ok" if ok else "blocked", detail=detail)
            for name, ok, detail in self.told
        )


class _Told:
    """Collects the outcome of gates."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bool, str]] = []
        self.blockers: list[Blocker] = []

    def gate(self, name: str, ok: bool, detail: str, code: BlockerCode, **numbers: Any) -> None:
        self.told.append((name, ok, detail))
        if not ok:
            self.blockers.append(Blocker(code=code, detail=detail, **numbers))

    def blocked_by(self, name: str, blockers: tuple[Blocker, ...], ok_words: str) -> None:
        words = "; ".join(blocker.detail for blocker in blockers)
        self.told.append((name, not blockers, words or ok_words))
        self.blockers.extend(blockers)

    def gates(self) -> Gates:
        return Gates(tuple(self.told), tuple(self.blockers))


def registry_silence(soft: SoftState) -> str | None:
    """In words, that the registry leaves a request unanswered for too long; else None."""
    silent_ms = soft.registry_silence_ms()
    if silent_ms < SILENCE_MAX_MS:
        return None
    return f"the host's claim registry has not answered for {silent_ms // 1000} s"


def run_gates(state: BrokerState, soft: SoftState) -> Gates:
    """The gates that are the same for every job of the run."""
    told = _Told()
    reason = state.closed_reason or ("admission is held for a drain" if soft.held else None)
    told.gate("admission", reason is None, reason or "open", "admission_closed")
    away = [
        name
        for name, ready in (("launcher", soft.launcher_ready), ("registry", soft.registry_ready))
        if not ready
    ]
    text = f"waiting for the {' and the '.join(away)}" if away else "launcher and registry answer"
    silence = registry_silence(soft)
    if silence is not None:
        text = f"{text}; {silence}" if away else silence
    told.gate("recovery", not away and silence is None, text, "recovery_pending")
    denial = soft.registry_denial
    if denial is not None:
        code = denial_code(denial, "host_limit" if denial.code == "busy" else "registry_refused")
        told.gate("registry", False, f"the host's registry said: {denial.detail}", code)
    limit, used = state.limit, occupied(state, soft)
    told.gate(
        "run limit",
        used < limit,
        _limit_words(state, used),
        "run_limit",
        need=1,
        free=max(0, limit - used),
        limit=limit,
        unit="jobs",
    )
    _host_gate(told, state, soft)
    return told.gates()


def _limit_words(state: BrokerState, used: int) -> str:
    low, high = (
        state.policy.min_concurrent_experiments,
        state.policy.max_concurrent_experiments,
    )
    moves = "" if low == high else f" (adaptive, range {low}-{high})"
    return f"{used} of {state.limit} running{moves}"


def _host_gate(told: _Told, state: BrokerState, soft: SoftState) -> None:
    view = soft.host_view
    if view is None or not view.limit or (len(view.runs) < 2 and not soft.others_hold):
        return
    ours = occupied(state, soft)
    used = soft.others_hold + ours
    waiting = [
        run
        for run in view.wants
        if run.want.slot and run.run_key != soft.run_key and run.held < ours
    ]
    free = view.limit - used
    runs = len(view.runs)
    text = f"{used} of {view.limit} slots used by {runs} run{'' if runs == 1 else 's'}"
    numbers = {"need": 1, "free": max(0, free), "limit": view.limit, "unit": "jobs"}
    if 0 < free <= len(waiting):
        text += f"; {free} free, for {len(waiting)} run(s) that hold fewer and wait"
        told.gate("host limit", False, text, "fair_share", **numbers)
        return
    told.gate("host limit", free > 0, text, "host_limit", **numbers)


def profile_gates(
    profile: Profile | None, job: Job | None, state: BrokerState, soft: SoftState
) -> Gates:
    """The gates that a profile brings with it. `job`: who asks, for its declared run time."""
    if profile is None:
        detail = "the contract in force does not declare its profile"
        blocker = Blocker(code="profile_undeclared", detail=detail)
        return Gates((("devices", False, blocker.detail),), (blocker,))
    told = _Told()
    domains = domains_of(profile, state.policy, soft.sample)
    told.blocked_by("pressure", pressure_blockers(domains, soft), pressure_words(domains))
    placement = _placement(profile, job, state, soft)
    uuids = placement.envelope.device_uuids if placement.envelope is not None else ()
    told.blocked_by("devices", placement.blockers, f"{', '.join(uuids)}" if uuids else "needs none")
    gates = told.gates()
    if gates.blockers:
        return gates
    return Gates(gates.told, (), placement.envelope, placement.facts)


def _placement(profile: Profile, job: Job | None, state: BrokerState, soft: SoftState) -> Placement:
    """Where an attempt of the profile could go now. Worked out again when the devices changed:
    a turn that changes nothing on them costs nothing here."""
    if profile.accelerator == "cpu":
        return choose(profile, state, soft)
    unknown = probe_blocker(soft)
    if unknown is not None:
        return Placement(None, (unknown,))
    if soft.fleet.places:
        # Whose place it is and who may pass it depends on the job.
        return choose(profile, state, soft, newcomer(job, state, soft) if job else ANYONE)
    if soft.placements_version != soft.fleet.version:
        soft.placements.clear()
        soft.placements_version = soft.fleet.version
    found = soft.placements.get(id(profile))
    if found is None:
        found = soft.placements[id(profile)] = choose(profile, state, soft)
    return found


def planned_by_peer(state: BrokerState, soft: SoftState) -> dict[str, int]:
    """Plans under way by peer: what they stand for counts as running."""
    planned: dict[str, int] = {}
    for plan in soft.plans.values():
        peer = state.jobs[plan.job].peer
        planned[peer] = planned.get(peer, 0) + 1
    return planned


def peer_blocker(job: Job, state: BrokerState, planned: dict[str, int]) -> Blocker | None:
    """Why a job's peer may not have one more running; None when it may."""
    cap = state.policy.max_parallel_runs_per_peer
    running = state.peers_running.get(job.peer, 0) + planned.get(job.peer, 0)
    if cap is None or running < cap:
        return None
    return Blocker(
        code="peer_cap",
        detail=f"{job.peer} runs {running} of {cap}",
        need=1,
        free=0,
        limit=cap,
        unit="jobs",
    )


def credential_blocker(names: list[str]) -> Blocker:
    """The blocker of a job whose secrets did not survive a restart."""
    shown = ", ".join(name[:NAME_SHOWN] for name in names[:NAMES_SHOWN])
    if len(names) > NAMES_SHOWN:
        shown += f" and {len(names) - NAMES_SHOWN} more"
    return Blocker(
        code="credentials_missing",
        detail=f"credential values are not in memory: {shown}; send the same request again",
    )


def denial_code(denial: Denial, other: BlockerCode = "registry_refused") -> BlockerCode:
    """The blocker code of what the registry said."""
    known: dict[str, BlockerCode] = {"host_limit": "host_limit", "fair_share": "fair_share"}
    return known.get(denial.code, other)


def denial_blocker(denial: Denial) -> Blocker:
    """The blocker of a job for which the registry committed no plan."""
    detail = f"the host's registry said: {denial.detail}"
    return Blocker(code=denial_code(denial), detail=detail)


def spokesman(job: Job, state: BrokerState, soft: SoftState) -> Job:
    """Whose gates hold a queued job. Of a lane only the head is looked at, so what holds it holds
    them all; the job for which devices are kept is looked at before any lane. A job that is not
    queued yet would be the head of an empty lane."""
    if soft.reservation is not None and soft.reservation.job == job.job:
        return job
    head = soft.queue.head(lane_of(job))
    return job if head is None else state.jobs[head]


class BlockerTable:
    """The blockers of every waiting job at one moment, worked out once a lane."""

    def __init__(self, state: BrokerState, soft: SoftState) -> None:
        self._state = state
        self._soft = soft
        self._run = run_gates(state, soft).blockers
        self._asked: dict[str, tuple[Blocker, ...]] = {}
        self._planned = planned_by_peer(state, soft)

    def of(self, job: Job) -> tuple[Blocker, ...]:
        """Every blocker of one queued job; empty when it is being started."""
        if attempt_id(job.job, job.attempt_counter + 1) in self._soft.plans:
            # Its registry was asked. The one gate that can hold it now is that nobody answers.
            return tuple(b for b in self._run if b.code == "recovery_pending")
        denial = self._soft.held_back.get(job.job)
        if denial is not None:
            return (*self._run, denial_blocker(denial))
        capped = peer_blocker(job, self._state, self._planned)
        asked = spokesman(job, self._state, self._soft)
        found = self._asked.get(asked.job)
        if found is None:
            profile = self._state.policy.profiles.get(asked.profile)
            found = self._run + profile_gates(profile, asked, self._state, self._soft).blockers
            self._asked[asked.job] = found
        if capped is not None:
            return (*found, capped)
        if not found and asked is not job:
            return (Blocker(code="queue_order", detail="older jobs of its kind go first"),)
        return found


def coarse_reason(blockers: tuple[Blocker, ...]) -> str | None:
    """The original system's word for why a job waits."""
    if not blockers:
        return None
    return COARSE.get(blockers[0].code, "resource_pressure_or_capacity")
