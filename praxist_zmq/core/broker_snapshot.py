"""The broker's state at one ledger sequence, as a JSON document and back.

A snapshot is only ever made by replaying, so it holds nothing that the ledger does not imply.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import fields
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from ..protocol.base import Frozen
from ..protocol.policy import SchedulerPolicy
from .state import Attempt, BrokerState, Job, RecordedEnvironment, RequestRecord

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
    closed_reason: str | None = Field(description="Why admission is closed")
    last_job_number: int = Field(description="Highest job number given")
    jobs: tuple[dict[str, Any], ...] = Field(description="Jobs in order")
    identities: dict[str, str] = Field(description="Identity to job")
    attempts: tuple[dict[str, Any], ...] = Field(description="Live attempts")
    environments: tuple[tuple[str, dict[str, Any], int], ...] = Field(
        description="(id, variables, users) in order"
    )
    requests: tuple[tuple[str, str, tuple[tuple[int, str], ...]], ...] = Field(
        description="(request id, digest, (index, job) pairs) in order"
    )


_JOBS: TypeAdapter[Job] = TypeAdapter(Job)
_ATTEMPTS: TypeAdapter[Attempt] = TypeAdapter(Attempt)
_ENVIRONMENT: TypeAdapter[RecordedEnvironment] = TypeAdapter(RecordedEnvironment)
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
        closed_reason=state.closed_reason,
        last_job_number=state.last_job_number,
        jobs=tuple(_JOBS.dump_python(job, mode="json") for job in state.jobs.values()),
        identities=state.identities,
        attempts=tuple(_ATTEMPTS.dump_python(a, mode="json") for a in state.attempts.values()),
        environments=tuple(
            (key, _ENVIRONMENT.dump_python(value, mode="json")["variables"], value.users)
            for key, value in state.environments.items()
        ),
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
        last_job_number=snapshot.last_job_number,
        identities=dict(snapshot.identities),
    )
    for document in snapshot.jobs:
        job = _JOBS.validate_python(document)
        state.jobs[job.job] = job
        state.tags[job.tag] = job.job
        state.counts[job.state] += 1
    for document in snapshot.attempts:
        attempt = _ATTEMPTS.validate_python(document)
        state.attempts[attempt.attempt] = attempt
        for uuid in attempt.device_uuids:
            state.device_holders.setdefault(uuid, set()).add(attempt.attempt)
    state.environments = OrderedDict()
    for key, variables, users in snapshot.environments:
        state.environments[key] = _ENVIRONMENT.validate_python(
            {"variables": variables, "users": users}
        )
        state.idle_environments += users == 0
    for key, digest, pairs in snapshot.requests:
        state.requests[key] = RequestRecord(digest, dict(pairs))
    return state


def differences(left: BrokerState, right: BrokerState) -> list[str]:
    """Names of the parts in which two states differ (for tests and for verifying a snapshot)."""
    return [f.name for f in fields(BrokerState) if getattr(left, f.name) != getattr(right, f.name)]
