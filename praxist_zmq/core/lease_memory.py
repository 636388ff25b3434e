"""What the broker knows of leases but does not keep: who waits, what the host holds, due times.

A restart empties it: every lease that was out has ended then, and peers register again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..protocol.claims import DeviceFacts, Envelope, HostView
from ..protocol.policy import Priority
from .addresses import Addresses

IDLE_PEERS_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Proposal:
    """What could be offered now: the profiles, and the largest shape that one of them needs."""

    profiles: tuple[str, ...]
    envelope: Envelope
    facts: tuple[DeviceFacts, ...]


@dataclass(frozen=True, slots=True)
class PendingOffer:
    """An offer for which the host's registry was asked to hold room."""

    peer: str
    generation: int
    priority: Priority
    proposal: Proposal


@dataclass(slots=True)
class HostHold:
    """Room that the registry holds for a lease."""

    proposal: Proposal
    before: HostView | None
    """The last host view from before it was granted: every later one shows it."""
    asked: bool = False
    """The registry is being asked for it again."""


@dataclass(slots=True)
class LeaseMemory:
    """All of it."""

    supply: Addresses = field(default_factory=Addresses)
    """Where the supply process is."""
    facts_sample_ms: int = -1
    """The sample that it was last told of; -1 when it knows of none, or nobody has waited since."""
    idle: dict[str, int] = field(default_factory=dict)
    """Peer that waits -> its generation, longest first."""
    offers: dict[str, PendingOffer] = field(default_factory=dict)
    """By lease id."""
    holds: dict[str, HostHold] = field(default_factory=dict)
    """By lease id: of live leases, and of consumed ones whose job is still to be placed."""
    answered: dict[str, str] = field(default_factory=dict)
    """Queued job -> the lease that it consumed, while the host holds room for that."""
    releasing: dict[str, None] = field(default_factory=dict)
    """Leases that have ended and whose room the registry has not confirmed to be free."""
    due_ms: dict[str, int] = field(default_factory=dict)
    """Live lease -> CLOCK_BOOTTIME of its end."""
    cooling_ms: dict[tuple[str, int, Priority], int] = field(default_factory=dict)
    """(peer, generation, priority) -> CLOCK_BOOTTIME until which it is offered nothing."""
    last_number: int = 0
    """Of the newest lease id that was made up, granted or not."""
    sequence: int = 0
    """Of the last fact about leases that was told."""
    audience: bool = False
    alive_told_at_ms: int = 0
    view: HostView | None = None
    """The host view that was last compared with `holds`."""
