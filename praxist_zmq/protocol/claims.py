"""The link between a run's broker and the host's claim registry, and the registry's own ledger."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from .base import Frozen, Grown
from .ids import AttemptId, DeviceUuid, LeaseId, RequestId, RunId
from .process import ProcessIdentity

CLAIMS_VERSION = 2
"""Of what a registry does, told in `registry.json`; one that tells none is of version 1. It grows
with a promise that brokers rely on, and a supervisor replaces an older registry of its own user.

1: the first. 2: proves who asks, and takes what runs already although others hold its devices."""
COUNT_MAX = 1_000_000_000
"""Of jobs, in what a run tells of itself."""
RunKey = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Envelope(Frozen):
    """What an allocation may use of each of its devices. Unknown demand is exclusive."""

    device_uuids: tuple[DeviceUuid, ...] = Field(max_length=1024, description="In order")
    exclusive: bool = Field(description="Nobody else on these devices")
    memory_mib: int | None = Field(ge=0, description="Declared, a device; null is unknown")
    utilization_pct: float | None = Field(ge=0, le=100, description="Declared; null is unknown")


class DeviceFacts(Frozen):
    """What the asking run last saw of one device: its size, and what is not of any run."""

    uuid: DeviceUuid = Field(description="Device")
    memory_total_mib: int | None = Field(ge=0, description="Physical memory; null is unknown")
    foreign_memory_mib: int | None = Field(ge=0, description="In use by others; null is unknown")
    foreign_utilization_pct: float | None = Field(
        ge=0, description="Busy share of others; null is unknown"
    )


class AllocationRow(Grown):
    """One attempt's hold, as all runs see it."""

    added: ClassVar = ("overcommitted",)
    run_key: RunKey = Field(description="sha256 of the run's real directory")
    attempt: AttemptId = Field(description="Attempt of that run")
    envelope: Envelope = Field(description="Devices and demand")
    bound: ProcessIdentity | None = Field(description="The shim, once bound")
    device_memory_mib: tuple[int | None, ...] = Field(
        default=(), max_length=1024, description="Size of each device as its run saw it, in order"
    )
    overcommitted: bool = Field(
        default=False,
        description="Others held its devices when it was claimed again: it ran there already",
    )


class LeaseRow(Frozen):
    """A short host-wide hold for an offer. Real work takes it back at any time."""

    run_key: RunKey = Field(description="Run")
    lease_id: LeaseId = Field(description="Lease")
    envelope: Envelope = Field(
        description="The largest shape it offers; no devices where it offers none"
    )
    device_memory_mib: tuple[int | None, ...] = Field(
        default=(), max_length=1024, description="Size of each device as its run saw it, in order"
    )
    claimed_mono_ms: int = Field(
        default=0, ge=0, description="CLOCK_BOOTTIME when it was granted, in milliseconds"
    )


class Want(Frozen):
    """What the run's first waiting job needs that other runs' allocations keep from it."""

    slot: bool = Field(description="It waits for one of the host's slots")
    envelope: Envelope | None = Field(
        default=None, description="It waits for these devices; null when for none"
    )


class RunRow(Frozen):
    """One run known to the host."""

    run_key: RunKey = Field(description="sha256 of the run's real directory")
    run_id: RunId = Field(description="Its name")
    run_dir: str = Field(max_length=4096, description="Its directory")
    user: str = Field(max_length=256, description="Who runs it")
    broker: ProcessIdentity = Field(description="Its broker now")
    epoch: int = Field(ge=1, description="Its broker's epoch; lower ones are refused")
    running: int = Field(ge=0, le=COUNT_MAX, description="Running jobs, as last told")
    queued: int = Field(ge=0, le=COUNT_MAX, description="Queued jobs, as last told")
    limit: int = Field(ge=1, le=COUNT_MAX, description="Its concurrency limit")
    uid: int | None = Field(
        default=None, ge=0, description="User id of its broker, as the kernel told the registry"
    )


class RunWant(Frozen):
    """A want as all runs see it. It holds against runs that hold more than `held`, and against
    those that hold as much and were granted something since this one was."""

    run_key: RunKey = Field(description="The run that waits")
    held: int = Field(ge=0, description="Allocations it holds")
    want: Want = Field(description="What it waits for")


class DeviceElsewhere(Frozen):
    """A device that another host scope holds, by the kernel's word. Null is not to be seen."""

    uuid: DeviceUuid = Field(description="Device")
    pid: int | None = Field(description="Process that holds it: a claim registry, or a shim")
    user: str | None = Field(max_length=256, description="Whose process it is")
    scope: str | None = Field(max_length=4096, description="Directory of its host scope")
    unclaimed: bool = Field(
        default=False, description="An experiment of this very scope, whose run has not said so yet"
    )


