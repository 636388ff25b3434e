"""The run's leases as its ledger has them: offers that are out, what became of others, counts.

Changed only by `core.lease_evolve`. What the host's registry holds for a lease, and by when it must
be answered on the monotonic clock, is in `core.lease_memory`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..protocol.policy import Priority

PRIORITIES: tuple[Priority, ...] = ("mature", "frontier_followup")


@dataclass(slots=True)
class Lease:
    """One offer to one peer."""

    lease_id: str
    peer: str
    generation: int
    priority: Priority
    profiles: tuple[str, ...]
    granted_at_ms: int
    window_ms: int
    expires_at_ms: int
    state: str = "out"
    """out, consumed, declined, expired, revoked."""
    reason: str | None = None
    detail: str | None = None
    job: str | None = None


@dataclass(slots=True)
class Tally:
    """What became of offers."""

    granted: int = 0
    consumed: int = 0
    declined: int = 0
    expired: int = 0
    revoked: int = 0
    stale_submission: int = 0
    reuse_ignored: int = 0


@dataclass(slots=True)
class Decline:
    """How often in a row a peer has declined one priority of one generation."""

    generation: int
    priority: Priority
    times: int
    at_ms: int
    """The last time, wall clock."""


@dataclass(slots=True)
class Leases:
    """All of it."""

    last_number: int = 0
    """Of the newest lease."""
    live: dict[str, Lease] = field(default_factory=dict)
    """Oldest first."""
    ended: dict[str, Lease] = field(default_factory=dict)
    """The newest ended ones, oldest first."""
    consumed: dict[str, Priority] = field(default_factory=dict)
    """Every lease that brought a job: one is worth one experiment, also after a restart."""
    declines: dict[str, list[Decline]] = field(default_factory=dict)
    """By peer."""
    tallies: dict[Priority, Tally] = field(
        default_factory=lambda: {priority: Tally() for priority in PRIORITIES}
    )
    unattributed: Tally = field(default_factory=Tally)
    """Locators that nobody knows."""

    def of_peer(self, peer: str) -> Lease | None:
        """A peer's live lease; it has one at most."""
        return next((lease for lease in self.live.values() if lease.peer == peer), None)

    def mature_peers(self, generation: int) -> tuple[str, ...]:
        """Peers of a generation with a live lease of mature priority."""
        return tuple(
            lease.peer
            for lease in self.live.values()
            if lease.priority == "mature" and lease.generation == generation
        )

    def declined_times(self, peer: str, generation: int, priority: Priority) -> int:
        """How often in a row."""
        for found in self.declines.get(peer, ()):
            if (found.generation, found.priority) == (generation, priority):
                return found.times
        return 0
