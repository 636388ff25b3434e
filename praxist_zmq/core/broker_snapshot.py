"""The broker's state at one ledger sequence, as a JSON document and back.

A snapshot is only ever made by replaying, so it holds nothing that the ledger does not imply.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import fields
from typing import Annotated

from pydantic import Field, TypeAdapter

from ..protocol.base import Frozen
from ..protocol.policy import SchedulerPolicy
from .estimate import Calibration
from .evolve import note_mature
from .lease_state import Leases
from .state import Attempt, BrokerState, Generation, Job, RecordedEnvironment, RequestRecord

SNAPSHOT_VERSION = 1


class BrokerSnapshot(Frozen):
    """All of `BrokerState`, less the indexes that follow from it."""

    version: Annotated[int, Field(ge=1, description="Form of this document")]
    run_id: str = Field(description="Run")
    epoch: int = Field(description="Broker epoch")
    boot_id: str = Field(description="Boot of that epoch")
    last_sequence: int = Field(description="Ledger sequence it stands for")
    policy: SchedulerPolicy = Field(description="Contract")
    generation: int = Field(description="Generation")
    generations: tuple[Generation, ...] = Field(default=(), description="All that were opened")
    cohort_size: int | None = Field(
        default=None, description="Of the current one, where `generations` is empty: an old form"
    )
    deadline_at_ms: int | None = Field(default=None, description="The same")
    closed_reason: str | None = Field(description="Why admission is closed")
    limit: int = Field(default=1, ge=1, description="Attempts at once")
    limit_reason: str = Field(default="", description="Why the limit is what it is")
    limit_changed_at_ms: int | None = Field(default=None, description="When it last moved")
    limit_before: int | None = Field(default=None, description="What it was before")
    run_times: tuple[float, ...] = Field(default=(), description="Calibration, all profiles")
    profile_run_times: dict[str, tuple[float, ...]] = Field(
        default_factory=dict, description="Calibration of each profile"
    )
    leases: Leases = Field(default_factory=Leases, description="Live and ended ones, and counts")
    last_job_number: int = Field(description="Highest job number given")
    jobs: tuple[Job, ...] = Field(description="Jobs in order")
    identities: dict[str, str] = Field(description="Identity to job")
    attempts: tuple[Attempt, ...] = Field(description="Live attempts")
    environments: tuple[tuple[str, RecordedEnvironment], ...] = Field(
        description="(id, environment) in order"
    )
    requests: tuple[tuple[str, str, tuple[tuple[int, str], ...]], ...] = Field(
        description="(request id, digest, (index, job) pairs) in order"
    )


_SNAPSHOT: TypeAdapter[BrokerSnapshot] = TypeAdapter(BrokerSnapshot)


def dump(state: BrokerState) -> bytes:
    """The document of a state."""
    snapshot = BrokerSnapshot(
        version=SNAPSHOT_VERSION,
        run_id=state.run_id,
        epoch=state.epoch,
        boot_id=state.boot_id,
        last_sequence=state.last_sequence,
        policy=state.policy,
        generation=state.generation,
        generations=tuple(state.generations.values()),
        closed_reason=state.closed_reason,
        limit=state.limit,
        limit_reason=state.limit_reason,
        limit_changed_at_ms=state.limit_changed_at_ms,
        limit_before=state.limit_before,
        run_times=tuple(state.calibration.pool),
        profile_run_times={
            name: tuple(ratios) for name, ratios in state.calibration.profiles.items()
        },
        leases=state.leases,
        last_job_number=state.last_job_number,
        jobs=tuple(state.jobs.values()),
        identities=state.identities,
        attempts=tuple(state.attempts.values()),
        environments=tuple(state.environments.items()),
        requests=tuple(
            (key, record.digest, tuple(record.jobs.items()))
            for key, record in state.requests.items()
        ),
    )
    return _SNAPSHOT.dump_json(snapshot)


def load(data: bytes) -> BrokerState:
    """The state of a document. Raises pydantic.ValidationError."""
    snapshot = _SNAPSHOT.validate_json(data)
    state = BrokerState(
        run_id=snapshot.run_id,
        epoch=snapshot.epoch,
        boot_id=snapshot.boot_id,
        last_sequence=snapshot.last_sequence,
        policy=snapshot.policy,
        generation=snapshot.generation,
        closed_reason=snapshot.closed_reason,
        limit=snapshot.limit,
        limit_reason=snapshot.limit_reason,
        limit_changed_at_ms=snapshot.limit_changed_at_ms,
        limit_before=snapshot.limit_before,
        leases=snapshot.leases,
        last_job_number=snapshot.last_job_number,
        identities=dict(snapshot.identities),
    )
    state.generations = _generations(snapshot)
    for job in snapshot.jobs:
        job.queued_at_ms = job.queued_at_ms or job.submitted_at_ms
        state.jobs[job.job] = job
        state.tags[job.tag] = job.job
        state.counts[job.state] += 1
        note_mature(job, state)
    for attempt in snapshot.attempts:
        state.attempts[attempt.attempt] = attempt
        peer = state.jobs[attempt.job].peer
        state.peers_running[peer] = state.peers_running.get(peer, 0) + 1
        for uuid in attempt.device_uuids:
            state.device_holders.setdefault(uuid, set()).add(attempt.attempt)
    if not snapshot.generations:
        _complete(state)
    state.calibration = Calibration.restored(snapshot.run_times, snapshot.profile_run_times)
    state.environments = OrderedDict(snapshot.environments)
    state.idle_environments = sum(1 for _, kept in snapshot.environments if kept.users == 0)
    for key, digest, pairs in snapshot.requests:
        state.requests[key] = RequestRecord(digest, dict(pairs))
    return state


def _generations(snapshot: BrokerSnapshot) -> dict[int, Generation]:
    """The generations; those of an old snapshot follow from its jobs and its current one."""
    found = {generation.number: generation for generation in snapshot.generations}
    if found:
        return found
    known = [job for job in snapshot.jobs if job.generation == snapshot.generation]
    current = Generation(
        snapshot.generation,
        min((job.submitted_at_ms for job in known), default=0),
        cohort_size=snapshot.cohort_size,
        deadline_at_ms=snapshot.deadline_at_ms,
    )
    found[current.number] = current
    for job in snapshot.jobs:
        one = found.setdefault(job.generation, Generation(job.generation, job.submitted_at_ms))
        one.counts[job.state] += 1
        one.attempts += job.attempt_counter
    return found


def _complete(state: BrokerState) -> None:
    """What a snapshot of a release with a fixed limit does not hold, as its records would tell."""
    state.limit = state.policy.initial_concurrent_experiments


def differences(left: BrokerState, right: BrokerState) -> list[str]:
    """Names of the parts in which two states differ (for tests and for verifying a snapshot)."""
    return [f.name for f in fields(BrokerState) if getattr(left, f.name) != getattr(right, f.name)]
