"""What the broker tells the launcher, and the registry's and sampler's side of their links.

Orders are safe to repeat: the launcher answers a repeated order with the same report.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import Frozen
from .evidence import AttemptCard
from .ids import AttemptId, DeviceUuid
from .process import ProcessIdentity
from .text import OsText


class Welcome(Frozen):
    """The broker knows the launcher. What it must look for follows as `adopt_attempt`."""

    kind: Literal["welcome"] = "welcome"
    epoch: int = Field(description="The broker's epoch")
    log_cap_mib: int | None = Field(
        default=None, ge=1, description="The most that one log may take of the disk; null: no cap"
    )


class Announce(Frozen):
    """An order was lost on the way: introduce yourself as on a new connection."""

    kind: Literal["announce"] = "announce"


class CompareCounts(Frozen):
    """Have all orders since `welcome` arrived? A launcher that misses one introduces itself as on
    a new connection; it answers in any case with what it has told."""

    kind: Literal["compare_counts"] = "compare_counts"
    orders: int = Field(ge=0, description="Orders sent since; greetings and this do not count")


class SpawnAttempt(Frozen):
    """Prepare an attempt up to its barrier. Nothing of the evaluator runs yet."""

    kind: Literal["spawn_attempt"] = "spawn_attempt"
    attempt: AttemptId = Field(description="Attempt")
    command: tuple[OsText, ...] = Field(description="Argument vector")
    cwd: OsText = Field(description="Working directory")
    environment: dict[str, OsText] = Field(description="Whole environment, secrets included")
    device_uuids: tuple[DeviceUuid, ...] = Field(
        default=(), max_length=1024, description="Its devices: its shim holds their names"
    )
    card: AttemptCard | None = Field(default=None, description="Kept in the attempt's directory")


class ReleaseAttempt(Frozen):
    """GO: the binding is on disk; the evaluator may run. An abandon or a stop behind it calls it
    back, as long as the shim has not taken it."""

    kind: Literal["release_attempt"] = "release_attempt"
    attempt: AttemptId = Field(description="Attempt")
    until_ms: int = Field(description="CLOCK_BOOTTIME after which it does not hold any more")


class AbandonAttempt(Frozen):
    """End a waiting barrier, and call back a GO; if the evaluator already ran, say so instead."""

    kind: Literal["abandon_attempt"] = "abandon_attempt"
    attempt: AttemptId = Field(description="Attempt")


class AdoptAttempt(Frozen):
    """Find an attempt that an earlier launcher started and report what became of it."""

    kind: Literal["adopt_attempt"] = "adopt_attempt"
    attempt: AttemptId = Field(description="Attempt")
    shim: ProcessIdentity | None = Field(description="As bound; null when never bound")
    leader: ProcessIdentity | None = Field(description="The evaluator, when it was started")
    presumed_dead: bool = Field(
        default=False, description="An operator said that nothing of it lives, should it be unseen"
    )


class StopAttempt(Frozen):
    """TERM the tree, wait, KILL it, look again until it is gone."""

    kind: Literal["stop_attempt"] = "stop_attempt"
    attempt: AttemptId = Field(description="Attempt")
    grace_ms: int = Field(ge=0, le=3_600_000, description="Between TERM and KILL")


class SampleNow(Frozen):
    """To the sampler: look at the host soon. The next sample is the answer."""

    kind: Literal["sample_now"] = "sample_now"


class RestartProcess(Frozen):
    """To the supervisor: end this process of the run, which does not answer, and start another."""

    kind: Literal["restart_process"] = "restart_process"
    name: str = Field(max_length=64, description="Its name")
    pid: int = Field(ge=1, description="Its process id: another one is left alone")


class WriteClosingSignal(Frozen):
    """To the broker's shell: write, or remove, `gen_<N>/CLOSING_SIGNAL` of the run."""

    kind: Literal["write_closing_signal"] = "write_closing_signal"
    generation: int = Field(ge=0, description="Generation")
    present: bool = Field(description="Whether it is to be there")


class IdentifyCaller(Frozen):
    """Look whether a process descends from an attempt's shim; answered once, never repeated."""

    kind: Literal["identify_caller"] = "identify_caller"
    attempt: AttemptId = Field(description="Attempt")
    pid: int = Field(ge=1, description="The process, as the kernel named it for its connection")
    inquiry: int = Field(ge=1, description="Echoed in the report")


class ForgetAttempt(Frozen):
    """The end of the attempt is on disk; its report need not be repeated."""

    kind: Literal["forget_attempt"] = "forget_attempt"
    attempt: AttemptId = Field(description="Attempt")


Order = Annotated[
    Welcome
    | Announce
    | CompareCounts
    | SpawnAttempt
    | ReleaseAttempt
    | AbandonAttempt
    | AdoptAttempt
    | StopAttempt
    | IdentifyCaller
    | ForgetAttempt,
    Field(discriminator="kind"),
]
