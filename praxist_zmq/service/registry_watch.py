"""Keeps the host's claim registry there for as long as the run is up.

The registry outlives runs and is started by whichever run needs it first, so it is not a child:
its process id comes from `registry.json`, which it writes before it says that it serves, and its
end is seen through a pidfd. It is never signalled from here, so a forged file can at worst keep
its end from being noticed; brokers notice that by themselves.
"""

from __future__ import annotations

import json
import logging
import os
import select

from ..errors import PraxistError
from ..host.identity import read_stat
from ..host.paths import HostPaths
from ..host.spawn import boottime_ms_of, watch
from ..ledger.files import read_limited
from ..transport.poller import Poller
from .registry_start import ensure_registry

_log = logging.getLogger(__name__)
_INFO_BYTES_MAX = 65_536


class RegistryWatch:
    """The registry of one host scope."""

    def __init__(self, host: HostPaths) -> None:
        self._host = host
        self._pidfd: int | None = None
        self._process: tuple[int, int] | None = None

    def ensure(self, poller: Poller) -> None:
        """Find or start the registry, and watch it. Raises PraxistError."""
        self._forget(poller)
        ensure_registry(self._host)
        pid = self._read_pid()
        stat = read_stat(pid) if pid is not None else None
        if pid is None or stat is None:
            _log.warning("%s names no process; its end will not be noticed", self._host.directory)
            return
        self._pidfd = watch(pid)
        if self._pidfd is not None:
            self._process = (pid, boottime_ms_of(stat.start_ticks))
            poller.register(self._pidfd)

    def ended(self, poller: Poller) -> bool:
        """Whether it ended since `ensure`; told once."""
        if self._pidfd is None:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if not poll.poll(0):
            return False
        self._forget(poller)
        return True

    def process(self) -> tuple[int, int] | None:
        """(pid, started at CLOCK_BOOTTIME ms), or None when that is not known."""
        return self._process

    def _forget(self, poller: Poller) -> None:
        if self._pidfd is not None:
            poller.unregister(self._pidfd)
            os.close(self._pidfd)
        self._pidfd = self._process = None

    def _read_pid(self) -> int | None:
        try:
            info = json.loads(read_limited(self._host.registry_info, _INFO_BYTES_MAX))
        except (FileNotFoundError, PraxistError, ValueError):
            return None
        pid = info.get("pid") if isinstance(info, dict) else None
        return pid if isinstance(pid, int) and pid > 0 else None
