"""The kernel tells when tasks begin to stall, instead of being asked often (PSI triggers).

One trigger each for CPU, memory and I/O: it fires, at most once a window, when some task stalled
for the given part of the window. Where the kernel refuses, there is no trigger, and samples come at
their steady pace alone. It measures nothing: whoever waits on it takes a sample then.
Source: the kernel's psi document, "Monitoring for pressure thresholds".
"""

from __future__ import annotations

import logging
import os
import select
from pathlib import Path

DOMAINS = ("cpu", "memory", "io")
TRIGGERS = (b"some 150000 1000000\0", b"some 300000 2000000\0")
"""Microseconds stalled, of a window of microseconds. The second is the shortest window that the
kernel gives to whoever lacks CAP_SYS_RESOURCE."""


class PressureTriggers:
    """Arms what the kernel allows. `fileno` is readable when a trigger fired."""

    def __init__(self, directory: Path = Path("/proc/pressure")) -> None:
        self._epoll = select.epoll()
        self._armed: dict[int, str] = {}
        self._refused: list[str] = []
        for domain in DOMAINS:
            descriptor = self._arm(directory / domain)
            if descriptor is not None:
                self._armed[descriptor] = domain
        if self._refused:
            log = logging.getLogger(__name__)
            log.info("no pressure trigger, steady pace only: %s", "; ".join(self._refused))

    @property
    def armed(self) -> tuple[str, ...]:
        """The domains that are watched."""
        return tuple(self._armed.values())

    def fileno(self) -> int:
        """For a poller. That it was readable is the sign: polling it takes the event away."""
        return self._epoll.fileno()

    def clear(self) -> None:
        """After it was readable: make it quiet again, and drop a trigger that broke."""
        for descriptor, events in self._epoll.poll(0):
            if events & select.EPOLLERR:
                self._drop(descriptor)

    def close(self) -> None:
        """Disarm everything."""
        for descriptor in list(self._armed):
            self._drop(descriptor)
        self._epoll.close()

    def _arm(self, path: Path) -> int | None:
        """A descriptor with a trigger, or None where the kernel refuses."""
        why = ""
        for trigger in TRIGGERS:
            descriptor = -1
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                os.write(descriptor, trigger)
                self._epoll.register(descriptor, select.EPOLLPRI)
            except OSError as error:
                why = f"{path}: {error.strerror}"
                if descriptor >= 0:
                    os.close(descriptor)
            else:
                return descriptor
        self._refused.append(why)
        return None

    def _drop(self, descriptor: int) -> None:
        del self._armed[descriptor]
        self._epoll.unregister(descriptor)
        os.close(descriptor)
