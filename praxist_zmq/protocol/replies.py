"""What the broker answers. Every reply echoes the request id in its envelope."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from .base import Frozen
from .ids import RequestId
from .policy import SchedulerPolicy
from .views import (
    Blocker,
    DeviceVerdict,
    DeviceView,
    GenerationView,
    HostLoad,
    JobView,
    LeaseView,
    MaturityView,
    ProcessView,
    Progress,
    ResultView,
    StartEstimate,
    SupplyStats,
    WouldStart,
)

Verdict = Literal[
    "started", "queued", "would_queue", "joined", "done", "retrying", "rejected", "unavailable"
]


class Pong(Frozen):
    """The broker's loop turned."""

    kind: Literal["pong"] = "pong"
    run_id: str = Field(description="Run")
    epoch: int = Field(description="The broker's epoch")


class Refusal(Frozen):
    """No, and why. `code` is a row of the error table."""

    kind: Literal["refusal"] = "refusal"
    code: str = Field(description="Row of the error table")
    detail: str = Field(description="What and where, in one sentence")
    help: tuple[str, ...] = Field(default=(), description="How to mend it")
    job: JobView | None = Field(default=None, description="The job it is about")


class Submitted(Frozen):
    """A submission was accepted and is on disk, or joined what was there."""

    kind: Literal["submitted"] = "submitted"
    verdict: Verdict = Field(description="First word for the caller")
    new: bool = Field(description="Whether this request created or revived the job")
    profile_source: Literal["named", "default", "stored"] = Field(description="Where from")
    notes: tuple[str, ...] = Field(default=(), description="What the caller should know")
    job: JobView = Field(description="The job")


class SubmittedJobs(Frozen):
    """Answers to `submit_jobs`, in its order."""

    kind: Literal["submitted_jobs"] = "submitted_jobs"
    results: tuple[Submitted | Refusal, ...] = Field(description="One a submission")


class JobReply(Frozen):
    """One job."""

    kind: Literal["job"] = "job"
    job: JobView = Field(description="The job")


class JobsReply(Frozen):
    """Several jobs."""

    kind: Literal["jobs"] = "jobs"
    jobs: tuple[JobView, ...] = Field(description="In queue order")
    total: int = Field(description="How many matched; more than `jobs` when cut")
    concurrency_limit: int = Field(description="How many may run at once")
    counts: dict[str, int] = Field(description="Jobs of the run by state")
    limit_range: tuple[int, int] | None = Field(
        default=None, description="Bounds between which the limit follows the host"
    )
    limit_note: str | None = Field(
        default=None, description="Why the limit is below its bound, and what raises it; in words"
    )


class Gate(Frozen):
    """One test of admission."""

    name: str = Field(description="run limit, devices, ...")
    state: Literal["ok", "blocked", "unknown"] = Field(description="Result")
    detail: str = Field(description="With numbers")


class Explanation(Frozen):
    """Why a job waits, or how it ended."""

    kind: Literal["explanation"] = "explanation"
    job: JobView | None = Field(description="The job; null for a profile")
    verdict: str = Field(description="One sentence")
    position: int | None = Field(
        description="Place by class and age; not always the order of the starts"
    )
    gates: tuple[Gate, ...] = Field(description="Every gate, passed or not")
    blockers: tuple[Blocker, ...] = Field(description="The gates that are blocked")
    options: tuple[str, ...] = Field(description="What the peer can do")
    devices: tuple[DeviceVerdict, ...] = Field(
        default=(), description="Each device against the job; empty when it needs none"
    )
    would_start: tuple[WouldStart, ...] = Field(
        default=(), description="What would let it start, likeliest first"
    )
    start_estimate: StartEstimate | None = Field(
        default=None, description="The earliest of these; null when none can be told"
    )
    snapshot: dict[str, Any] = Field(
        default_factory=dict, description="The facts it rests on, with their ages"
    )


