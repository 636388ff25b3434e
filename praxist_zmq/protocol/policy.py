"""The resource contract: `compute_budget.resource_scheduler` of a task file, normalised.

These models hold a contract after reading: types are strict, in-range values are as they will be
used. Reading, normalisation and its warnings are `service.policy_file`'s work.
Source: seed 000 "Task Contract" and seed 001; bounds as in the reference of the original system.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import Frozen
from .ids import ProfileName

PressureDomain = Literal["cpu", "memory", "io", "gpu"]
WorkClass = Literal["scout", "ordinary", "mature"]
Priority = Literal["mature", "frontier_followup"]
"""What a lease asks for."""


class Profile(Frozen):
    """The declared shape of one kind of experiment."""

    accelerator: Literal["cpu", "gpu"] = Field(
        default="cpu", description="Device class; another class is never used in its place"
    )
    gpu_count: int = Field(default=0, ge=0, le=1024, description="Devices that one attempt needs")
    gpu_memory_gb: float | None = Field(
        default=None,
        gt=0,
        description="Peak memory on each device, GiB; left out: unknown, devices held alone",
    )
    gpu_utilization_pct: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="Utilisation of each device, percent; left out: unknown, devices held alone",
    )
    pressure_domains: tuple[PressureDomain, ...] = Field(
        default=("cpu", "memory"),
        description="Kinds of host pressure that hold this profile back; an empty list is none",
    )
    on_lost: Literal["hold", "requeue"] = Field(
        default="hold",
        description="What follows for a job that ran and whose end is not known, once its "
        "processes are proved gone. hold: drained_unknown, until `retry --lost`; requeue: run "
        "again, as one of its automatic retries",
    )


class SchedulerPolicy(Frozen):
    """All settings of one run's scheduler, recorded in the ledger when they take effect."""

    mode: Literal["legacy", "central"] = Field(
        default="central",
        description="central: the scheduler starts experiments, `up` serves it; legacy: no "
        "scheduler, peers start their own",
    )
    max_concurrent_experiments: int = Field(
        default=1, ge=1, description="The most experiments at a time"
    )
    min_concurrent_experiments: int = Field(
        default=1, ge=1, description="The limit falls no lower than this"
    )
    initial_concurrent_experiments: int = Field(
        default=1, ge=1, description="The limit at start, before pressure moves it"
    )
    cpu_low_pct: float = Field(
        default=65.0, ge=0, le=100, description="CPU use at or below which the limit may rise"
    )
    cpu_high_pct: float = Field(
        default=92.0, ge=0, le=100, description="CPU use at or over which the limit falls"
    )
    memory_high_pct: float = Field(
        default=95.0, ge=0, le=100, description="Memory use at or over which the limit falls"
    )
    io_pressure_high_pct: float = Field(
        default=35.0, ge=0, le=100, description="I/O pressure at or over which it falls"
    )
    adjustment_interval_seconds: float = Field(
        default=20.0, ge=2, description="Least time between two changes of the limit, seconds"
    )
    exploration_reserve: int = Field(
        default=1, ge=0, description="Slots kept from mature work while other work is queued"
    )
    infrastructure_retries: int = Field(
        default=1, ge=0, description="Automatic retries of an attempt that exits with 75"
    )
    infrastructure_retry_pause_seconds: float = Field(
        default=30.0,
        ge=0,
        le=600,
        description="Pause before the first automatic retry, seconds; each further one waits twice "
        "as long, ten minutes at most",
    )
    experiment_log_max_gb: float = Field(
        default=10.0,
        ge=0.001,
        le=1_000_000,
        description="The most that the log of one attempt takes of the disk, GiB; over it the "
        "middle is taken out, head and tail stay",
    )
    deadline_admission: bool = Field(
        default=True, description="Refuse what cannot end before the generation's deadline"
    )
    supply_signal_enabled: bool = Field(
        default=True, description="Whether idle peers are offered leases"
    )
    supply_idle_samples: int = Field(
        default=3, ge=2, le=12, description="Samples with room, in a row, before a lease is offered"
    )
    supply_lease_seconds: int = Field(
        default=600,
        ge=180,
        le=3600,
        description="How long an idle peer may answer a lease, seconds; it limits no experiment",
    )
    mature_supply_fraction: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="Share of a generation's peers whose mature results are wanted; 0: none",
    )
    mature_supply_redundancy: float = Field(
        default=3.0,
        ge=0,
        le=10,
        description="How many mature attempts are supplied for each result wanted; 0: none",
    )
    mature_assessment_min_completion_probability: float = Field(
        default=0.25,
        ge=0.25,
        le=1,
        description="Chance to end in time that mature work needs during assessment, at least",
    )
    max_parallel_runs_per_peer: int | None = Field(
        default=None,
        ge=1,
        description="Running jobs of one peer; set by `up`, not by the contract; null is no cap",
    )
    default_profile: ProfileName = Field(
        default="default", description="The profile of a submission that names none"
    )
    profiles: dict[ProfileName, Profile] = Field(
        default_factory=lambda: {"default": Profile()},
        description="The kinds of experiment, by name",
    )
