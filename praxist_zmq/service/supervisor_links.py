"""What the supervisor has to do with beside its children: the broker, the registry, its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..protocol.orders import RestartProcess
from ..protocol.reports import ProcessesSeen
from ..transport.poller import Poller


class BrokerLink(Protocol):
    """What the supervisor tells the broker, as `service.process_report` does it."""

    def watch(self, poller: Poller) -> None:
        """Add what must be polled."""

    def serve(self) -> list[RestartProcess]:
        """Processes that the broker wants started again; repeats the latest list on a new
        connection. Never blocks."""

    def tell(self, seen: ProcessesSeen) -> None:
        """Send the list of processes, now and on every new connection."""


class Registry(Protocol):
    """The host's claim registry, as `service.registry_watch` sees it."""

    def ensure(self, poller: Poller) -> None:
        """Find or start it and watch it. Raises PraxistError."""

    def ended(self, poller: Poller) -> bool:
        """Whether it ended since `ensure`; told once."""

    def process(self) -> tuple[int, int] | None:
        """(pid, started at CLOCK_BOOTTIME ms), or None when that is not known."""


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Files the supervisor reads or writes."""

    failure: Path
    """`last_failure.json`: why it gave up, or what it waits for."""
    fence: Path
    """Present once a stop of the run was ordered."""
