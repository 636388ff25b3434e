"""Everything the broker's ledger may hold: facts, in the past tense, with the time they were true.

`at_ms` is the wall clock in milliseconds since 1970, for people. No decision compares it with
another clock reading. A kind that is removed stays reserved here by name.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from .base import Frozen
from .ids import (
    AttemptId,
    DeviceUuid,
    Digest,
    Identity,
    JobId,
    LeaseId,
    LongJobId,
    PeerId,
    ProfileName,
    RequestId,
    RunId,
)
from .policy import Priority, SchedulerPolicy, WorkClass
from .process import ProcessIdentity
from .text import OsText

FailureCategory = Literal[
    "infrastructure", "interrupted", "resource", "environment", "permission", "experiment",
    "unclassified",
]  # fmt: skip


class SecretDigest(Frozen):
    """A credential-bearing value: only its keyed hash is ever written."""

    hmac_sha256: Digest = Field(description="HMAC of name, NUL and value under the run's key")


class SecretSpan(Frozen):
    """A part of an argument that held the value of a credential variable."""

    variable: str = Field(description="Its name in the job's environment")


class MixedText(Frozen):
    """An argument made of plain parts and credential values."""

    parts: tuple[str | SecretSpan, ...] = Field(description="In order")


StoredText = Annotated[OsText | MixedText, Field(union_mode="left_to_right")]
StoredValue = Annotated[OsText | SecretDigest, Field(union_mode="left_to_right")]
StoredCommand = tuple[StoredText, ...]


class _Event(Frozen):
    at_ms: int = Field(ge=0, description="Wall clock, milliseconds since 1970")


class BrokerStarted(_Event):
    """A broker took over the run's ledger."""

    kind: Literal["broker_started"] = "broker_started"
    run_id: RunId = Field(description="Run")
    epoch: int = Field(ge=1, description="One more than the last")
    boot_id: str = Field(max_length=64, description="Boot it runs in")
    version: str = Field(max_length=64, description="Version of the program")
    reopened: bool = Field(default=False, description="Whether a stopped run was started again")


class PolicyAdopted(_Event):
    """The contract that holds from here on."""

    kind: Literal["policy_adopted"] = "policy_adopted"
    policy: SchedulerPolicy = Field(description="The contract, normalised")
    generation: int = Field(ge=0, description="Generation of submissions that name none")
    cohort_size: int | None = Field(default=None, ge=1, description="Peers of the generation")
    deadline_at_ms: int | None = Field(
        default=None,
        ge=0,
        le=253_402_300_799_000,
        description="When the generation is to end, Unix time in ms",
    )
    deadline_mono_ms: int | None = Field(
        default=None, description="The same by CLOCK_BOOTTIME of the boot it is recorded in, in ms"
    )


class EnvironmentRecorded(_Event):
    """An environment, once for all jobs that share it."""

    kind: Literal["environment_recorded"] = "environment_recorded"
    environment_id: Digest = Field(description="sha256 of its canonical form")
    variables: dict[str, StoredValue] = Field(description="Name to value")


class JobQueued(_Event):
    """A submission was accepted."""

    kind: Literal["job_queued"] = "job_queued"
    job: JobId = Field(description="Job")
    job_id: LongJobId = Field(description="Long id")
    identity: Identity = Field(description="sha256 of run id, generation and tag joined by NUL")
    tag: str = Field(description="Tag")
    peer: PeerId = Field(description="Submitting peer")
    generation: int = Field(description="Generation")
    profile: str = Field(description="Profile")
    work_class: WorkClass = Field(description="Class")
    eta_ms: int | None = Field(description="Expected run time")
    command: StoredCommand = Field(description="Argument vector, without secrets")
    cwd: OsText = Field(description="Working directory")
    environment_id: Digest = Field(description="Recorded environment")
    lease_id: str | None = Field(description="Supply lease")
    request_id: RequestId | None = Field(description="Request that brought it")
    request_digest: Digest | None = Field(description="Keyed hash of that request's body")
    request_index: int = Field(default=0, description="Place within a batch request")
    not_secret: tuple[str, ...] = Field(default=(), description="As `submit_job` has it")
    uid: int | None = Field(description="Kernel-verified user of the submitter")


