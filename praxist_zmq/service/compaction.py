"""When the broker has a snapshot made, and what it deletes afterwards.

The work itself is `service.compact`, in a process of its own. Decides nothing about jobs.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from ..errors import PraxistError
from ..host.spawn import spawn_helper, wait_for
from ..ledger.log import Ledger
from ..transport.poller import Poller
from .service_log import open_log

SEALED_SEGMENTS_MIN = 2


class Compaction:
    """At most one compactor at a time."""

    def __init__(self, ledger: Ledger, log_path: Path, poller: Poller) -> None:
        self._ledger = ledger
        self._log_path = log_path
        self._poller = poller
        self._pid: int | None = None
        self._pidfd: int | None = None
        self._failed_at: int | None = None
        self._log = logging.getLogger(__name__)

    def consider(self) -> None:
        """Start a compactor when enough is sealed; take note of one that ended."""
        if self._pid is not None:
            return
        sealed = self._ledger.sealed_since_snapshot
        if sealed < SEALED_SEGMENTS_MIN or sealed == self._failed_at:
            return
        try:
            self._pidfd = self._start()
        except PraxistError as error:
            # A snapshot only saves time and room: nothing ends for the lack of one.
            self._failed_at = sealed
            self._log.error("no compactor: %s", error)
            return
        self._poller.register(self._pidfd)

    def _start(self) -> int:
        output = open_log(self._log_path)
        try:
            command = [sys.executable, "-P", "-m", "praxist_zmq.service.compact"]
            self._pid, pidfd = spawn_helper([*command, str(self._ledger.directory)], output)
        finally:
            os.close(output)
        return pidfd

    def ended(self, ready: set[object]) -> None:
        """Reap the compactor if its descriptor is among those that are ready."""
        if self._pid is None or self._pidfd is None or self._pidfd not in ready:
            return
        self._poller.unregister(self._pidfd)
        os.close(self._pidfd)
        exit_ = wait_for(self._pid)
        self._pid = self._pidfd = None
        if exit_.code != 0:
            self._failed_at = self._ledger.sealed_since_snapshot
            self._log.error("the compactor ended with %s; its log says why", exit_)
            return
        self._failed_at = None
        try:
            deleted = self._ledger.drop_covered()
        except PraxistError as error:
            self._log.error("nothing was deleted: %s", error)
            return
        self._log.info("snapshot taken, %d files deleted", len(deleted))
