"""What must hold at every moment, over the state and separately over the ledger's history.

A duplicated job passes every test of the state; only the history shows it. So both are checked,
in property tests after every step and in service after every recovery.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..protocol import events as ev
from ..protocol.ids import job_of
from .generation_invariants import GenerationHistory
from .lease_invariants import LeaseHistory, check_leases, check_leases_at_rest
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
    faults.extend(check_leases(state))
    for key, recorded in state.environments.items():
        if recorded.users != users.pop(key, 0):
            faults.append(f"environment {key[:12]} has a wrong number of users")
    faults.extend(f"environment {key[:12]} is missing" for key in users)
    return faults


def check_at_rest(state: BrokerState) -> list[str]:
    """`check_state`, and what must hold besides between two turns of the broker."""
    return [*check_state(state), *check_leases_at_rest(state)]


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


class _Jobs:
    """Jobs and attempts in a history, as far as their order tells of faults."""

    def __init__(self, base: BrokerState | None) -> None:
        self.live: dict[str, str] = {}
        """Attempt that holds an allocation -> its job."""
        self._queued: dict[str, str] = {}
        self._ended: dict[str, int] = {}
        self._revived: dict[str, int] = {}
        self._launched: set[str] = set()
        self._seen: set[str] = set()
        self._identities: dict[str, str] = {}
        if base is not None:
            self._take(base)

    def _take(self, base: BrokerState) -> None:
        self._queued = {job.job: job.identity for job in base.jobs.values()}
        self._ended = {
            job.job: 1 for job in base.jobs.values() if job.state not in ("queued", "running")
        }
        self._identities = dict(base.identities)
        for name, attempt in base.attempts.items():
            self.live[name] = attempt.job
            self._seen.add(name)
            if attempt.launched_at_ms is not None:
                self._launched.add(name)

    def free(self, jobs: Iterable[str]) -> None:
        """A rerun gives back the tags of these."""
        for job in jobs:
            identity = self._queued.get(job, "?")
            if self._identities.get(identity) == job:
                del self._identities[identity]

    def see(self, event: Any) -> Iterable[str]:
        """Faults of one event."""
        match event:
            case ev.JobQueued():
                if event.job in self._queued:
                    yield f"{event.job} was queued twice"
                if event.identity in self._identities:
                    yield f"identity of {event.job} already is {self._identities[event.identity]}"
                self._queued[event.job] = event.identity
                self._identities[event.identity] = event.job
            case ev.JobRetried():
                self._revived[event.job] = self._revived.get(event.job, 0) + 1
                self._identities[self._queued.get(event.job, "?")] = event.job
            case ev.AttemptAllocated():
                if event.attempt in self._seen:
                    yield f"{event.attempt} was allocated twice"
                if event.job in self.live.values():
                    yield f"{event.job} has two live attempts"
                self._seen.add(event.attempt)
                self.live[event.attempt] = event.job
            case ev.AttemptLaunched():
                if event.attempt in self._launched:
                    yield f"{event.attempt} was launched twice"
                if event.attempt not in self.live:
                    yield f"{event.attempt} was launched without an allocation"
                self._launched.add(event.attempt)
            case ev.AllocationReleased():
                if self.live.pop(event.attempt, None) is None:
                    yield f"{event.attempt} was released twice or never held"
            case ev.JobFinished() | ev.JobRejected():
                yield from self._over(event)

    def _over(self, event: ev.JobFinished | ev.JobRejected) -> Iterable[str]:
        self._ended[event.job] = self._ended.get(event.job, 0) + 1
        if self._ended[event.job] > 1 + self._revived.get(event.job, 0):
            yield f"{event.job} ended twice"
        if isinstance(event, ev.JobRejected) and event.frees_identity:
            self._identities.pop(self._queued.get(event.job, "?"), None)
        if isinstance(event, ev.JobFinished) and job_of(event.attempt) != event.job:
            yield f"{event.job} ended through {event.attempt}"


def check_history(events: Iterable[Any], base: BrokerState | None = None) -> list[str]:
    """Every fault found in a ledger's history, in words; `base` is what a snapshot stands for."""
    faults: list[str] = []
    jobs, generations = _Jobs(base), GenerationHistory(base)
    leases = LeaseHistory(generations, base)
    for event in events:
        faults.extend(leases.see(event, len(jobs.live)))
        faults.extend(generations.see(event))
        jobs.free(generations.freed(event))
        faults.extend(jobs.see(event))
    return faults