class HostView(Grown):
    """Everything the registry holds, at one version."""

    added: ClassVar = ("elsewhere",)
    kind: Literal["host_view"] = "host_view"
    version: int = Field(description="Grows with every change of a row")
    runs: tuple[RunRow, ...] = Field(description="Registered runs")
    allocations: tuple[AllocationRow, ...] = Field(description="All allocations")
    limit: int = Field(
        default=0, ge=0, description="Allocations the host takes: the largest limit of a run"
    )
    wants: tuple[RunWant, ...] = Field(default=(), description="Who waits for others to leave")
    leases: tuple[LeaseRow, ...] = Field(default=(), description="Speculative holds, oldest first")
    down: tuple[RunRow, ...] = Field(
        default=(), description="Runs that no broker serves and that hold allocations; no counts"
    )
    elsewhere: tuple[DeviceElsewhere, ...] = Field(
        default=(), description="Devices that other host scopes hold: nothing is placed there"
    )


class RegisterRun(Frozen):
    """A broker took over a run. Rows of that run which are not in `attempts` are released."""

    kind: Literal["register_run"] = "register_run"
    run: RunRow = Field(description="The run")
    registration: int = Field(
        ge=0, description="Which one it is of this broker's; a lower one comes late"
    )
    attempts: tuple[AttemptId, ...] = Field(description="Attempts that hold allocations")


class OfRun(Frozen):
    """What a run's broker asks once it is registered."""

    run_key: RunKey = Field(description="Run")
    epoch: int = Field(description="Of the sender")
    registration: int = Field(
        ge=0, description="The sender's last; made under an earlier one, it comes late"
    )


class DeregisterRun(OfRun):
    """The run's broker ends in order. Rows of live attempts stay."""

    kind: Literal["deregister_run"] = "deregister_run"


class Reserve(OfRun, Grown):
    """Commit exactly this plan, or answer why not with the fresh view."""

    added: ClassVar = ("shim",)
    kind: Literal["reserve"] = "reserve"
    attempt: AttemptId = Field(description="Attempt")
    envelope: Envelope = Field(description="What it would hold")
    facts: tuple[DeviceFacts, ...] = Field(
        default=(), max_length=1024, description="Of its devices, in order; empty on a claim again"
    )
    lease_id: LeaseId | None = Field(
        default=None, description="The lease whose job it is: its hold is replaced in one step"
    )
    shim: ProcessIdentity | None = Field(
        default=None,
        description="Of a claim again: its process runs already, whoever else holds its devices",
    )


class Bind(OfRun):
    """The attempt's shim is known; from now on only its proved absence frees the row."""

    kind: Literal["bind"] = "bind"
    attempt: AttemptId = Field(description="Attempt")
    shim: ProcessIdentity = Field(description="The shim")


class Release(OfRun):
    """The attempt's tree is gone, as recorded in the run's ledger."""

    kind: Literal["release"] = "release"
    attempt: AttemptId = Field(description="Attempt")


class ReportLoad(OfRun):
    """Counts for the host view. Not durable."""

    kind: Literal["report_load"] = "report_load"
    running: int = Field(ge=0, le=COUNT_MAX, description="Running jobs")
    queued: int = Field(ge=0, le=COUNT_MAX, description="Queued jobs")
    limit: int = Field(ge=1, le=COUNT_MAX, description="Concurrency limit")
    want: Want | None = Field(default=None, description="Holds until the next report, or 6 s")


class RaiseLimit(OfRun):
    """May this run's limit rise by one now? Several runs must not all rise on one sample."""

    kind: Literal["raise_limit"] = "raise_limit"
    interval_ms: int = Field(ge=1, description="The run's adjustment interval")


class ClaimLease(OfRun):
    """Hold room for an offer, where no real work and no other offer has it."""

    kind: Literal["claim_lease"] = "claim_lease"
    lease_id: LeaseId = Field(description="Lease")
    envelope: Envelope = Field(description="The largest shape it offers")
    facts: tuple[DeviceFacts, ...] = Field(
        default=(), max_length=1024, description="Of its devices, in order"
    )
    window_ms: int = Field(ge=1, le=4_000_000, description="It ends by itself after this")


class ReleaseLease(OfRun):
    """The offer is over. Of one that is not held: granted all the same."""

    kind: Literal["release_lease"] = "release_lease"
    lease_id: LeaseId = Field(description="Lease")


class ViewHost(Frozen):
    """Read everything."""

    kind: Literal["view_host"] = "view_host"


