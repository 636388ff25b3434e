"""What a shim leaves in its attempt's directory: hints for a launcher that finds it later.

One file, `evidence.jsonl`, with a line for each step, padded with empty lines. Anyone with the
same user can forge it, so nothing is signalled, adopted or freed on its
word alone: the ledger's identity and /proc decide first.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import Frozen
from .ids import AttemptId
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