class StatusReply(Frozen):
    """The run's state; also the text of `status.json`."""

    kind: Literal["status"] = "status"
    run_id: str = Field(description="Run")
    run_dir: str = Field(description="Its directory")
    health: Literal["healthy", "troubled", "down"] = Field(description="In one word")
    warnings: tuple[str, ...] = Field(
        description="What an operator should look at; the alarms come first"
    )
    alarms: tuple[str, ...] = Field(
        default=(), description="What keeps the whole run from getting anywhere"
    )
    processes: tuple[ProcessView, ...] = Field(description="Our processes")
    jobs: dict[str, int] = Field(description="Jobs by state")
    jobs_total: int = Field(description="All jobs ever accepted")
    concurrency_limit: int = Field(description="How many may run at once")
    max_parallel_runs_per_peer: int | None = Field(
        default=None, description="How many of one peer may run at once; null is no cap"
    )
    host: HostLoad = Field(description="Host pressure")
    accelerator_probe: dict[str, str | None] = Field(description="state and reason")
    queue_blocked_reasons: dict[str, int] = Field(description="Queued jobs by coarse reason")
    running_activity: dict[str, Any] = Field(description="What running jobs are seen doing")
    generation: dict[str, Any] = Field(description="number, state, deadline, cohort_size")
    resource_supply: dict[str, Any] = Field(description="leases, idle_waiters, stats, maturity")
    simulated: bool = Field(description="Whether the devices are simulated")
    epoch: int = Field(description="The broker's epoch")
    sequence: int = Field(description="Last ledger sequence")
    ledger_bytes: int = Field(description="Size of the ledger on disk")
    counters: dict[str, int] = Field(description="Refusals and the like since start")
    at: str = Field(description="When this was true, RFC 3339, UTC")
    limits: dict[str, Any] = Field(
        default_factory=dict,
        description="Bounds of the limit, its last change and why, and the high marks of pressure",
    )


class DevicesReply(Frozen):
    """Devices."""

    kind: Literal["devices"] = "devices"
    devices: tuple[DeviceView, ...] = Field(description="By index")
    simulated: bool = Field(description="Whether they are simulated")


class PolicyReply(Frozen):
    """The contract in force."""

    kind: Literal["policy"] = "policy"
    policy: SchedulerPolicy = Field(description="All its values, as they are used")
    generation: int = Field(description="Open generation")
    is_default: bool = Field(description="Whether no contract was ever given, or only defaults")


class EventLine(Frozen):
    """One ledger event for readers: no command, no environment."""

    sequence: int = Field(description="Ledger sequence")
    at: str = Field(description="RFC 3339, UTC")
    type: str = Field(description="Event kind")
    job: str | None = Field(description="Job it is about")
    attempt: str | None = Field(description="Attempt it is about")
    text: str = Field(description="The same in plain words")


class EventsReply(Frozen):
    """A piece of the history."""

    kind: Literal["events"] = "events"
    events: tuple[EventLine, ...] = Field(description="In order")
    epoch: int = Field(description="Publisher epoch that the sequence belongs to")
    last_sequence: int = Field(description="Newest sequence in the ledger")
    first_sequence: int = Field(description="Oldest sequence still in memory")


class CancelResult(Frozen):
    """What became of one job of a cancel request."""

    job: str = Field(description="Job as named in the request")
    outcome: Literal["cancelled", "ending", "refused"] = Field(description="Outcome")
    code: str | None = Field(description="Row of the error table when refused")
    detail: str = Field(description="In words")
    frees_tag: bool = Field(
        default=False, description="Nothing ran, and the tag may be used for other science"
    )


class CancelledJobs(Frozen):
    """Answers to `cancel_jobs`, in its order."""

    kind: Literal["cancelled_jobs"] = "cancelled_jobs"
    results: tuple[CancelResult, ...] = Field(description="One a job")


class AttemptValidated(Frozen):
    """Whether the caller is part of a running attempt. Only yes lets a launch nest."""

    kind: Literal["attempt_validated"] = "attempt_validated"
    inside: bool = Field(description="Whether it is")
    attempt: str = Field(description="The attempt that was asked about")
    job: str | None = Field(description="Its job, when the caller is inside")
    reason: str = Field(description="Why not, in words")


