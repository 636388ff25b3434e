"""What a pure machine answers: events to make durable, and messages to send after that.

Every machine has the same three methods, so every shell is the same loop (`service.step`):
`decide` for one command, `apply` for one event (live and in replay), `settle` once a turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel

from ..errors import PraxistError


class Stamp(NamedTuple):
    """When a command arrived, as the shell read it."""

    at_ms: int
    """Wall clock, milliseconds since 1970; for people."""
    mono_ms: int
    """CLOCK_BOOTTIME in milliseconds; for durations."""


class Send(NamedTuple):
    """One message to send once the events of its turn are on disk.

    `to` names a link of the shell (`client`, `launcher`, `registry`, `events`, `leases`, `supply`,
    `sampler`);
    `address` is whatever that link gave with the message being answered, opaque to the machine.
    """

    to: str
    message: BaseModel
    address: Any = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A message that is no request; its sender gets `error`, in the order of what was asked."""

    address: Any
    request_id: str | None
    error: PraxistError


@dataclass(slots=True)
class Decision:
    """Events first, then sends.

    `lazy` says that nobody waits for them: the shell may keep both until the next turn that
    somebody does wait for, a few milliseconds at most, and so save a sync.
    """

    events: list[BaseModel] = field(default_factory=list)
    outbox: list[Send] = field(default_factory=list)
    lazy: bool = False


class Machine(Protocol):
    """A pure state machine around which `service.step` is the shell."""

    def decide(self, command: Any, stamp: Stamp) -> Decision:
        """Decide one command. Must already have applied its own events when it returns."""
        ...

    def settle(self, stamp: Stamp) -> Decision:
        """Once a turn, after all commands: plan, publish. Has applied its own events."""
        ...

    def apply(self, event: Any, sequence: int) -> None:
        """Change the state by one durable event (replay)."""
        ...

    @property
    def recorded(self) -> int:
        """How many events it has recorded; tells whether a failed decision changed anything."""
        ...

    def wake_at_ms(self) -> int | None:
        """CLOCK_BOOTTIME milliseconds at which `settle` wants to run without a command."""
        ...
