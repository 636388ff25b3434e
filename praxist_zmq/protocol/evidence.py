"""What a shim leaves in its attempt's directory: hints for a launcher that finds it later.

One file, `evidence.jsonl`, with a line for each step, padded with empty lines. Anyone with the
same user can forge it, so nothing is signalled, adopted or freed on its
word alone: the ledger's identity and /proc decide first.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import Frozen
from .ids import AttemptId, DeviceUuid, PeerId, Tag
from .process import ProcessIdentity


class ReadyRecord(Frozen):
    """The shim reached its barrier."""

    kind: Literal["ready"] = Field(description="Step")
    attempt: AttemptId = Field(description="Attempt")
    shim: ProcessIdentity = Field(description="The shim")


class GoRecord(Frozen):
    """GO was taken: from here on the evaluator may have run."""

    kind: Literal["go"] = Field(description="Step")
    attempt: AttemptId = Field(description="Attempt")
    shim: ProcessIdentity = Field(description="The shim")


class StartedRecord(Frozen):
    """The evaluator's image was executed."""

    kind: Literal["started"] = Field(description="Step")
    attempt: AttemptId = Field(description="Attempt")
    shim: ProcessIdentity = Field(description="The shim")
    leader: ProcessIdentity = Field(description="The evaluator; its pid is also its group")
    at_ms: int = Field(ge=0, description="Wall clock, milliseconds since the epoch")


class ExitRecord(Frozen):
    """How the evaluator itself ended, or why it could not be executed."""

    kind: Literal["ended"] = Field(default="ended", description="Step")
    attempt: AttemptId = Field(description="Attempt")
    shim: ProcessIdentity = Field(description="The shim")
    outcome: Literal["exited", "exec_failed"] = Field(description="How")
    exit_code: Annotated[int, Field(ge=0, le=255)] | None = Field(description="Exit status")
    signal: Annotated[int, Field(ge=1, le=128)] | None = Field(description="Signal that ended it")
    errno: int | None = Field(description="Of a failed exec")
    detail: str = Field(max_length=2000, description="In words")
    ended_at_ms: int = Field(ge=0, description="Wall clock, milliseconds since the epoch")
    wall_ms: int = Field(ge=0, description="From its start, CLOCK_BOOTTIME")
    user_ms: int = Field(ge=0, description="CPU time in user mode")
    system_ms: int = Field(ge=0, description="CPU time in the kernel")
    max_rss_kib: int = Field(ge=0, description="Largest resident set")


EvidenceRecord = Annotated[
    ReadyRecord | GoRecord | StartedRecord | ExitRecord, Field(discriminator="kind")
]


class AttemptCard(Frozen):
    """Whose attempt a directory is of, for a start whose ledger has lost it: `attempt.json`, which
    the launcher writes as it makes the directory."""

    attempt: AttemptId = Field(description="Attempt")
    tag: Tag | None = Field(default=None, description="Tag of its job; null when not known")
    generation: int | None = Field(default=None, ge=0, description="Generation of its job")
    peer: PeerId | None = Field(default=None, description="Peer of its job")
    device_uuids: tuple[DeviceUuid, ...] = Field(
        default=(), max_length=1024, description="Its devices, in order"
    )
    exclusive: bool = Field(default=False, description="Whether nobody else may use them")
    memory_mib: int | None = Field(default=None, ge=0, description="Declared, a device")
    utilization_pct: float | None = Field(default=None, ge=0, description="Declared, a device")


class Remnant(Frozen):
    """What a start found of an experiment that its ledger does not know."""

    attempt: AttemptId | None = Field(description="Attempt; null: launched without a scheduler")
    pid: int | None = Field(default=None, description="Of its evaluator, where only that is known")
    tag: str | None = Field(default=None, description="Tag; null when no file names it")
    generation: int | None = Field(default=None, description="Generation; null: of any")
    card: AttemptCard | None = Field(default=None, description="What its directory says of it")
    shim: ProcessIdentity | None = Field(
        default=None, description="Its shim, as far as /proc bears its evidence out"
    )
    went: bool = Field(default=False, description="Whether GO was taken")
    ended: ExitRecord | None = Field(default=None, description="The end that it recorded")
    lives: bool = Field(description="Whether a process of it is seen to live")

    @property
    def may_have_run(self) -> bool:
        """Whether anything of it may have run: not when it never left its barrier."""
        return self.went or self.shim is None

    @property
    def end_words(self) -> str:
        """What became of it, for what does not live."""
        if self.ended is None:
            return "how it ended is not known" if self.may_have_run else "never ran"
        if self.ended.exit_code is not None:
            return f"ended with exit status {self.ended.exit_code}"
        return f"ended: {self.ended.detail or self.ended.outcome}"[:200]
