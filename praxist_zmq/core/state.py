"""The broker's durable state: exactly what replaying the ledger gives.

Changed in place, and only by `core.evolve.apply` (a copy of every job per event would not be
affordable). What is measured or connected right now is not here but in `core.soft`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from ..protocol.events import SecretDigest, StoredCommand
from ..protocol.policy import SchedulerPolicy, WorkClass
from ..protocol.process import ProcessIdentity
from ..protocol.text import OsText
from .estimate import Calibration
from .lease_state import Leases

JOB_STATES = (
    "queued",
    "running",
    "completed",
    "failed",
    "cancelled",
    "rejected",
    "drained_unknown",
)


@dataclass(slots=True)
class Attempt:
    """One try of a job, from its allocation to its release."""

    attempt: str
    job: str
    device_uuids: tuple[str, ...]
    exclusive: bool
    memory_mib: int | None
    utilization_pct: float | None
    phase: str
    allocated_at_ms: int
    shim: ProcessIdentity | None = None
    leader: ProcessIdentity | None = None
    launched_at_ms: int | None = None
    outcome: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    errno: int | None = None
    detail: str = ""
    survivors: int = 0
    stuck_pids: tuple[int, ...] = ()
    found: str = ""
    """What a launcher last found of it when it had to look: gone, alive, unseen."""
    evidence: str = ""
    """By which evidence, a name of `core.proof`."""
    presumed_dead: bool = False
    """Whether an operator said so of what cannot be seen."""


@dataclass(slots=True)
class Job:
    """One scientific experiment with one identity."""

    job: str
    number: int
    job_id: str
    identity: str
    tag: str
    peer: str
    generation: int
    profile: str
    work_class: WorkClass
    eta_ms: int | None
    command: StoredCommand
    cwd: OsText
    environment_id: str
    lease_id: str | None
    uid: int | None
    state: str
    submitted_at_ms: int
    queue_sequence: int
    version: int
    queued_at_ms: int = 0
    """When it was last put in the queue; 0 in what an older release wrote."""
    attempt_counter: int = 0
    attempts_used: int = 0
    retries_used: int = 0
    withdrawn_in_a_row: int = 0
    shortages_in_a_row: int = 0
    """How often in a row the host lacked what an attempt of it needed to start."""
    attempt: str | None = None
    device_uuids: tuple[str, ...] = ()
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    failure_category: str | None = None
    failure_signature: str | None = None
    failure_hint: str | None = None
    cancel_reason: str | None = None
    cancel_grace_ms: int = 0
    cancel_at_ms: int | None = None
    """When its end was asked for, while it ran; None in records of an earlier release."""
    reject_code: str | None = None
    reject_detail: str | None = None
    binding_status: str | None = None
    binding_detail: str = ""
    not_secret: tuple[str, ...] = ()
    """Names in the command that its sender said bear no credential."""
    requeue_reason: str | None = None
    """Why it waits again, while it does."""


@dataclass(slots=True)
class Published:
    """One piece of evidence."""

    tag: str
    peer: str | None
    mature: bool
    source: str
    at_ms: int


@dataclass(slots=True)
class Generation:
    """A part of the run with its own evidence, its own deadline and its own end."""

    number: int
    opened_at_ms: int
    phase: str = "open"
    """open, assessment, frozen, closed."""
    reason: str | None = None
    signal: bool = False
    """Whether it is closing, and CLOSING_SIGNAL says so."""
    cohort_size: int | None = None
    deadline_at_ms: int | None = None
    deadline_mono_ms: int | None = None
    """The same by CLOCK_BOOTTIME, which a step of the wall clock does not move."""
    deadline_boot_id: str = ""
    """The boot in which that means anything."""
    mature_quorum: int | None = None
    peers: tuple[str, ...] = ()
    publish_completed: bool = False
    attempts: int = 0
    """Allocations since it was opened."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(JOB_STATES, 0))
    results: dict[str, Published] = field(default_factory=dict)
    """By tag: one identity is one piece of evidence."""


@dataclass(slots=True)
class RecordedEnvironment:
    """An environment and the number of jobs that may still need it."""

    variables: dict[str, OsText | SecretDigest]
    users: int = 0


@dataclass(slots=True)
class RequestRecord:
    """What a request id stood for, so that it is answered the same when it comes again."""

    digest: str
    jobs: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class BrokerState:
    """All of it."""

    run_id: str = ""
    epoch: int = 0
    boot_id: str = ""
    last_sequence: int = 0
    policy: SchedulerPolicy = field(default_factory=SchedulerPolicy)
    limit: int = 1
    """Attempts at once: between the contract's bounds, it follows the host."""
    limit_reason: str = ""
    limit_changed_at_ms: int | None = None
    limit_before: int | None = None
    calibration: Calibration = field(default_factory=Calibration)
    peers_running: dict[str, int] = field(default_factory=dict)
    """Attempts that hold an allocation, by peer."""
    generation: int = 0
    """The current one: of submissions that name none."""
    generations: dict[int, Generation] = field(default_factory=dict)
    mature_open: dict[int, dict[str, Job]] = field(default_factory=dict)
    """Generation -> job -> mature work that is queued or running."""
    leases: Leases = field(default_factory=Leases)
    closed_reason: str | None = None
    jobs: dict[str, Job] = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    device_holders: dict[str, set[str]] = field(default_factory=dict)
    environments: OrderedDict[str, RecordedEnvironment] = field(default_factory=OrderedDict)
    idle_environments: int = 0
    requests: OrderedDict[str, RequestRecord] = field(default_factory=OrderedDict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(JOB_STATES, 0))
    last_job_number: int = 0

    @property
    def current(self) -> Generation | None:
        """The current generation; None before the first contract."""
        return self.generations.get(self.generation)

    def live_attempt(self, job: Job) -> Attempt | None:
        """The attempt that holds an allocation for `job`, if any."""
        return self.attempts.get(job.attempt) if job.attempt is not None else None
