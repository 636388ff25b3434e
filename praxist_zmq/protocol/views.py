"""What readers are shown: jobs, devices, processes and blockers as interface `--json` has them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import Frozen
from .job_states import JobState
from .policy import Priority, WorkClass
from .process import ProcessIdentity

BlockerCode = Literal[
    "generation_frozen",
    "assessment_mature_only",
    "eta_does_not_fit",
    "low_completion_probability",
    "peer_cap",
    "run_limit",
    "host_limit",
    "pressure_cpu",
    "pressure_memory",
    "pressure_io",
    "gpu_compute_short",
    "gpu_memory_short",
    "gpu_count_short",
    "gpu_needs_exclusive",
    "gpu_held_exclusive",
    "gpu_held_elsewhere",
    "gpu_reserved",
    "fair_share",
    "probe_unknown",
    "probe_unavailable",
    "recovery_pending",
    "registry_refused",
    "queue_order",
    "credentials_missing",
    "admission_closed",
    "placement_paused",
    "retry_pause",
    "disk_full",
    "host_shortage",
    "profile_undeclared",
]


class Blocker(Frozen):
    """One reason why a job does not start now, with its numbers."""

    code: BlockerCode = Field(description="From the closed list")
    detail: str = Field(description="The same in words", max_length=500)
    need: float | None = Field(default=None, description="What the job needs, in `unit`")
    free: float | None = Field(default=None, description="What is free at best, in `unit`")
    limit: float | None = Field(default=None, description="The limit that holds, in `unit`")
    unit: str | None = Field(default=None, description="jobs, devices, percent_points, MiB, inodes")


ActivityState = Literal[
    "gpu_compute_active",
    "gpu_context_idle",
    "gpu_context_present",
    "no_gpu_process_observed",
    "gpu_process_attribution_unavailable",
    "non_gpu_allocation",
    "unknown",
]
Attribution = Literal["complete", "partial", "unavailable", "not_applicable"]


class ResourceActivity(Frozen):
    """What the driver sees a running job do. Telemetry: it decides nothing."""

    state: ActivityState = Field(description="As in seed 000, State And Compatibility")
    attribution: Attribution = Field(description="Whether processes could be told apart")
    gpu_processes: int | None = Field(description="Its processes on its devices")
    gpu_memory_mb: int | None = Field(description="Their device memory, MiB")
    gpu_utilization_pct: float | None = Field(description="Their busy share, all devices together")
    observed_at: str | None = Field(description="RFC 3339, UTC")


class MaturityView(Frozen):
    """The evidence controller of a generation. Source: seed 000 "Mature Evidence"."""

    counted_in: Literal["results", "peers"] = Field(
        description="Unique results, or distinct peers where a hard quorum is set"
    )
    target: int = Field(description="Q; 0 switches the controller off")
    completed: int = Field(description="M, already published")
    debt: int = Field(description="D = max(0, Q - M)")
    target_inflight: int = Field(description="min(cohort, ceil(redundancy x D))")
    inflight_jobs: int = Field(description="Queued and running mature identities that count")
    priority_leases: int = Field(description="Live leases of mature priority")
    needed_inflight: int = Field(description="What is still to be offered")


class GenerationView(Frozen):
    """One generation."""

    generation: int = Field(description="Its number")
    state: Literal["open", "assessment", "frozen", "closed"] = Field(
        description="frozen: what runs goes on; closed: nothing of it runs"
    )
    reason: str | None = Field(description="Why it is not open")
    opened_at: str = Field(description="RFC 3339, UTC")
    deadline: str | None = Field(description="RFC 3339, UTC; null is never")
    cohort_size: int | None = Field(description="Its peers; null is unknown")
    mature_quorum: int | None = Field(description="Hard quorum of distinct mature peers")
    publish_completed: bool = Field(description="Mature work that completes counts as published")
    jobs: dict[str, int] = Field(description="Its jobs by state")
    attempts: int = Field(description="Allocations since it was opened")
    results: int = Field(description="Published results")
    maturity: MaturityView = Field(description="The evidence controller")
    advice: dict[str, Literal["direct_mature", "explore"]] = Field(
        description="First wave, by peer; empty where no peers were named or no target is set"
    )


class ResultView(Frozen):
    """One piece of published evidence."""

    generation: int = Field(description="Generation")
    tag: str = Field(description="Tag")
    peer: str | None = Field(description="Whose")
    mature: bool = Field(description="Whether it is close-grade")
    source: str = Field(description="peer, completion, store")
    published_at: str = Field(description="RFC 3339, UTC")


class LeaseView(Frozen):
    """One supply lease. It names no device and reserves none for an experiment."""

    lease_id: str = Field(description="Locator that the submission carries")
    peer: str = Field(description="Whom it is for")
    generation: int = Field(description="Generation")
    priority: Priority = Field(description="What is asked for")
    profiles: tuple[str, ...] = Field(description="Profiles that could start when it was granted")
    state: Literal["out", "consumed", "declined", "expired", "revoked"] = Field(
        description="out: the peer may answer"
    )
    reason: str | None = Field(description="Why it ended")
    job: str | None = Field(description="Job that consumed it")
    issued_at: str = Field(description="RFC 3339, UTC")
    expires_at: str = Field(description="RFC 3339, UTC")
    left_s: float | None = Field(description="Seconds to answer; null when it ended")
    release_pending: bool = Field(
        default=False, description="Ended, and its host claim is still to be given back"
    )
    detail: str | None = Field(default=None, description="What the peer said when it declined")
    cooling_s: float | None = Field(
        default=None, description="So long its peer is offered nothing of this priority"
    )


class SupplyCounts(Frozen):
    """What became of offers, over all restarts of the run."""

    granted: int = Field(default=0, description="Offers made")
    consumed: int = Field(default=0, description="A job came of them")
    declined: int = Field(default=0, description="The peer had nothing planned")
    expired: int = Field(default=0, description="The window went by")
    revoked: int = Field(default=0, description="Taken back")
    outstanding: int = Field(default=0, description="Still out")
    conversion_rate: float | None = Field(
        default=None, description="consumed / granted; null if none was granted"
    )
    stale_submission: int = Field(default=0, description="Locators that were worth nothing")
    reuse_ignored: int = Field(default=0, description="Locators that were consumed before")


class SupplyStats(SupplyCounts):
    """The same, and by priority; a locator that nobody knows has none."""

    by_priority: dict[Priority, SupplyCounts] = Field(description="mature, frontier_followup")


class DeviceVerdict(Frozen):
    """One device against what one job needs; memory in MiB, utilisation in percent points."""

    index: int = Field(description="Driver's index, for display only")
    uuid: str = Field(description="Device")
    fits: bool = Field(description="Whether the job could be placed here now")
    verdict: str = Field(description="In words, with what is short", max_length=500)
    need_memory_mib: int | None = Field(description="Declared; null is unknown: exclusive")
    need_utilization_pct: float | None = Field(description="Declared; null is unknown: exclusive")
    memory_total_mib: int | None = Field(description="Physical memory")
    memory_limit_mib: int | None = Field(description="Of it may be promised")
    declared_memory_mib: int = Field(description="Held by allocations of all runs")
    declared_utilization_pct: float = Field(description="Held by allocations of all runs")
    external_memory_mib: int | None = Field(description="In use by others")
    external_utilization_pct: float | None = Field(description="Busy share of others")
    free_memory_mib: int | None = Field(description="Below the limit; null is unknown")
    free_utilization_pct: float | None = Field(description="Below 100; null is unknown")
    jobs: tuple[str, ...] = Field(description="Jobs of this run on it")
    external: tuple[str, ...] = Field(
        description="Processes of others: `pid 881 python, user dana`"
    )


class WouldStart(Frozen):
    """One thing that, happening alone or after those before it, lets the job start."""

    event: str = Field(description="In words", max_length=500)
    job: str | None = Field(description="Job of this run that would end; null for another cause")
    after: tuple[str, ...] = Field(
        default=(), description="Jobs of this run that must have ended before it, in order"
    )
    likely_s: float | None = Field(description="Median seconds from now; null is unknown")
    by_s: float | None = Field(description="90 % of such times are below; null is unknown")


class StartEstimate(Frozen):
    """When a waiting job is expected to start, seconds from now; null is unknown."""

    likely_s: float | None = Field(description="Median")
    by_s: float | None = Field(description="90 % of such waits are shorter")


class Progress(Frozen):
    """How far a job has come, by its own word. Telemetry: it decides nothing."""

    done: int = Field(description="Steps done; never goes back within an attempt")
    total: int = Field(description="Steps in all")
    text: str = Field(description="In words; may be empty")
    at: str = Field(description="When it was told, RFC 3339, UTC")


class JobView(Frozen):
    """One job as `show` and `queue` tell it. Command and environment are not part of it."""

    job: str = Field(description="Short id, `j-12`")
    job_id: str = Field(description="Long id")
    run_id: str = Field(description="Run")
    generation: int = Field(description="Generation the job belongs to")
    tag: str = Field(description="Scientific identity within run and generation")
    peer: str = Field(description="Peer that submitted it first")
    profile: str = Field(description="Resource profile")
    work_class: WorkClass = Field(description="scout, ordinary or mature")
    state: JobState = Field(description="State")
    attempts: int = Field(description="Attempts that were allocated and not withdrawn")
    attempt: str | None = Field(description="Latest attempt")
    pid: int | None = Field(
        description="Evaluator's process id while it runs; null when it is of another PID namespace"
    )
    pgid: int | None = Field(description="Evaluator's process group while it runs")
    gpu_uuids: tuple[str, ...] = Field(description="Devices of the latest attempt, in order")
    exit_code: int | None = Field(description="Exit status; null when unknown or by signal")
    signal: int | None = Field(description="Signal that ended it")
    submitted_at: str = Field(description="RFC 3339, UTC")
    queued_at: str | None = Field(
        default=None, description="When it was last put in the queue; waiting counts from here"
    )
    started_at: str | None = Field(description="RFC 3339, UTC; latest attempt")
    ended_at: str | None = Field(description="RFC 3339, UTC")
    eta_seconds: float | None = Field(description="Run time the submitter expects")
    lease_id: str | None = Field(description="Lease it was submitted under")
    blockers: tuple[Blocker, ...] = Field(description="Why it waits; empty when it does not")
    queue_blocked_reason: str | None = Field(description="The original system's coarse word")
    reject_code: str | None = Field(description="Row of the error table; only when rejected")
    failure_category: str | None = Field(
        description="By the facts of its end: infrastructure, interrupted, experiment, ..."
    )
    failure_signature: str | None = Field(
        description="The last line of its log that looks like an error, else the last"
    )
    failure_hint: str | None = Field(
        default=None,
        description="What may be behind a failure: a disk that was full, words of its log",
    )
    log_path: str | None = Field(description="Log of the latest attempt")
    binding_status: str | None = Field(description="verified, conflict, unobserved")
    depends_on: tuple[str, ...] = Field(description="Jobs it waits for")
    version: int = Field(description="Ledger sequence of the job's latest event")
    note: str | None = Field(
        description="Anything unusual: escaped, unkillable, out of sight, cancelling"
    )
    resource_activity: ResourceActivity | None = Field(
        default=None, description="Of a running job; null when it does not run"
    )
    left_s: float | None = Field(
        default=None,
        description="Median seconds that a running job has left, learnt from those that ended; "
        "null is unknown",
    )
    progress: Progress | None = Field(
        default=None, description="Of a running job that tells it; null otherwise"
    )
    process: ProcessIdentity | None = Field(
        default=None, description="The evaluator while it runs: its whole identity"
    )


class HoldingRun(Frozen):
    """Another run that holds something."""

    run_id: str = Field(description="Its name; the head of its key where no name is known")
    down: bool = Field(description="Whether no scheduler serves it: its experiments go on")


class DeviceView(Frozen):
    """One device as `gpus` tells it."""

    index: int = Field(description="Driver's index, for display only")
    uuid: str = Field(description="The device's name everywhere else")
    name: str | None = Field(description="Product name")
    state: Literal["available", "unavailable", "unsupported", "unknown", "lost"] = Field(
        description="What the driver says of it"
    )
    memory_total_mib: int | None = Field(description="Physical memory")
    memory_used_mib: int | None = Field(description="In use by anyone")
    utilization_pct: float | None = Field(description="Busy share as the driver reads it")
    declared_memory_mib: int = Field(description="Sum of what its jobs declared")
    declared_utilization_pct: float = Field(description="Sum of what its jobs declared")
    external_memory_mib: int | None = Field(description="In use by others")
    external_utilization_pct: float | None = Field(description="Busy share of others")
    exclusive: bool = Field(description="Whether one job holds it alone")
    jobs: tuple[str, ...] = Field(description="Jobs of this run on it")
    runs: tuple[str, ...] = Field(description="Runs with an allocation on it")
    other_runs: tuple[HoldingRun, ...] = Field(
        default=(), description="Those of them that are not this run"
    )
    free_memory_mib: int | None = Field(default=None, description="To promise; null is unknown")
    free_utilization_pct: float | None = Field(
        default=None, description="Below 100 %; null is unknown"
    )
    attribution: Attribution = Field(
        default="unavailable", description="Whether its processes could be told apart"
    )
    external: tuple[str, ...] = Field(
        default=(), description="Processes of others: `pid 881 python, user dana`"
    )
    reason: str | None = Field(
        default=None, description="Why it is not available, or who shares it that should not"
    )
    held_elsewhere: str | None = Field(
        default=None, description="Which other host scope holds it, in words; then it is not ours"
    )


class ProcessView(Frozen):
    """One process of ours."""

    name: str = Field(description="supervisor, broker, gateway, sampler, launcher, supply, zygote")
    pid: int = Field(description="Process id")
    up_s: float = Field(description="Seconds since it started")
    restarts: int = Field(description="Times it was started again by this supervisor")


class HostLoad(Frozen):
    """Host pressure as last sampled."""

    cpu_pct: float | None = Field(description="Busy share of all cores")
    memory_pct: float | None = Field(description="Memory not available")
    io_pct: float | None = Field(description="PSI some avg10 of I/O")
    age_s: float | None = Field(description="Age of the sample")
