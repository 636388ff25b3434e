"""What the claim registry's machine is told: requests of brokers and viewers, and proved facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..protocol.claims import DeviceElsewhere
from .claim_state import Watch


@dataclass(frozen=True, slots=True)
class ClaimCommand:
    """A request of a broker or viewer, with the kernel's word on who sent it."""

    address: Any
    request_id: str
    request: Any
    uid: int
    pid: int
    forged: str | None = None
    """In words, what the shell proved to be false of the processes that the request names."""


@dataclass(frozen=True, slots=True)
class RegistryStarted:
    """The shell holds the lock and has replayed the ledger, in this boot, as user `uid`."""

    boot_id: str
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessesProvedAbsent:
    """Attempts whose whole trees are proved gone; each names its shim, so none ends another."""

    rows: tuple[Watch, ...]


@dataclass(frozen=True, slots=True)
class BrokersGone:
    """Brokers that are proved gone."""

    brokers: tuple[Watch, ...]


@dataclass(frozen=True, slots=True)
class DevicesElsewhere:
    """All devices that other host scopes were seen to hold; those that are missing are free."""

    devices: tuple[DeviceElsewhere, ...]


@dataclass(frozen=True, slots=True)
class BrokerUnreachable:
    """A message to this address could not be handed over: nobody reads there."""

    address: Any
