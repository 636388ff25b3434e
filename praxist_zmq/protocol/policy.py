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


class Profile(Frozen):
    """The declared shape of one kind of experiment."""

    accelerator: Literal["cpu", "gpu"] = Field(default="cpu", description="Device class")
    gpu_count: int = Field(default=0, ge=0, le=1024, description="Devices one attempt needs")
    gpu_memory_gb: float | None = Field(
        default=None, gt=0, description="Peak device memory in GiB; absent is unknown: exclusive"
    )
    gpu_utilization_pct: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="Device utilisation in percent points; absent is unknown: exclusive",
    )
    pressure_domains: tuple[PressureDomain, ...] = Field(
        default=("cpu", "memory"), description="Host pressure that holds this profile back"
    )


class SchedulerPolicy(Frozen):
    """All settings of one run's scheduler, recorded in the ledger when they take effect."""

    mode: Literal["legacy", "central"] = Field(
        default="central", description="Only `central` is served"
    )
    max_concurrent_experiments: int = Field(default=1, ge=1, description="Upper bound of the limit")
    min_concurrent_experiments: int = Field(default=1, ge=1, description="Lower bound of the limit")
    initial_concurrent_experiments: int = Field(default=1, ge=1, description="The limit at start")
    cpu_low_pct: float = Field(default=65.0, ge=0, le=100, description="Below: the limit may rise")
    cpu_high_pct: float = Field(default=92.0, ge=0, le=100, description="At or over: it falls")
    memory_high_pct: float = Field(default=95.0, ge=0, le=100, description="High mark of memory")
    io_pressure_high_pct: float = Field(default=35.0, ge=0, le=100, description="High mark of I/O")
    adjustment_interval_seconds: float = Field(default=20.0, ge=2, description="Between changes")
    exploration_reserve: int = Field(
        default=1, ge=0, description="Slots kept from mature work while other work is queued"
    )
    infrastructure_retries: int = Field(
        default=1, ge=0, description="Automatic retries of an attempt that exits with 75"
    )
    deadline_admission: bool = Field(default=True, description="Refuse what cannot end in time")
    supply_signal_enabled: bool = Field(default=True, description="Whether leases are offered")
    supply_idle_samples: int = Field(default=3, ge=2, le=12, description="Good samples in a row")
    supply_lease_seconds: int = Field(default=600, ge=180, le=3600, description="Answer window")
    mature_supply_fraction: float = Field(default=0.25, ge=0, le=1, description="Mature share")
    mature_supply_redundancy: float = Field(default=3.0, ge=0, le=10, description="Oversupply")
    mature_assessment_min_completion_probability: float = Field(
        default=0.25, ge=0.25, le=1, description="Least chance to end in time during assessment"
    )
    max_parallel_runs_per_peer: int | None = Field(
        default=None,
        ge=1,
        description="Running jobs of one peer; set by `up`, not by the contract; null is no cap",
    )
    default_profile: ProfileName = Field(default="default", description="When none is named")
    profiles: dict[ProfileName, Profile] = Field(
        default_factory=lambda: {"default": Profile()}, description="The declared profiles"
    )
