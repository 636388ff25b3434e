"""What clients ask of the broker. Imperative names; one class a request."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from . import limits
from .base import Frozen
from .ids import AttemptId, PeerId, ProfileName, RequestId, Tag
from .policy import WorkClass
from .text import OsText

JobSelector = Annotated[str, Field(min_length=1, max_length=600)]
Reason = Annotated[str, Field(max_length=limits.REASON_CHARACTERS_MAX)]
Environment = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=limits.EXEC_STRING_BYTES_MAX)], OsText],
    Field(max_length=limits.ENVIRONMENT_VARIABLES_MAX),
]
Command = Annotated[tuple[OsText, ...], Field(min_length=1, max_length=limits.ARGUMENTS_MAX)]


class Ping(Frozen):
    """Is the thread that does the work alive? Answered with `Pong`."""

    kind: Literal["ping"] = "ping"


class SubmitJob(Frozen):
    """Put one experiment in the queue, or join the one that has its identity."""

    kind: Literal["submit_job"] = "submit_job"
    peer: PeerId = Field(description="Submitting peer")
    tag: Tag = Field(description="Stable scientific identity")
    command: Command = Field(description="Argument vector, run without a shell")
    cwd: OsText = Field(description="Absolute working directory")
    environment: Environment = Field(description="The evaluator's whole environment")
    profile: ProfileName | None = Field(default=None, description="Absent: the default profile")
    work_class: WorkClass = Field(default="ordinary", description="scout, ordinary or mature")
    eta_seconds: float | None = Field(
        default=None, gt=0, le=31_536_000, description="Expected run time in seconds"
    )
    generation: int | None = Field(
        default=None, ge=0, le=1_000_000, description="Absent: the run's current generation"
    )
    lease_id: str | None = Field(default=None, max_length=128, description="Supply lease")
    retry_terminal: bool = Field(default=False, description="Try a failed identity again")
    dry_run: bool = Field(default=False, description="Only say what would happen")


class SubmitJobs(Frozen):
    """Several submissions in one message and one durable batch, answered in order."""

    kind: Literal["submit_jobs"] = "submit_jobs"
    jobs: tuple[SubmitJob, ...] = Field(
        min_length=1, max_length=limits.BATCH_JOBS_MAX, description="The submissions"
    )


class WatchJob(Frozen):
    """Answer when the job's version passes `after_version`, its state is not `known_state`, or it
    is terminal."""

    kind: Literal["watch_job"] = "watch_job"
    job: JobSelector = Field(description="Job")
    after_version: int = Field(default=0, ge=0, description="Version the caller knows")
    known_state: str | None = Field(
        default=None, max_length=40, description="State the caller knows; another one is a change"
    )
    until: Literal["change", "terminal"] = Field(default="change", description="What to wait for")


class ShowJob(Frozen):
    """One job."""

    kind: Literal["show_job"] = "show_job"
    job: JobSelector = Field(description="j-12, a prefix of the long id, last, or tag:TEXT")


class ExplainJob(Frozen):
    """One job with every gate, or `profile:NAME`."""

    kind: Literal["explain_job"] = "explain_job"
    subject: JobSelector = Field(description="A job, or profile:NAME")


class ListJobs(Frozen):
    """Jobs in queue order: running first, then queued, then (if asked) ended ones."""

    kind: Literal["list_jobs"] = "list_jobs"
    states: tuple[str, ...] = Field(default=(), max_length=16, description="Only these states")
    peer: PeerId | None = Field(default=None, description="Only this peer's")
    include_terminal: bool = Field(default=False, description="Also ended ones")
    limit: int = Field(default=1000, ge=1, le=limits.LIST_JOBS_MAX, description="At most so many")


class GetStatus(Frozen):
    """The page an operator reads first."""

    kind: Literal["get_status"] = "get_status"


class GetDevices(Frozen):
    """The devices with what is declared and used."""

    kind: Literal["get_devices"] = "get_devices"


class GetPolicy(Frozen):
    """The contract in force, with all its values."""

    kind: Literal["get_policy"] = "get_policy"


class ReadEvents(Frozen):
    """Ledger events in order, for `events` and for a subscriber that lost some."""

    kind: Literal["read_events"] = "read_events"
    after_sequence: int = Field(default=0, ge=0, description="Only later ones")
    limit: int = Field(default=500, ge=1, le=limits.LIST_EVENTS_MAX, description="At most so many")
    job: JobSelector | None = Field(default=None, description="Only this job's")


class CancelJobs(Frozen):
    """Withdraw queued jobs; end running ones when `running` is set."""

    kind: Literal["cancel_jobs"] = "cancel_jobs"
    jobs: tuple[JobSelector, ...] = Field(min_length=1, max_length=1000, description="Jobs")
    peer: PeerId | None = Field(default=None, description="Who asks; absent: the operator")
    reason: Reason = Field(default="cancelled", description="Kept with the job and shown")
    running: bool = Field(default=False, description="Also end running ones: TERM, grace, KILL")
    admission_timeout: bool = Field(
        default=False,
        description="Withdraw only if still queued; frees the tag if nothing of it ever ran",
    )


class RetryJob(Frozen):
    """`submit_job` with `retry_terminal` under the stored tag, profile and class."""

    kind: Literal["retry_job"] = "retry_job"
    job: JobSelector = Field(description="Job that ended badly")
    peer: PeerId | None = Field(default=None, description="Must own the job; absent: its owner")
    command: Command | None = Field(default=None, description="Absent: the stored command")
    cwd: OsText | None = Field(default=None, description="Absent: the stored directory")
    environment: Environment = Field(description="The evaluator's whole environment")


class StopRun(Frozen):
    """Fence the run, reject the queue, end every experiment with all its descendants."""

    kind: Literal["stop_run"] = "stop_run"
    grace_seconds: float = Field(default=5.0, ge=0, le=3600, description="Between TERM and KILL")
    dry_run: bool = Field(default=False, description="Only say what would happen")


class ValidateAttempt(Frozen):
    """Does the caller, by the kernel's word on its connection, belong to that attempt?"""

    kind: Literal["validate_attempt"] = "validate_attempt"
    attempt: AttemptId = Field(description="As the caller's environment names it: a hint")
    attempt_directory: str = Field(min_length=1, max_length=4096, description="The same")


class HoldAdmission(Frozen):
    """Start nothing more (for `down --drain`); queued jobs stay queued. Not durable."""

    kind: Literal["hold_admission"] = "hold_admission"
    held: bool = Field(default=True, description="False: start again what may start")


Request = Annotated[
    Ping
    | SubmitJob
    | SubmitJobs
    | WatchJob
    | ShowJob
    | ExplainJob
    | ListJobs
    | GetStatus
    | GetDevices
    | GetPolicy
    | ReadEvents
    | CancelJobs
    | RetryJob
    | StopRun
    | HoldAdmission
    | ValidateAttempt,
    Field(discriminator="kind"),
]


class RequestEnvelope(Frozen):
    """The body of every request frame."""

    request_id: RequestId = Field(description="Chosen by the client; the same when it resends")
    request: Request = Field(description="What is asked")
