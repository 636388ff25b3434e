"""May this job start now? One function admits, explains and fills `blockers` everywhere.

Run-wide gates first, then those that all jobs of one profile share, then the job's own.
Sources: seed 000 (admission), design 5, the closed list of blocker codes in the reference of
`explain`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..protocol.claims import DeviceFacts, Envelope
from ..protocol.replies import Gate
from ..protocol.views import Blocker, BlockerCode
from .concurrency import occupied
from .pauses import pause_blocker
from .placement import Placement, choose
from .pressure import Domain, believed_sample, domains_of, pressure_blockers, pressure_words
from .queue import lane_of
from .reservation import newcomer
from .slots import at_cap, host_slots, planned_by_peer, running_of
from .slots_kept import (
    SlotsKept,
    going_first,
    keep_slots,
    kept_blocker,
    look_missing,
    starts_after_look,
)
from .soft import Denial, SoftState
from .start_gate import disk_blocker, disk_words, shortage_words
from .state import BrokerState, Job
from .storm import profile_pause
from .survey import ANYONE

COARSE = {
    "run_limit": "concurrency_limit",
    "host_limit": "concurrency_limit",
    "peer_cap": "per_peer_capacity",
    "probe_unknown": "accelerator_unknown",
    "probe_unavailable": "accelerator_unavailable",
}
"""Blocker code -> the original system's coarse word; the rest is resource_pressure_or_capacity."""
SLOW_ANSWER_MS = 500
"""From here on an answer of the registry's is late: a job that waits for it says so."""
SILENCE_MAX_MS = 5_000
"""An answer takes milliseconds. After this long the registry counts as hung."""
FENCED = "the run's shutdown sentinel, ORCHESTRATOR_SHUTDOWN, is there"
ALL_FROZEN = "every generation was frozen"
HELD = "admission is held for a drain"
_ENDS_CLOSURE = {
    FENCED: "running jobs go on; an operator removes that file, and the run takes work again",
    ALL_FROZEN: "running jobs go on; an operator opens a generation with "
    "`praxist-zmq generation open N`, and the run takes work again",
}
"""What ends a closure that a start of the scheduler does not end."""
NAMES_SHOWN = 5
NAME_SHOWN = 64
"""A submitter chooses the names of variables, and a blocker's detail has a bound."""


@dataclass(frozen=True, slots=True)
class Gates:
    """The outcome of some gates: all of them in words, and those that block."""

    told: tuple[tuple[str, bool, str], ...]
    """(name, whether it lets through, in words)"""
    blockers: tuple[Blocker, ...]

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


def unanswered(soft: SoftState) -> tuple[Blocker, ...]:
    """Of a job whose place was asked for: that the answer is late, or none."""
    silent_ms = soft.registry_silence_ms()
    if silent_ms < SLOW_ANSWER_MS:
        return ()
    waited = f"{silent_ms / 1000:.1f} s ago"
    detail = f"the host's claim registry was asked for its place {waited} and has not answered"
    return (Blocker(code="recovery_pending", detail=detail),)


def run_gates(state: BrokerState, soft: SoftState) -> Gates:
    """The gates that are the same for every job of the run."""
    denial = soft.registry_denial
    return _run_gates(
        halted_words(state, soft),
        soft.launcher_ready,
        soft.registry_ready,
        registry_silence(soft),
        _disk(soft),
        shortage_words(soft),
        None if denial is None else (denial.code, denial.detail),
        (state.limit, occupied(state, soft), *limit_range(state)),
        host_slots(state, soft),
    )


def _disk(soft: SoftState) -> Blocker | None:
    words = disk_words(soft)
    return None if words is None else disk_blocker(words, soft)


def closed_words(state: BrokerState, soft: SoftState) -> str | None:
    """Why the run takes and starts nothing; None when it does."""
    return state.closed_reason or (FENCED if soft.fenced else None)


def closed_help(closed: str) -> list[str]:
    """What ends such a closure, where that is not `up`."""
    return [_ENDS_CLOSURE[closed]] if closed in _ENDS_CLOSURE else []


def halted_words(state: BrokerState, soft: SoftState) -> str | None:
    """Why the run starts nothing, though it may take work; None when it does."""
    return closed_words(state, soft) or (HELD if soft.held else None)


def limit_range(state: BrokerState) -> tuple[int, int]:
    """The contract's bounds of the limit."""
    policy = state.policy
    return policy.min_concurrent_experiments, policy.max_concurrent_experiments


