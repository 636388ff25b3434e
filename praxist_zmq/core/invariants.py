"""What must hold at every moment, over the state and separately over the ledger's history.

A duplicated job passes every test of the state; only the history shows it. So both are checked,
in property tests after every step and in service after every recovery.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..protocol import events as ev
from ..protocol.ids import job_of
from .evolve import FREED_BY_RERUN
from .state import JOB_STATES, BrokerState


def check_state(state: BrokerState) -> list[str]:
    """Every fault found in a state, in words. Empty when it is sound."""
    faults: list[str] = []
    counts = dict.fromkeys(JOB_STATES, 0)
    running: set[str] = set()
    users: dict[str, int] = {}
    for job in state.jobs.values():
        counts[job.state] += 1
        attempt = state.live_attempt(job)
        if job.state == "running":
            running.add(job.job)
            if attempt is None:
                faults.append(f"{job.job} is running without an allocation")
        elif attempt is not None and attempt.phase != "exited":
            faults.append(f"{job.job} is {job.state} and holds {attempt.attempt}")
        if job.state in ("queued", "running"):
            users[job.environment_id] = users.get(job.environment_id, 0) + 1
            if state.identities.get(job.identity) != job.job:
                faults.append(f"{job.job} is live but its identity is not its own")
    if counts != state.counts:
        faults.append(f"counts are {state.counts}, jobs are {counts}")
    for attempt in state.attempts.values():
        if attempt.job not in running and attempt.phase != "exited":
            faults.append(f"{attempt.attempt} holds an allocation, its job is not running")
        if attempt.phase in ("bound", "running") and attempt.shim is None:
            faults.append(f"{attempt.attempt} is {attempt.phase} without a shim")
    faults.extend(_check_devices(state))
    faults.extend(_check_indexes(state))
    faults.extend(_check_generations(state))
    for key, recorded in state.environments.items():
        if recorded.users != users.pop(key, 0):
            faults.append(f"environment {key[:12]} has a wrong number of users")
    faults.extend(f"environment {key[:12]} is missing" for key in users)
    return faults


def _check_devices(state: BrokerState) -> Iterable[str]:
    held: dict[str, set[str]] = {}
    for attempt in state.attempts.values():
        for uuid in attempt.device_uuids:
            held.setdefault(uuid, set()).add(attempt.attempt)
    if held != state.device_holders:
        yield "device holders do not follow from the attempts"
    for uuid, names in held.items():
        if len(names) > 1 and any(state.attempts[name].exclusive for name in names):
            yield f"device {uuid} is exclusive and held by {sorted(names)}"


def _check_indexes(state: BrokerState) -> Iterable[str]:
    peers: dict[str, int] = {}
    for attempt in state.attempts.values():
        peer = state.jobs[attempt.job].peer
        peers[peer] = peers.get(peer, 0) + 1
    if peers != state.peers_running:
        yield f"peers run {state.peers_running}, attempts are {peers}"
    policy = state.policy
    low, high = policy.min_concurrent_experiments, policy.max_concurrent_experiments
    if not low <= state.limit <= high:
        yield f"the limit is {state.limit}, outside {low} to {high}"


def _check_generations(state: BrokerState) -> Iterable[str]:
    counts = {number: dict.fromkeys(JOB_STATES, 0) for number in state.generations}
    mature: dict[int, set[str]] = {}
    for job in state.jobs.values():
        if job.generation not in counts:
            yield f"{job.job} is of generation {job.generation}, which is not there"
            continue
        counts[job.generation][job.state] += 1
        if job.work_class == "mature" and job.state in ("queued", "running"):
            mature.setdefault(job.generation, set()).add(job.job)
    for number, found in state.generations.items():
        if found.counts != counts[number]:
            yield f"generation {number} counts {found.counts}, its jobs are {counts[number]}"
        if set(state.mature_open.get(number, {})) != mature.get(number, set()):
            yield f"the mature work of generation {number} is not what is indexed"


class _Lives:
    """Generations in a history: which are frozen, and which tags a rerun frees."""

    def __init__(self) -> None:
        self._frozen: set[int] = set()
        self._generation_of: dict[str, int] = {}
        self._refused: dict[str, str] = {}

    def see(self, event: Any) -> Iterable[str]:
        """Faults of one event."""
        match event:
            case ev.JobQueued():
                self._generation_of[event.job] = event.generation
                yield from self._check(event.job, "queued")
            case ev.JobRetried():
                self._refused.pop(event.job, None)
                yield from self._check(event.job, "retried")
            case ev.AttemptAllocated():
                yield from self._check(event.job, "given an allocation")
            case ev.JobRejected():
                self._refused[event.job] = event.code
            case ev.GenerationFrozen():
                self._frozen.add(event.generation)
            case ev.GenerationOpened():
                self._frozen.discard(event.generation)

    def _check(self, job: str, what: str) -> Iterable[str]:
        if self._generation_of.get(job) in self._frozen:
            yield f"{job} was {what} after its generation was frozen"

    def freed(self, event: Any) -> list[str]:
        """The jobs whose tags an event gives back."""
        if not isinstance(event, ev.GenerationOpened) or not event.rerun:
            return []
        return [
            job
            for job, code in self._refused.items()
            if code in FREED_BY_RERUN and self._generation_of.get(job) == event.generation
        ]


def check_history(events: Iterable[Any]) -> list[str]:
    """Every fault found in a ledger's history, in words."""
    faults: list[str] = []
    queued: dict[str, str] = {}
    ended: dict[str, int] = {}
    revived: dict[str, int] = {}
    live: dict[str, str] = {}
    launched: set[str] = set()
    seen: set[str] = set()
    identities: dict[str, str] = {}
    lives = _Lives()
    for event in events:
        faults.extend(lives.see(event))
        for job in lives.freed(event):
            if identities.get(queued[job]) == job:
                del identities[queued[job]]
        if isinstance(event, ev.JobQueued):
            if event.job in queued:
                faults.append(f"{event.job} was queued twice")
            if event.identity in identities:
                faults.append(f"identity of {event.job} already is {identities[event.identity]}")
            queued[event.job] = event.identity
            identities[event.identity] = event.job
        elif isinstance(event, ev.JobRetried):
            revived[event.job] = revived.get(event.job, 0) + 1
            identities[queued.get(event.job, "?")] = event.job
        elif isinstance(event, ev.AttemptAllocated):
            if event.attempt in seen:
                faults.append(f"{event.attempt} was allocated twice")
            if event.job in live.values():
                faults.append(f"{event.job} has two live attempts")
            seen.add(event.attempt)
            live[event.attempt] = event.job
        elif isinstance(event, ev.AttemptLaunched):
            if event.attempt in launched:
                faults.append(f"{event.attempt} was launched twice")
            if event.attempt not in live:
                faults.append(f"{event.attempt} was launched without an allocation")
            launched.add(event.attempt)
        elif isinstance(event, ev.AllocationReleased):
            if live.pop(event.attempt, None) is None:
                faults.append(f"{event.attempt} was released twice or never held")
        elif isinstance(event, ev.JobFinished | ev.JobRejected):
            ended[event.job] = ended.get(event.job, 0) + 1
            if ended[event.job] > 1 + revived.get(event.job, 0):
                faults.append(f"{event.job} ended twice")
            if isinstance(event, ev.JobRejected) and event.frees_identity:
                identities.pop(queued.get(event.job, "?"), None)
            if isinstance(event, ev.JobFinished) and job_of(event.attempt) != event.job:
                faults.append(f"{event.job} ended through {event.attempt}")
    return faults
