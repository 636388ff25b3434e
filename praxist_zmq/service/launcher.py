"""The launcher process: configuration from its supervisor, its lock, its link, its loop.

It ends in order when its supervisor does (end of file on stdin); running experiments go on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from ..host.clock import Clock, SystemClock
from ..host.device_names import scope_mark
from ..host.ending import supervisors_orphans
from ..host.identity import ProcStat, identity_of
from ..ledger.lock import OwnerLock
from .child_config import ChildConfig, report_ready, serve_child
from .launching import Launcher
from .owner import holds_lock
from .patient_lock import acquire_patiently

LOCK_WAIT_MS = 5_000
STDIN = 0
LOG = logging.getLogger("launcher")


def lock(config: ChildConfig, clock: Clock) -> OwnerLock:
    """The launcher's lock of the run. An earlier launcher that is ending gets a moment.

    Raises PraxistError `already_running`, `unsafe_path` or `path_unusable`.
    """
    me = identity_of(os.getpid())
    holder = {"pid": os.getpid(), "process": None if me is None else me.model_dump()}
    return acquire_patiently(config.run.launcher_lock, holder, clock, LOCK_WAIT_MS)


class _LinkClient(Protocol):
    """What this process uses of `transport.link.LinkClient`."""

    def fileno(self) -> int: ...

    def take(self) -> tuple[bool, list[tuple[bytes, list[bytes]]]]: ...

    def send(self, channel: bytes, parts: Sequence[bytes]) -> bool: ...


class CoreLink:
    """The launcher's channels on the private link: orders in, reports out."""

    def __init__(self, client: _LinkClient) -> None:
        self._client = client

    def fileno(self) -> int:
        """Wakes the loop."""
        return self._client.fileno()

    def receive(self) -> tuple[bool, list[bytes]]:
        """Whether there is a connection anew, and the bodies of the orders that wait."""
        found: list[bytes] = []
        anew, messages = self._client.take()
        for channel, parts in messages:
            if channel == b"order":
                found.extend(parts)
            else:
                LOG.warning("a message on channel %r was not for a launcher", channel)
        return anew, found

    def send(self, bodies: list[bytes]) -> bool:
        """One message of reports; False when it was dropped."""
        return self._client.send(b"report", bodies)


def strays(config: ChildConfig, known: set[int]) -> list[ProcStat]:
    """Orphans of attempts that fell to the supervisor.

    The claim registry also stands outside its session, and is known by the lock it holds.
    """
    found = supervisors_orphans(config.supervisor, known)
    return [stat for stat in found if not holds_lock(stat.pid, config.host.registry_lock)]


def serve(config: ChildConfig) -> int:
    """Be the launcher until the supervisor ends. Returns the exit status. Raises PraxistError."""
    from ..transport.link import LinkClient

    clock = SystemClock()
    held = lock(config, clock)
    client = LinkClient(config.core, config.secret_bytes, clock.mono_ms)
    launcher = Launcher(
        config.run,
        CoreLink(client),
        clock,
        partial(strays, config),
        scope_mark(config.host.directory),
    )
    try:
        report_ready(config)
        launcher.serve(until_closed=STDIN)
    finally:
        launcher.close()
        client.close()
        held.release()
    return 0


def main() -> None:
    """`python -m praxist_zmq.service.launcher`, started by the supervisor."""
    serve_child("launcher", serve)


if __name__ == "__main__":
    main()
