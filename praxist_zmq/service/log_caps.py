"""When the launcher looks at the logs of running attempts, and what it does with one over the cap.

It blocks no experiment and ends none; a log that cannot be looked at is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..core.launch import Phase
from ..host.attempt_files import AttemptFiles
from .attempt_handle import Handle

LOG = logging.getLogger("launcher")
LOOK_MS = 10_000
WRITING = (Phase.RUNNING, Phase.DRAINING, Phase.SWEEPING)
MIB = 2**20


class LogCaps:
    """One cap for all logs of a run, once the broker has told it."""

    def __init__(self, files: AttemptFiles) -> None:
        self._files = files
        self._cap_bytes: int | None = None
        self._looked_ms = 0

    def set(self, cap_mib: int | None) -> None:
        """The cap from now on; the next look is due at once."""
        self._cap_bytes = None if cap_mib is None else cap_mib * MIB
        self._looked_ms = 0

    def due_ms(self, handles: Iterable[Handle]) -> int | None:
        """When to look again; None while nothing writes."""
        if self._cap_bytes is None or not any(h.life.phase in WRITING for h in handles):
            return None
        return self._looked_ms + LOOK_MS

    def look(self, handles: Iterable[Handle], now_ms: int) -> None:
        """If it is time, take the middle out of every log that is over the cap."""
        handles = list(handles)
        due_ms = self.due_ms(handles)
        if due_ms is None or due_ms > now_ms or self._cap_bytes is None:
            return
        self._looked_ms = now_ms
        for handle in handles:
            if handle.life.phase not in WRITING:
                continue
            attempt = handle.life.attempt
            try:
                taken = self._files.cap_log(attempt, self._cap_bytes)
            except OSError as error:
                LOG.warning("the log of %s cannot be capped: %s", attempt, error)
                continue
            if taken:
                cap_mib = self._cap_bytes // MIB
                LOG.warning("the log of %s was over %d MiB: its middle is gone", attempt, cap_mib)
