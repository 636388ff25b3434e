"""What the launcher, the sampler, the supervisor and the gateway tell the broker. Past tense."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import Frozen
from .ids import AttemptId, PeerId, Tag
from .process import ProcessIdentity


class LauncherConnected(Frozen):
    """A launcher is there, with the attempts it has in hand. Sent on every (re)connection."""

    kind: Literal["launcher_connected"] = "launcher_connected"
    launcher: ProcessIdentity = Field(description="The launcher itself")
    attempts: tuple[AttemptId, ...] = Field(description="Attempts whose reports it will repeat")


class CountsCompared(Frozen):
    """The answer to `compare_counts`. A broker that misses a report asks for all of them."""

    kind: Literal["counts_compared"] = "counts_compared"
    reports: int = Field(ge=0, description="Reports sent since the launcher introduced itself")


class AttemptReady(Frozen):
    """The shim waits at its barrier."""

    kind: Literal["attempt_ready"] = "attempt_ready"
    attempt: AttemptId = Field(description="Attempt")
    shim: ProcessIdentity = Field(description="The shim")


class AttemptStarted(Frozen):
    """The evaluator's image was executed."""

    kind: Literal["attempt_started"] = "attempt_started"
    attempt: AttemptId = Field(description="Attempt")
    leader: ProcessIdentity = Field(description="The evaluator; its pid is also its group")
    at_ms: int = Field(description="Wall clock, milliseconds since the epoch")


class AttemptLeaderExited(Frozen):
    """The evaluator itself ended while descendants of it live on."""

    kind: Literal["attempt_leader_exited"] = "attempt_leader_exited"
    attempt: AttemptId = Field(description="Attempt")
    exit_code: int | None = Field(description="Exit status")
    signal: int | None = Field(description="Signal that ended it")
    survivors: tuple[int, ...] = Field(description="Process ids seen alive")


class AttemptEnded(Frozen):
    """The whole tree is proved absent."""

    kind: Literal["attempt_ended"] = "attempt_ended"
    attempt: AttemptId = Field(description="Attempt")
    outcome: Literal["exited", "exec_failed", "never_ran", "unknown"] = Field(
        description="exited: exit_code or signal holds; unknown: the record is lost"
    )
    exit_code: int | None = Field(default=None, description="Exit status")
    signal: int | None = Field(default=None, description="Signal that ended it")
    errno: int | None = Field(
        default=None, description="Of a failed exec, or of what the host lacked, errno(3)"
    )
    detail: str = Field(default="", max_length=2000, description="In words")
    log_tail: str = Field(default="", max_length=20_000, description="End of its log")
    ended_at_ms: int | None = Field(default=None, description="Wall clock, when known")
    signalled: bool | None = Field(
        default=None,
        description="Whether a stop had signalled it before its end was known; null: an earlier "
        "launcher may have",
    )
    lacked: Literal["run_files", "process"] | None = Field(
        default=None,
        description="never_ran: the host lacked what `errno` names, for the attempt's directory "
        "and log or for its process",
    )
    hint: str = Field(
        default="", max_length=300, description="What may be behind a failure: a full disk"
    )


class SpawnFailed(Frozen):
    """The attempt could not be brought to its barrier; nothing ran, nothing is left."""

    kind: Literal["spawn_failed"] = "spawn_failed"
    attempt: AttemptId = Field(description="Attempt")
    stage: Literal["attempt_directory", "log_open", "process_start"] = Field(description="Where")
    permanent: bool = Field(description="Whether trying again cannot help")
    detail: str = Field(max_length=2000, description="In words")


class AttemptUnkillable(Frozen):
    """KILL was sent and these did not go. The allocation stays held."""

    kind: Literal["attempt_unkillable"] = "attempt_unkillable"
    attempt: AttemptId = Field(description="Attempt")
    pids: tuple[int, ...] = Field(description="Survivors")
    detail: str = Field(max_length=2000, description="In words")


class AttemptJudged(Frozen):
    """What the launcher found of an attempt whose end it did not see, and by which evidence."""

    kind: Literal["attempt_judged"] = "attempt_judged"
    attempt: AttemptId = Field(description="Attempt")
    found: Literal["gone", "alive", "unseen"] = Field(description="The verdict")
    evidence: str = Field(max_length=40, description="Name of the evidence")
    detail: str = Field(max_length=500, description="The evidence in words")


class LivingProcess(Frozen):
    """A process as a person is told of it."""

    pid: int = Field(ge=1, description="Process id")
    name: str = Field(max_length=32, description="Its program, by its own word")
    started_at_mono_ms: int = Field(ge=0, description="CLOCK_BOOTTIME of its start, milliseconds")


class AttemptLingers(Frozen):
    """Processes that keep an attempt whose evaluator or shim is gone; none: it is not kept."""

    kind: Literal["attempt_lingers"] = "attempt_lingers"
    attempt: AttemptId = Field(description="Attempt")
    processes: tuple[LivingProcess, ...] = Field(max_length=20, description="The oldest of them")
    number: int = Field(ge=0, description="All of them")
    proved: bool = Field(description="Whether all are proved to belong to the attempt")