class JobRetried(_Event):
    """An ended job was put back in the queue on request (`--retry-terminal`, `retry`)."""

    kind: Literal["job_retried"] = "job_retried"
    job: JobId = Field(description="Job")
    prior_state: Literal["failed", "cancelled", "rejected", "drained_unknown"] = Field(
        description="State it was in"
    )
    profile: str = Field(description="Profile from now on")
    work_class: WorkClass = Field(description="Class from now on")
    eta_ms: int | None = Field(description="Expected run time")
    command: StoredCommand = Field(description="Argument vector, without secrets")
    cwd: OsText = Field(description="Working directory")
    environment_id: Digest = Field(description="Recorded environment")
    lease_id: str | None = Field(description="Supply lease")
    request_id: RequestId | None = Field(description="Request that asked")
    request_digest: Digest | None = Field(description="Keyed hash of that request's body")
    request_index: int = Field(default=0, description="Place within a batch request")
    not_secret: tuple[str, ...] = Field(default=(), description="As `submit_job` has it")


class JobRequeued(_Event):
    """An attempt ended or was withdrawn and the job waits again, without a request."""

    kind: Literal["job_requeued"] = "job_requeued"
    job: JobId = Field(description="Job")
    attempt: AttemptId = Field(description="Attempt that ended")
    reason: Literal[
        "exit_75", "never_ran", "spawn_failed", "host_shortage", "room_gone", "lost"
    ] = Field(description="Why")
    consumed: bool = Field(description="Whether it used up an automatic retry")


class JobRejected(_Event):
    """A queued job will not run."""

    kind: Literal["job_rejected"] = "job_rejected"
    job: JobId = Field(description="Job")
    state: Literal["cancelled", "rejected"] = Field(
        default="rejected", description="Whether somebody cancelled it, or the run refused it"
    )
    code: str = Field(description="Row of the error table")
    detail: str = Field(max_length=1000, description="In words")
    frees_identity: bool = Field(default=False, description="Nothing ran: the tag is free again")


class JobCancelRequested(_Event):
    """A running job is to be ended. Unless it had ended by itself before, it ends `cancelled`."""

    kind: Literal["job_cancel_requested"] = "job_cancel_requested"
    job: JobId = Field(description="Job")
    reason: str = Field(max_length=1000, description="In words")
    grace_ms: int = Field(ge=0, description="Between TERM and KILL")


class AttemptAllocated(_Event):
    """An attempt holds its devices; its shim may be spawned."""

    kind: Literal["attempt_allocated"] = "attempt_allocated"
    job: JobId = Field(description="Job")
    attempt: AttemptId = Field(description="Attempt")
    device_uuids: tuple[DeviceUuid, ...] = Field(description="Devices, in order")
    exclusive: bool = Field(description="Whether nobody else may use them")
    memory_mib: int | None = Field(description="Declared, a device")
    utilization_pct: float | None = Field(description="Declared, a device")


class AttemptBound(_Event):
    """The attempt's shim waits at its barrier; after this GO may be given at any time."""

    kind: Literal["attempt_bound"] = "attempt_bound"
    attempt: AttemptId = Field(description="Attempt")
    shim: ProcessIdentity = Field(description="The shim")


class AttemptLaunched(_Event):
    """The evaluator's image was executed."""

    kind: Literal["attempt_launched"] = "attempt_launched"
    attempt: AttemptId = Field(description="Attempt")
    leader: ProcessIdentity = Field(description="The evaluator")


class AttemptExited(_Event):
    """The evaluator itself ended; descendants may live on."""

    kind: Literal["attempt_exited"] = "attempt_exited"
    attempt: AttemptId = Field(description="Attempt")
    outcome: Literal["exited", "exec_failed", "never_ran", "spawn_failed", "unknown"] = Field(
        description="How"
    )
    exit_code: int | None = Field(description="Exit status")
    signal: int | None = Field(description="Signal")
    errno: int | None = Field(default=None, description="Of a failed exec")
    detail: str = Field(default="", max_length=2000, description="In words")
    survivors: int = Field(default=0, ge=0, description="Descendants seen alive")