# Asked once a submission and once a turn, and nearly always as before: 8 us each time.
@lru_cache(maxsize=64)
def _run_gates(
    closed: str | None,
    launcher_ready: bool,
    registry_ready: bool,
    silence: str | None,
    disk: Blocker | None,
    shortage: str | None,
    denial: tuple[str, str] | None,
    slots: tuple[int, int, int, int],
    host: tuple[int, int, int, int] | None,
) -> Gates:
    told = _Told()
    told.gate("admission", closed is None, closed or "open", "admission_closed")
    away = [
        name
        for name, ready in (("launcher", launcher_ready), ("registry", registry_ready))
        if not ready
    ]
    text = f"waiting for the {' and the '.join(away)}" if away else "launcher and registry answer"
    if silence is not None:
        text = f"{text}; {silence}" if away else silence
    told.gate("recovery", not away and silence is None, text, "recovery_pending")
    told.blocked_by("disk", () if disk is None else (disk,), "there is room on the run's disk")
    told.gate("host", shortage is None, shortage or "lacks nothing a start needs", "host_shortage")
    if denial is not None:
        code, detail = denial
        other: BlockerCode = "host_limit" if code == "busy" else "registry_refused"
        text = f"the host's registry said: {detail}"
        told.gate("registry", False, text, denial_code(code, other))
    limit, used, low, high = slots
    moves = "" if low == high else f" (adaptive, range {low}-{high})"
    text = f"{used} of {limit} running{moves}"
    free = max(0, limit - used)
    told.gate("run limit", used < limit, text, "run_limit", need=1, free=free, limit=limit,
              unit="jobs")  # fmt: skip
    if host is not None:
        _host_gate(told, *host)
    return told.gates()


def _host_gate(told: _Told, used: int, limit: int, runs: int, waiting: int) -> None:
    free = limit - used
    text = f"{used} of {limit} slots used by {runs} run{'' if runs == 1 else 's'}"
    numbers = {"need": 1, "free": max(0, free), "limit": limit, "unit": "jobs"}
    if 0 < free <= waiting:
        text += f"; {free} free, for {waiting} run{'' if waiting == 1 else 's'} with fewer"
        told.gate("host limit", False, text, "fair_share", **numbers)
        return
    told.gate("host limit", free > 0, text, "host_limit", **numbers)


@dataclass(frozen=True, slots=True)
class ProfileGates:
    """The outcome of the gates that a profile brings with it. Words are made only for readers:
    every turn admits, few explain."""

    domains: tuple[Domain, ...]
    pressure: tuple[Blocker, ...]
    placement: Placement
    pause: Blocker | None = None
    """That the profile rests for a storm."""

    @property
    def envelope(self) -> Envelope | None:
        """Where an attempt could go now; None when something blocks."""
        return None if self.held else self.placement.envelope

    @property
    def facts(self) -> tuple[DeviceFacts, ...]:
        """What was seen of its devices."""
        return self.placement.facts

    @property
    def blockers(self) -> tuple[Blocker, ...]:
        """All that blocks."""
        paused = () if self.pause is None else (self.pause,)
        return self.pressure + paused + self.placement.blockers

    @property
    def held(self) -> bool:
        """Whether it may not start wherever there is room."""
        return bool(self.pressure) or self.pause is not None

    @property
    def waits_only_for_devices(self) -> bool:
        """Whether nothing but room on known devices is missing."""
        return not self.held and bool(self.placement.looks)

    @property
    def may_wait_for_a_sample(self) -> bool:
        """Whether a fresh look at the host may be all that is missing."""
        return self.pause is None and (bool(self.pressure) or self.placement.settling)

    def starts_after_look(self, soft: SoftState) -> int:
        """How many attempts wait for the next look at the host and nothing else."""
        if self.pause is not None:
            return 0
        return starts_after_look(self.pressure, self.placement, soft)

    @property
    def only_pressed(self) -> bool:
        """Whether nothing but a kind of host pressure at its high mark is in the way."""
        high = any(blocker.unit != "jobs" for blocker in self.pressure)
        return high and self.pause is None and self.placement.envelope is not None

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Every gate in words."""
        told = _Told()
        told.blocked_by("pressure", self.pressure, pressure_words(self.domains))
        paused = () if self.pause is None else (self.pause,)
        told.blocked_by("pause", paused, "no storm of attempts that end with 75")
        envelope = self.placement.envelope
        uuids = envelope.device_uuids if envelope is not None else ()
        told.blocked_by("devices", self.placement.blockers, ", ".join(uuids) or "needs none")
        return told.gates().gates


UNDECLARED = ProfileGates(
    (),
    (),
    Placement(
        None,
        unknown=Blocker(
            code="profile_undeclared", detail="the contract in force does not declare its profile"
        ),
    ),
)


def profile_gates(name: str, job: Job | None, state: BrokerState, soft: SoftState) -> ProfileGates:
    """The gates that a profile brings with it. `job`: who asks, for its declared run time."""
    profile = state.policy.profiles.get(name)
    if profile is None:
        return UNDECLARED
    domains = tuple(domains_of(profile, state.policy, believed_sample(soft)))
    asker = ANYONE if job is None or not soft.fleet.places else newcomer(job, state, soft)
    return ProfileGates(
        domains,
        pressure_blockers(domains, soft),
        choose(profile, state, soft, asker),
        profile_pause(name, soft),
    )


def peer_blocker(job: Job, state: BrokerState, planned: dict[str, int]) -> Blocker | None:
    """Why a job's peer may not have one more running; None when it may."""
    if not at_cap(job.peer, state, planned):
        return None
    cap = state.policy.max_parallel_runs_per_peer
    running = running_of(job.peer, state, planned)
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


