"""What the claim registry tells of itself in `registry.json`, and the end of an outdated one.

The file is believed for nothing but its words: a process is signalled only when it is the very one
that is named and /proc shows the scope's lock among its descriptors.
"""

from __future__ import annotations

import json
import logging
import os
import select
from dataclasses import dataclass

from ..errors import PraxistError
from ..host.identity import open_pidfd
from ..host.paths import HostPaths
from ..host.signals import TERM, send_pidfd
from ..ledger.files import read_limited
from ..protocol.claims import CLAIMS_VERSION
from ..protocol.process import ProcessIdentity
from .owner import holds_lock

INFO_BYTES_MAX = 65_536
END_MS = 10_000
"""For an outdated registry to write its last and go."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RegistryInfo:
    """Who serves, and what it knows."""

    process: ProcessIdentity
    version: int
    """Of the claims protocol; releases that tell none have the first."""

    @property
    def outdated(self) -> bool:
        """Whether it is of an earlier release, and lacks what our brokers rely on."""
        return self.version < CLAIMS_VERSION


def read(host: HostPaths) -> RegistryInfo | None:
    """None where nothing is told, or nothing that can be understood."""
    try:
        info = json.loads(read_limited(host.registry_info, INFO_BYTES_MAX))
        process = ProcessIdentity.model_validate(info["process"])
        return RegistryInfo(process, int(info.get("version", 1)))
    except (FileNotFoundError, PraxistError, ValueError, RecursionError, KeyError, TypeError):
        return None


def outdated(host: HostPaths) -> bool:
    """Whether a registry of an earlier release names itself as the one that serves."""
    info = read(host)
    return info is not None and info.outdated


def end_outdated(host: HostPaths) -> bool:
    """Ask an outdated registry of ours to end in order, and wait for that; whoever needs one starts
    another on the same ledger. False when it goes on: then it serves as it did."""
    info = read(host)
    pidfd = open_pidfd(info.process) if info is not None and info.outdated else None
    if info is None or pidfd is None:
        return False
    try:
        if not holds_lock(info.process.pid, host.registry_lock) or not send_pidfd(pidfd, TERM):
            return False
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        ended = bool(poll.poll(END_MS))
    finally:
        os.close(pidfd)
    told = "ended" if ended else "was asked to end and goes on"
    pid = info.process.pid
    _log.warning("claim registry %d of an earlier release (version %d) %s", pid, info.version, told)
    return ended
