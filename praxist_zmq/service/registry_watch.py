"""Keeps the host's claim registry there for as long as the run is up.

The registry outlives runs and is started by whichever run needs it first, so it is not a child:
its process id comes from `registry.json`, which it writes before it says that it serves, and its
end is seen through a pidfd. Nothing is signalled from here, so a forged file can at worst keep its
end from being noticed; brokers notice that by themselves.
"""

from __future__ import annotations

import logging
import os
import select

from ..host.clock import pause_ms
from ..host.identity import identity_of
from ..host.paths import HostPaths
from ..host.spawn import boottime_ms_of, watch
from ..transport.poller import Poller
from . import registry_info
from .registry_start import ensure_registry

_log = logging.getLogger(__name__)
LOOKS_MAX = 20
LOOK_PAUSE_MS = 50
"""Together the time in which a registry that serves has written its name."""


class RegistryWatch:
    """The registry of one host scope."""

    def __init__(self, host: HostPaths) -> None:
        self._host = host
        self._pidfd: int | None = None
        self._process: tuple[int, int] | None = None

    def ensure(self, poller: Poller) -> None:
        """Find or start the registry, and watch it. Raises PraxistError."""
        self._forget(poller)
        for _ in range(LOOKS_MAX):
            if not ensure_registry(self._host).ours:
                return  # its owner keeps it there; our broker comes back to it by itself
            if self._watch_it():
                assert self._pidfd is not None
                poller.register(self._pidfd)
                return
            # It has just ended, or just begun and not written its name yet.
            pause_ms(LOOK_PAUSE_MS)
        _log.warning("%s names no process; its end will not be noticed", self._host.registry_info)

    def _watch_it(self) -> bool:
        """Whether the process that `registry.json` names is there, and watched now."""
        info = registry_info.read(self._host)
        named = None if info is None else info.process
        pidfd = watch(named.pid) if named is not None else None
        if named is None or pidfd is None:
            return False
        # Read after the pidfd was opened: so it is the same process that both mean.
        if identity_of(named.pid) != named or _ended(pidfd):
            os.close(pidfd)
            return False
        self._pidfd = pidfd
        self._process = (named.pid, boottime_ms_of(named.start_ticks))
        return True

    def ended(self, poller: Poller) -> bool:
        """Whether it ended since `ensure`; told once."""
        if self._pidfd is None or not _ended(self._pidfd):
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


def _ended(pidfd: int) -> bool:
    """Also while nobody has reaped it yet."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