class Stopping(Frozen):
    """The run is fenced; what will be ended."""

    kind: Literal["stopping"] = "stopping"
    dry_run: bool = Field(description="Whether nothing was changed")
    rejected: tuple[str, ...] = Field(description="Queued jobs, rejected")
    ending: tuple[str, ...] = Field(description="Running jobs, told to end")


class ProgressNoted(Frozen):
    """What is shown of the attempt's progress now."""

    kind: Literal["progress_noted"] = "progress_noted"
    taken: bool = Field(description="False: it would have gone back, so the newer one was kept")
    progress: Progress = Field(description="What is shown")


class GenerationReply(Frozen):
    """A generation as it is after the request."""

    kind: Literal["generation"] = "generation"
    generation: GenerationView = Field(description="The generation; of all, the current one")
    rejected: tuple[str, ...] = Field(default=(), description="Queued jobs that were rejected")
    draining: tuple[str, ...] = Field(default=(), description="Jobs of it that run on")


class ResultNoted(Frozen):
    """A result is on disk, or was already."""

    kind: Literal["result_noted"] = "result_noted"
    new: bool = Field(description="Whether it was not known")
    result: ResultView = Field(description="The result")
    notes: tuple[str, ...] = Field(default=(), description="What the sender should know")


class ResultsReply(Frozen):
    """Published evidence, in the order in which it was published."""

    kind: Literal["results"] = "results"
    results: tuple[ResultView, ...] = Field(description="The results")
    total: int = Field(description="All there are")
    maturity: MaturityView = Field(description="The evidence controller")


class LeaseReply(Frozen):
    """A peer's live lease at one sequence of lease facts; also the body of `lease/<peer>`."""

    kind: Literal["lease"] = "lease"
    peer: str = Field(description="Peer")
    lease: LeaseView | None = Field(description="Its live lease; null when it has none")
    waiting: bool = Field(description="Whether it is registered as idle")
    epoch: int = Field(description="The broker's epoch")
    sequence: int = Field(description="Grows with every fact about leases, within the epoch")
    last: LeaseView | None = Field(
        default=None, description="Its newest ended lease, while it has none"
    )
    cooling_s: float | None = Field(
        default=None, description="It declined: so long it is offered nothing of some priority"
    )
    note: str | None = Field(
        default=None, description="Of a registration: that its name's generation is not taken"
    )


class LeaseDeclined(Frozen):
    """The offer is over; how it ended."""

    kind: Literal["lease_declined"] = "lease_declined"
    lease: LeaseView = Field(description="The lease; expired where the answer came too late")


class LeasesAlive(Frozen):
    """Body of the topic `leases`: the sequence, so that a lost last message is noticed."""

    kind: Literal["leases_alive"] = "leases_alive"
    epoch: int = Field(description="The broker's epoch")
    sequence: int = Field(description="Of the last fact about leases")


class LeasesReply(Frozen):
    """All leases in memory, live ones first."""

    kind: Literal["leases"] = "leases"
    leases: tuple[LeaseView, ...] = Field(description="Live, then ended ones, newest first")
    idle: tuple[str, ...] = Field(description="Peers that wait, longest first")
    stats: SupplyStats = Field(description="Over all restarts")


class Done(Frozen):
    """Yes."""

    kind: Literal["done"] = "done"


Reply = Annotated[
    Pong
    | Refusal
    | Submitted
    | SubmittedJobs
    | JobReply
    | JobsReply
    | Explanation
    | StatusReply
    | DevicesReply
    | PolicyReply
    | EventsReply
    | CancelledJobs
    | Stopping
    | AttemptValidated
    | ProgressNoted
    | Done
    | GenerationReply
    | ResultNoted
    | ResultsReply
    | LeaseReply
    | LeaseDeclined
    | LeasesReply,
    Field(discriminator="kind"),
]


class ReplyEnvelope(Frozen):
    """The body of every reply frame."""

    request_id: RequestId | None = Field(description="Of the request; null when unreadable")
    reply: Reply = Field(description="The answer")