class AttemptStuck(_Event):
    """KILL did not end these processes; the allocation stays held."""

    kind: Literal["attempt_stuck"] = "attempt_stuck"
    attempt: AttemptId = Field(description="Attempt")
    pids: tuple[int, ...] = Field(description="Survivors")
    detail: str = Field(max_length=2000, description="In words")


class AttemptFound(_Event):
    """A launcher that did not see its end looked for it: what it found, by which evidence."""

    kind: Literal["attempt_found"] = "attempt_found"
    attempt: AttemptId = Field(description="Attempt")
    found: Literal["gone", "alive", "unseen"] = Field(
        description="gone: proved; unseen: neither its life nor its end can be proved from here"
    )
    evidence: str = Field(max_length=40, description="Name of the evidence")
    detail: str = Field(max_length=500, description="The evidence in words")


class AttemptPresumedDead(_Event):
    """An operator said that the processes of an attempt that cannot be seen are gone."""

    kind: Literal["attempt_presumed_dead"] = "attempt_presumed_dead"
    attempt: AttemptId = Field(description="Attempt")
    reason: str = Field(max_length=1000, description="In the operator's words")
    uid: int | None = Field(description="Kernel-verified user who said it")


class AllocationReleased(_Event):
    """The attempt's tree is proved gone; its slot and devices are free."""

    kind: Literal["allocation_released"] = "allocation_released"
    attempt: AttemptId = Field(description="Attempt")


class JobFinished(_Event):
    """A job reached its end through an attempt."""

    kind: Literal["job_finished"] = "job_finished"
    job: JobId = Field(description="Job")
    attempt: AttemptId = Field(description="Attempt")
    state: Literal["completed", "failed", "cancelled", "drained_unknown"] = Field(description="How")
    exit_code: int | None = Field(description="Exit status")
    signal: int | None = Field(description="Signal")
    failure_category: FailureCategory | None = Field(description="Kind of failure")
    failure_signature: str | None = Field(max_length=320, description="Last telling log line")
    failure_hint: str | None = Field(
        default=None, max_length=320, description="What may be behind it; the class is by facts"
    )


class GenerationOpened(_Event):
    """A generation takes work. Opening clears a freeze of it, and of the whole run."""

    kind: Literal["generation_opened"] = "generation_opened"
    generation: int = Field(ge=0, description="Its number")
    cohort_size: int | None = Field(default=None, ge=1, description="Its peers; null is unknown")
    deadline_at_ms: int | None = Field(
        default=None, ge=0, le=253_402_300_799_000,
        description="When it is to end, Unix time in ms; null is never",
    )  # fmt: skip
    deadline_mono_ms: int | None = Field(
        default=None, description="The same by CLOCK_BOOTTIME of the boot it is recorded in, in ms"
    )
    mature_quorum: int | None = Field(
        default=None, ge=1, description="Distinct mature peers a close needs; null: no hard quorum"
    )
    peers: tuple[PeerId, ...] = Field(default=(), max_length=4096, description="Its peers in order")
    publish_completed: bool = Field(
        default=False, description="Whether mature work that completes counts as published"
    )
    rerun: bool = Field(
        default=False, description="Whether tags that a close, assessment or stop refused are free"
    )


class GenerationAssessed(_Event):
    """Only mature work is taken from now on."""

    kind: Literal["generation_assessed"] = "generation_assessed"
    generation: int = Field(ge=0, description="Its number")
    reason: str = Field(max_length=1000, description="In words")


class GenerationFrozen(_Event):
    """Nothing of the generation starts after this, whatever was due."""

    kind: Literal["generation_frozen"] = "generation_frozen"
    generation: int = Field(ge=0, description="Its number")
    reason: str = Field(max_length=1000, description="In words")
    signal: bool = Field(description="Whether CLOSING_SIGNAL is written once this is on disk")


class GenerationClosed(_Event):
    """A frozen generation has drained: nothing of it runs."""

    kind: Literal["generation_closed"] = "generation_closed"
    generation: int = Field(ge=0, description="Its number")


