"""What clients ask of the broker. Imperative names; one class a request."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from . import limits
from .base import Frozen
from .ids import AttemptId, FollowedAttempt, PeerId, ProfileName, RequestId, Tag
from .policy import WorkClass
from .text import OsText

JobSelector = Annotated[str, Field(min_length=1, max_length=600)]
Reason = Annotated[str, Field(max_length=limits.REASON_CHARACTERS_MAX)]
Environment = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=limits.EXEC_STRING_BYTES_MAX)], OsText],
    Field(max_length=limits.ENVIRONMENT_VARIABLES_MAX),
]
NotSecret = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=64)], ...], Field(max_length=16)
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
    shared_environment: int | None = Field(
        default=None,
        ge=0,
        lt=limits.BATCH_JOBS_MAX,
        description="In a batch: its index in `environments`, in the place of `environment`",
    )
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
    lost: bool = Field(
        default=False, description="With it: also one that ran and whose end is not known"
    )
    retry_of: FollowedAttempt | None = Field(
        default=None,
        description="With `retry_terminal`: the attempt that this retry follows. It is followed "
        "once, however often this is sent",
    )
    same_command: bool = Field(
        default=False, description="Refuse to join a job, or take a result, of another command"
    )
    dry_run: bool = Field(default=False, description="Only say what would happen")
    not_secret: NotSecret = Field(
        default=(), description="Names in the command that bear no credential, whatever they look"
    )


class SubmitJobs(Frozen):
    """Several submissions in one message and one durable batch, answered in order."""

    kind: Literal["submit_jobs"] = "submit_jobs"
    jobs: tuple[SubmitJob, ...] = Field(
        min_length=1, max_length=limits.BATCH_JOBS_MAX, description="The submissions"
    )
    environments: tuple[Environment, ...] = Field(
        default=(),
        max_length=limits.BATCH_JOBS_MAX,
        description="Environments that several of the submissions share",
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
    job: JobSelector = Field(description="j-12 or 12, a prefix of the long id, last, or tag:TEXT")


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
    jobs: tuple[JobSelector, ...] = Field(
        min_length=1, max_length=limits.CANCEL_JOBS_MAX, description="Jobs"
    )
    peer: PeerId | None = Field(default=None, description="Who asks; absent: the operator")
    reason: Reason = Field(default="cancelled", description="Kept with the job and shown")
    running: bool = Field(default=False, description="Also end running ones: TERM, grace, KILL")
    presume_dead: bool = Field(
        default=False,
        description="The operator's word, kept: nothing lives of running ones out of sight",
    )
    admission_timeout: bool = Field(
        default=False,
        description="Withdraw only if still queued; frees the tag if nothing of it ever ran",
    )


class RetryJob(Frozen):
    """`submit_job` with `retry_terminal` under the stored tag, profile and class."""

    kind: Literal["retry_job"] = "retry_job"
    job: JobSelector = Field(description="Job that ended badly")
    retry_of: FollowedAttempt | None = Field(
        default=None, description="The attempt that this retry follows; absent: the last one"
    )
    lost: bool = Field(
        default=False, description="Also one that ran and whose end is not known: it runs twice"
    )
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


class ReportProgress(Frozen):
    """How far a running attempt has come, told by a process of its own. Not durable.

    Telemetry: it decides nothing. Taken from the run's own user alone, for an attempt of which
    anything lives: from its evaluator's process group by the sender's word, from any other when the
    kernel has the sender below the attempt's shim.
    """

    kind: Literal["report_progress"] = "report_progress"
    attempt: AttemptId = Field(description="The sender's attempt")
    pgid: int = Field(ge=0, le=2**31, description="The sender's process group")
    done: int = Field(ge=0, le=limits.PROGRESS_STEPS_MAX, description="Steps done")
    total: int = Field(ge=1, le=limits.PROGRESS_STEPS_MAX, description="Steps in all")
    text: str = Field(
        default="",
        max_length=limits.PROGRESS_TEXT_BYTES_MAX,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="In words, one line; at most 1 KiB",
    )


GenerationNumber = Annotated[int, Field(ge=0, le=1_000_000)]


class OpenGeneration(Frozen):
    """Take work for a generation from now on; it becomes the current one. Of one that was opened
    before, `cohort_size`, `mature_quorum` and `peers` stay as they were where they are absent."""

    kind: Literal["open_generation"] = "open_generation"
    generation: GenerationNumber = Field(description="Its number")
    cohort_size: int | None = Field(default=None, ge=1, le=1_000_000, description="Its peers")
    deadline_seconds: float | None = Field(
        default=None, gt=0, le=31_536_000, description="From now; absent: it has no deadline"
    )
    mature_quorum: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Distinct mature peers a close needs"
    )
    peers: tuple[PeerId, ...] = Field(default=(), max_length=4096, description="Its peers in order")
    publish_completed: bool = Field(
        default=False, description="Mature work that completes counts as published"
    )
    rerun: bool = Field(default=False, description="Free the tags that its close refused")


class AssessGeneration(Frozen):
    """Take only mature work from now on."""

    kind: Literal["assess_generation"] = "assess_generation"
    generation: GenerationNumber = Field(description="Its number")
    reason: Reason = Field(default="assessment", description="Kept and shown")


class FreezeGeneration(Frozen):
    """Start nothing more of a generation, and reject its queue."""

    kind: Literal["freeze_generation"] = "freeze_generation"
    generation: GenerationNumber | None = Field(
        default=None, description="Its number; null: every generation, and the run's admission"
    )
    reason: Reason = Field(default="frozen", description="Kept and shown")
    signal: bool = Field(default=False, description="Write CLOSING_SIGNAL: it is closing")


class ShowGeneration(Frozen):
    """One generation with its counters and its maturity."""

    kind: Literal["show_generation"] = "show_generation"
    generation: GenerationNumber | None = Field(default=None, description="Absent: the current one")


class PublishResult(Frozen):
    """Evidence of a generation. Telling the same again changes nothing."""

    kind: Literal["publish_result"] = "publish_result"
    tag: Tag = Field(description="Tag of the experiment")
    peer: PeerId | None = Field(default=None, description="Absent: the peer of the tag's job")
    mature: bool = Field(default=False, description="Whether it is close-grade")
    generation: GenerationNumber | None = Field(default=None, description="Absent: the current one")
    source: Literal["peer", "store"] = Field(default="peer", description="Where it is known from")


class ListResults(Frozen):
    """Published evidence of a generation, the newest where there is more than `limit`."""

    kind: Literal["list_results"] = "list_results"
    generation: GenerationNumber | None = Field(default=None, description="Absent: the current one")
    limit: int = Field(
        default=limits.LIST_RESULTS_MAX,
        ge=1,
        le=limits.LIST_RESULTS_MAX,
        description="At most so many",
    )


class RegisterIdle(Frozen):
    """A peer has finished its session and would take a lease. Its registration is kept until it
    is withdrawn, and survives no restart: clients send it again on a new epoch."""

    kind: Literal["register_idle"] = "register_idle"
    peer: PeerId = Field(description="Peer")
    generation: GenerationNumber | None = Field(
        default=None, description="Absent: that of the peer's name, else the current one"
    )


class UnregisterIdle(Frozen):
    """The peer takes no lease any more; one that it has is revoked."""

    kind: Literal["unregister_idle"] = "unregister_idle"
    peer: PeerId = Field(description="Peer")


class GetLease(Frozen):
    """The peer's live lease: the snapshot that its subscription starts from."""

    kind: Literal["get_lease"] = "get_lease"
    peer: PeerId = Field(description="Peer")


class DeclineLease(Frozen):
    """The peer has nothing planned that fits. It cools down for a while."""

    kind: Literal["decline_lease"] = "decline_lease"
    peer: PeerId = Field(description="Peer")
    lease_id: str | None = Field(default=None, max_length=128, description="Absent: its live one")
    reason: Reason = Field(default="nothing planned", description="Kept and shown")


class ListLeases(Frozen):
    """Live leases, the newest ended ones, waiters and statistics."""

    kind: Literal["list_leases"] = "list_leases"


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
    | ValidateAttempt
    | ReportProgress
    | OpenGeneration
    | AssessGeneration
    | FreezeGeneration
    | ShowGeneration
    | PublishResult
    | ListResults
    | RegisterIdle
    | UnregisterIdle
    | GetLease
    | DeclineLease
    | ListLeases,
    Field(discriminator="kind"),
]


class RequestEnvelope(Frozen):
    """The body of every request frame."""

    request_id: RequestId = Field(description="Chosen by the client; the same when it resends")
    request: Request = Field(description="What is asked")