ClaimRequest = Annotated[
    RegisterRun
    | DeregisterRun
    | Reserve
    | Bind
    | Release
    | ReportLoad
    | RaiseLimit
    | ClaimLease
    | ReleaseLease
    | ViewHost,
    Field(discriminator="kind"),
]


class ClaimRequestEnvelope(Frozen):
    """The body of a request to the registry."""

    request_id: RequestId = Field(description="Chosen by the sender; the same when it resends")
    request: ClaimRequest = Field(description="What is asked")


class Granted(Frozen):
    """Done and on disk; of a lease, done."""

    kind: Literal["granted"] = "granted"
    attempt: AttemptId | None = Field(default=None, description="Attempt it was about")
    view_version: int = Field(description="Version of the host view after it")


class Denied(Frozen):
    """Not done, with the fresh view to plan again."""

    kind: Literal["denied"] = "denied"
    attempt: AttemptId | None = Field(default=None, description="Attempt it was about")
    code: str = Field(
        description="conflict, host_limit, concurrency_limit, fair_share, not_now, "
        "unknown_run, stale_epoch, not_yours, malformed_request, busy"
    )
    detail: str = Field(description="In words")
    view: HostView | None = Field(default=None, description="Fresh view")


class Registered(Frozen):
    """The run is registered; what the registry holds for it, and for everybody."""

    kind: Literal["registered"] = "registered"
    registry_epoch: int = Field(description="The registry's own epoch")
    view: HostView = Field(description="Fresh view")


ClaimReply = Annotated[Granted | Denied | Registered | HostView, Field(discriminator="kind")]


class ClaimReplyEnvelope(Frozen):
    """The body of the registry's answers; `request_id` is null on a pushed view."""

    request_id: RequestId | None = Field(description="Of the request")
    reply: ClaimReply = Field(description="The answer")


# -- the registry's ledger ---------------------------------------------------------------------


class RegistryOpened(Frozen):
    """A registry took over the host scope."""

    kind: Literal["registry_opened"] = "registry_opened"
    at_ms: int = Field(description="Wall clock")
    epoch: int = Field(description="Grows with every start")
    boot_id: str = Field(description="Boot it runs in")


class RunRegistered(Frozen):
    """A run's broker registered."""

    kind: Literal["run_registered"] = "run_registered"
    at_ms: int = Field(description="Wall clock")
    run: RunRow = Field(description="The run")


class RunDeregistered(Frozen):
    """A run is no longer served."""

    kind: Literal["run_deregistered"] = "run_deregistered"
    at_ms: int = Field(description="Wall clock")
    run_key: RunKey = Field(description="Run")
    reason: Literal["ended", "broker_gone"] = Field(description="Why")


class ClaimReserved(Frozen):
    """An allocation was committed."""

    kind: Literal["claim_reserved"] = "claim_reserved"
    at_ms: int = Field(description="Wall clock")
    row: AllocationRow = Field(description="The row")


class ClaimBound(Frozen):
    """An allocation got its process."""

    kind: Literal["claim_bound"] = "claim_bound"
    at_ms: int = Field(description="Wall clock")
    run_key: RunKey = Field(description="Run")
    attempt: AttemptId = Field(description="Attempt")
    shim: ProcessIdentity = Field(description="The shim")


class ClaimReleased(Frozen):
    """An allocation ended."""

    kind: Literal["claim_released"] = "claim_released"
    at_ms: int = Field(description="Wall clock")
    run_key: RunKey = Field(description="Run")
    attempt: AttemptId = Field(description="Attempt")
    reason: Literal["released", "not_claimed_by_run", "proved_absent", "other_boot"] = Field(
        description="Why"
    )


ClaimEvent = Annotated[
    RegistryOpened | RunRegistered | RunDeregistered | ClaimReserved | ClaimBound | ClaimReleased,
    Field(discriminator="kind"),
]


class ClaimSnapshot(Frozen):
    """The registry's state at one sequence."""

    kind: Literal["claim_snapshot"] = "claim_snapshot"
    epoch: int = Field(description="Registry epoch")
    version: int = Field(description="View version")
    boot_id: str = Field(default="", max_length=64, description="Boot of the last opening")
    runs: tuple[RunRow, ...] = Field(description="Runs")
    allocations: tuple[AllocationRow, ...] = Field(description="Allocations")
    owners: dict[RunKey, int] = Field(
        default_factory=dict, description="User id of each run that is registered or holds anything"
    )
    down: tuple[RunRow, ...] = Field(
        default=(), description="Runs that no broker serves and that hold allocations"
    )
    extra: dict[str, Any] = Field(default_factory=dict, description="Reserved")