class ResultPublished(_Event):
    """Evidence of a generation."""

    kind: Literal["result_published"] = "result_published"
    generation: int = Field(ge=0, description="Generation")
    tag: str = Field(description="Tag of the experiment")
    peer: PeerId | None = Field(description="Whose it is; null is unknown")
    mature: bool = Field(description="Whether it is close-grade")
    source: Literal["peer", "completion", "store"] = Field(
        description="Told by a peer, by the end of mature work, or read from the task's store"
    )


class LeaseGranted(_Event):
    """An idle peer is offered room for one experiment that it has planned already."""

    kind: Literal["lease_granted"] = "lease_granted"
    lease_id: LeaseId = Field(description="Lease")
    peer: PeerId = Field(description="Whom it is for")
    generation: int = Field(ge=0, description="Generation")
    priority: Priority = Field(description="What is asked for")
    profiles: tuple[ProfileName, ...] = Field(
        min_length=1, max_length=1024, description="Profiles that could start now"
    )
    window_ms: int = Field(ge=1, description="How long the peer may answer")
    expires_at_ms: int = Field(ge=0, description="Wall clock, for people and for a restart")


class LeaseEnded(_Event):
    """An offer is over. Consumption is recorded in one batch with the job that it brought."""

    kind: Literal["lease_ended"] = "lease_ended"
    lease_id: LeaseId = Field(description="Lease")
    outcome: Literal["consumed", "declined", "expired", "revoked"] = Field(description="How")
    reason: str = Field(max_length=200, description="Reason of the reference, e.g. peer_release")
    job: JobId | None = Field(default=None, description="Job that consumed it")
    detail: str | None = Field(
        default=None, max_length=500, description="What the peer said when it declined"
    )


class LeaseCounted(_Event):
    """A submission carried a locator that is worth nothing any more; it was taken all the same."""

    kind: Literal["lease_counted"] = "lease_counted"
    lease_id: str = Field(max_length=128, description="As sent")
    peer: PeerId = Field(description="Who sent it")
    what: Literal["stale_submission", "reuse_ignored"] = Field(
        description="stale: expired, unknown or another's; reuse: it was consumed before"
    )


class LimitChanged(_Event):
    """The limit of attempts at once moved by one, with the host's pressure."""

    kind: Literal["limit_changed"] = "limit_changed"
    before: int = Field(ge=1, description="Limit until now")
    limit: int = Field(ge=1, description="Limit from now on")
    reason: str = Field(max_length=300, description="The readings it follows")


class BindingObserved(_Event):
    """The driver's process map was compared with an attempt's devices."""

    kind: Literal["binding_observed"] = "binding_observed"
    attempt: AttemptId = Field(description="Attempt")
    status: Literal["verified", "conflict", "unobserved"] = Field(
        description="verified: its processes are on its devices only; conflict: on others; "
        "unobserved: none was seen for a while after its start"
    )
    detail: str = Field(default="", max_length=500, description="In words")


class AdmissionClosed(_Event):
    """Nothing new is accepted or started."""

    kind: Literal["admission_closed"] = "admission_closed"
    reason: str = Field(max_length=1000, description="In words")


class AdmissionOpened(_Event):
    """Work is accepted again."""

    kind: Literal["admission_opened"] = "admission_opened"
    reason: str = Field(max_length=1000, description="In words")


Event = Annotated[
    BrokerStarted
    | PolicyAdopted
    | EnvironmentRecorded
    | JobQueued
    | JobRetried
    | JobRequeued
    | JobRejected
    | JobCancelRequested
    | AttemptAllocated
    | AttemptBound
    | AttemptLaunched
    | AttemptExited
    | AttemptStuck
    | AttemptFound
    | AttemptPresumedDead
    | AllocationReleased
    | JobFinished
    | GenerationOpened
    | GenerationAssessed
    | GenerationFrozen
    | GenerationClosed
    | ResultPublished
    | LeaseGranted
    | LeaseEnded
    | LeaseCounted
    | LimitChanged
    | BindingObserved
    | AdmissionClosed
    | AdmissionOpened,
    Field(discriminator="kind"),
]
KINDS: tuple[str, ...] = tuple(
    one.model_fields["kind"].default for one in get_args(get_args(Event)[0])
)
"""The kinds of all events."""