class CallerIdentified(Frozen):
    """What /proc says about a process that claims to be part of an attempt."""

    kind: Literal["caller_identified"] = "caller_identified"
    attempt: AttemptId = Field(description="Attempt")
    inquiry: int = Field(ge=1, description="Of the order")
    inside: bool = Field(description="Whether it descends from the shim or is in its group")
    detail: str = Field(max_length=200, description="Why not, in words")


LauncherReport = Annotated[
    LauncherConnected
    | CountsCompared
    | AttemptReady
    | AttemptStarted
    | AttemptLeaderExited
    | AttemptEnded
    | SpawnFailed
    | AttemptUnkillable
    | AttemptJudged
    | AttemptLingers
    | CallerIdentified,
    Field(discriminator="kind"),
]


class ProcessStamp(Frozen):
    """A process by its pid and start, within the boot and pid namespace of the sampler."""

    pid: int = Field(ge=1, description="Process id")
    start_ticks: int = Field(ge=0, description="Start time, clock ticks since boot")


class DeviceProcess(Frozen):
    """One process that the driver sees on a device."""

    pid: int = Field(ge=0, description="Process id as the driver names it")
    memory_mib: int | None = Field(default=None, ge=0, description="Its device memory")
    utilization_pct: float | None = Field(
        default=None, ge=0, description="Its busy share; null where the driver does not tell"
    )
    lineage: tuple[ProcessStamp, ...] = Field(
        default=(),
        max_length=64,
        description="The process and its ancestors; empty when it is not in our pid namespace",
    )
    name: str | None = Field(default=None, max_length=64, description="Program, for display")
    user: str | None = Field(default=None, max_length=64, description="Owner, for display")


class DeviceSample(Frozen):
    """One device as the driver tells it; null is unknown, never zero."""

    index: int = Field(ge=0, description="Driver's index")
    uuid: str = Field(max_length=96, description="Device")
    name: str | None = Field(default=None, description="Product name")
    state: Literal["available", "unavailable", "unsupported", "unknown", "lost"] = Field(
        description="Of this device"
    )
    memory_total_mib: int | None = Field(default=None, description="Physical memory")
    memory_used_mib: int | None = Field(default=None, description="In use by anyone")
    memory_reserved_mib: int | None = Field(
        default=None,
        description="What the driver and the firmware keep of it for themselves, not part of what "
        "is in use; null where the driver does not tell it apart: then it is part of that",
    )
    utilization_pct: float | None = Field(default=None, description="Busy share")
    utilization_read_us: int | None = Field(
        default=None,
        description="The driver's own stamp of the busy share, microseconds; the same stamp is "
        "the same reading. Null where the driver gives none",
    )
    processes: tuple[DeviceProcess, ...] | None = Field(
        default=None, max_length=1024, description="All it sees on the device; null is unknown"
    )
    read_at_mono_ms: int | None = Field(
        default=None, description="CLOCK_BOOTTIME when the driver was asked, milliseconds"
    )
    reason: str | None = Field(
        default=None, max_length=300, description="Why it is not available, or what is unknown"
    )


class HostSampled(Frozen):
    """One look at the host and its devices."""

    kind: Literal["host_sampled"] = "host_sampled"
    sampled_at_mono_ms: int = Field(description="CLOCK_BOOTTIME of the sample, milliseconds")
    cpu_pct: float | None = Field(description="Busy share of all cores since the last sample")
    memory_pct: float | None = Field(description="100 x (1 - available/total)")
    io_pct: float | None = Field(description="PSI some avg10 of I/O")
    cpus: float | None = Field(
        default=None, gt=0, description="Cores that this host, or its quota, gives"
    )
    probe_state: Literal["available", "unavailable", "unsupported", "unknown"] = Field(
        description="Of the accelerator driver as a whole"
    )
    probe_reason: str | None = Field(description="Why it is not available")
    devices: tuple[DeviceSample, ...] = Field(description="By index")
    simulated: bool = Field(description="Whether the devices are simulated")


class ProcessesSeen(Frozen):
    """The supervisor's list of processes, on every change."""

    kind: Literal["processes_seen"] = "processes_seen"
    processes: tuple[tuple[str, int, int, int], ...] = Field(
        description="(name, pid, started at CLOCK_BOOTTIME ms, restarts)"
    )


class StoreResult(Frozen):
    """One line of a task's results command. Unknown keys are refused."""

    tag: Tag = Field(description="Tag of the experiment")
    peer: PeerId | None = Field(default=None, description="Whose; null is the peer of its job")
    mature: bool = Field(default=False, description="Whether it is close-grade")
    generation: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Null is the current one"
    )


class StoreRead(Frozen):
    """What the task's own result store holds, as far as it is new. It takes nothing back."""

    kind: Literal["store_read"] = "store_read"
    results: tuple[StoreResult, ...] = Field(max_length=1_000, description="New results")
    problem: str | None = Field(
        default=None, max_length=500, description="Why the reading failed, in part or whole"
    )