def denial_code(code: str, other: BlockerCode = "registry_refused") -> BlockerCode:
    """The blocker code of what the registry said."""
    known: dict[str, BlockerCode] = {"host_limit": "host_limit", "fair_share": "fair_share"}
    return known.get(code, other)


def denial_blocker(denial: Denial) -> Blocker:
    """The blocker of a job for which the registry committed no plan."""
    detail = f"the host's registry said: {denial.detail}"
    return Blocker(code=denial_code(denial.code), detail=detail)


def spokesman(job: Job, state: BrokerState, soft: SoftState) -> Job:
    """Whose gates hold a queued job. Of a lane only the head is looked at, so what holds it holds
    them all; the job for which devices are kept is looked at before any lane. A job that is not
    queued yet would be the head of an empty lane."""
    if soft.reservation is not None and soft.reservation.job == job.job:
        return job
    head = soft.queue.head(lane_of(job))
    return job if head is None else state.jobs[head]


class BlockerTable:
    """The blockers of every waiting job at one moment, worked out once for those that are alike."""

    def __init__(self, state: BrokerState, soft: SoftState) -> None:
        self._state = state
        self._soft = soft
        self._run = run_gates(state, soft).blockers
        self._gates: dict[str, ProfileGates] = {}
        self._planned = planned_by_peer(state, soft)
        self._asked = {plan.job for plan in soft.plans.values()}

    def of(self, job: Job) -> tuple[Blocker, ...]:
        """Every blocker of one queued job; empty when it is being started."""
        if job.job in self._asked:
            # Its registry was asked. The one gate that can hold it now is that nobody answers.
            away = tuple(b for b in self._run if b.code == "recovery_pending")
            return away or unanswered(self._soft)
        pause = self._soft.pauses.get(job.job)
        if pause is not None:
            return (*self._run, pause_blocker(pause, self._soft))
        denial = self._soft.held_back.get(job.job)
        if denial is not None:
            return (*self._run, denial_blocker(denial))
        capped = peer_blocker(job, self._state, self._planned)
        asked = spokesman(job, self._state, self._soft)
        found = self._run + self._gates_of(asked).blockers
        if capped is not None:
            return (*found, capped)
        if found:
            return found
        if asked is not job:
            return (Blocker(code="queue_order", detail="older jobs of its kind go first"),)
        kept = self._kept_before(job)
        return () if kept is None else (kept,)

    def _gates_of(self, asked: Job) -> ProfileGates:
        found = self._gates.get(asked.job)
        if found is None:
            found = profile_gates(asked.profile, asked, self._state, self._soft)
            self._gates[asked.job] = found
        return found

    def _kept_before(self, job: Job) -> Blocker | None:
        """That the slot it could take is kept for who goes first, as `plan` has it."""
        state, soft = self._state, self._soft
        kept = SlotsKept()
        if not look_missing(soft):
            return None
        for lane, first in going_first(state, soft):
            if first == job.job:
                break
            count = self._gates_of(state.jobs[first]).starts_after_look(soft)
            keep_slots(kept, lane, first, count, state, soft)
        return kept_blocker(kept, job, state, soft)


def coarse_reason(blockers: tuple[Blocker, ...]) -> str | None:
    """The original system's word for why a job waits."""
    if not blockers:
        return None
    return COARSE.get(blockers[0].code, "resource_pressure_or_capacity")
