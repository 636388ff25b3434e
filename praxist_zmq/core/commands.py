"""What reaches the broker's machine, besides the models that come as they are (samples)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..protocol.evidence import Remnant
from ..protocol.room import DiskRoom


class ClientRequest(NamedTuple):
    """A peer's request, with what the kernel says of the sender."""

    address: Any
    request_id: str
    digest: str
    """Keyed hash of the request's body, in hex."""
    request: Any
    uid: int | None
    pid: int | None


@dataclass(frozen=True, slots=True)
class LauncherSaid:
    """A report of the launcher's."""

    address: Any
    report: Any


@dataclass(frozen=True, slots=True)
class LauncherLost:
    """An order could not be handed over: nobody is at that address any more."""

    address: Any


@dataclass(frozen=True, slots=True)
class RegistryConnected:
    """The link to the registry is (again) up; what it knew of us must be compared."""


@dataclass(frozen=True, slots=True)
class RegistryLost:
    """The link to the registry went down."""


@dataclass(frozen=True, slots=True)
class RegistrySaid:
    """An answer of the registry's, or a pushed view (no request id)."""

    request_id: str | None
    reply: Any


@dataclass(frozen=True, slots=True)
class AudienceChanged:
    """Whether anybody listens to what is published: to events, and to leases."""

    present: bool
    leases: bool = False


@dataclass(frozen=True, slots=True)
class SupplySaid:
    """The supply process is there; `plan` is what it would offer, or None at its start."""

    address: Any
    plan: Any = None


@dataclass(frozen=True, slots=True)
class SupplyLost:
    """Facts could not be handed over: the supply process is not at that address now."""

    address: Any


@dataclass(frozen=True, slots=True)
class FenceSeen:
    """Whether the run's shutdown sentinel is there."""

    present: bool


@dataclass(frozen=True, slots=True)
class LedgerMeasured:
    """The room that the ledger and the run have, as the shell sees it."""

    low_space: bool
    bytes_on_disk: int
    disk: DiskRoom | None = None
    """The room on the run's disk; None when it cannot be asked."""


@dataclass(frozen=True, slots=True)
class RemnantsSeen:
    """What the run's directory holds of experiments that the ledger does not know, as it is now."""

    remnants: tuple[Remnant, ...]


@dataclass(frozen=True, slots=True)
class SignalSeen:
    """A file that closes a generation is there."""

    generation: int
    name: str
