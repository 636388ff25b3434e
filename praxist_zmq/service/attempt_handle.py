"""What the launcher holds of one attempt: its life, its channel, its descriptors, its timers.

It moves bytes and closes descriptors; it decides nothing.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..core.launch import Life, Phase, Report
from ..core.proof import Verdict
from ..host.ending import Ending
from ..protocol.orders import SpawnAttempt
from ..protocol.process import ProcessIdentity
from ..protocol.reports import AttemptLingers

LINE_BYTES_MAX = 65_536
LOG = logging.getLogger("launcher")


@dataclass(slots=True)
class Stop:
    """A stop that was ordered: until when TERM is given time, and from when it counts as stuck."""

    kill_at_ms: int
    stuck_at_ms: int
    tell_at_ms: int = 0
    """When it may be told again that it is stuck."""
    pause_ms: int = 10
    ending: Ending = field(default_factory=Ending)


@dataclass(slots=True)
class Handle:
    """One attempt in hand."""

    life: Life
    order: SpawnAttempt | None = None
    """What it waits to be started with; None once a shim was asked for."""
    channel: socket.socket | None = None
    nonce: bytes = b""
    incoming: bytearray = field(default_factory=bytearray)
    outgoing: bytearray = field(default_factory=bytearray)
    log: int | None = None
    shim_fd: int | None = None
    leader_fd: int | None = None
    protected: bool = False
    """Whether a manifest was written for its evaluator."""
    orphan_fd: int | None = None
    """One process of it that lives on without the shim: until it ends no look is needed."""
    orphan_proved: bool = False
    """Whether that one is proved to belong to the attempt."""
    ledger_leader: ProcessIdentity | None = None
    hinted_group: int | None = None
    """The evaluator's group by an evidence file's word: worth a look, no proof."""
    seen: set[ProcessIdentity] = field(default_factory=set)
    """Found below its shim while that lived: proved the attempt's, whatever they become."""
    conclude: Callable[[], None] | None = None
    """How to learn the end of an adopted attempt once its shim is gone; None for our own."""
    abandoned: bool = False
    presumed_dead: bool = False
    """An operator said so, which counts while it cannot be seen."""
    judged: Verdict | None = None
    """The last verdict on its processes that was told."""
    lingers_at_ms: int | None = None
    """When to look next who keeps it, though its evaluator or shim is gone."""
    lingers: AttemptLingers | None = None
    """Who was told to keep it."""
    stop: Stop | None = None
    empty_looks: int = 0
    pause_ms: int = 10
    wake_at_ms: int | None = None
    told: Report | None = None
    """The last report of its life."""
    final: Report | None = None

    @property
    def asked(self) -> bool:
        """Whether a shim was asked for that has not come to its barrier."""
        return self.life.phase is Phase.SPAWNING and self.order is None

    @property
    def holds_descriptors(self) -> bool:
        """Whether it holds descriptors, or soon will."""
        return self.life.phase is not Phase.ENDED and self.order is None

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The shim's news so far, and whether its end of the channel is closed."""
        if self.channel is None:
            return [], True
        closed = False
        while True:
            try:
                part = self.channel.recv(65_536)
            except BlockingIOError:
                break
            except OSError:
                part = b""
            if not part:
                closed = True
                break
            self.incoming += part
        *lines, rest = self.incoming.split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            rest, closed = bytearray(), True
        self.incoming = bytearray(rest)
        return [news for line in lines if (news := _understand(line)) is not None], closed

    def write(self, data: bytes = b"") -> bool:
        """Send what the channel takes now. True while something is left to send."""
        self.outgoing += data
        while self.outgoing and self.channel is not None:
            try:
                sent = self.channel.send(self.outgoing, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return True
            except OSError:
                # The shim is gone; its pidfd says so too, and that decides.
                self.outgoing.clear()
                return False
            del self.outgoing[:sent]
        return False

    def descriptors(self) -> list[int]:
        """Those that may be watched."""
        channel = self.channel.fileno() if self.channel is not None else None
        return [
            fd for fd in (channel, self.shim_fd, self.leader_fd, self.orphan_fd) if fd is not None
        ]

    def close(self) -> None:
        """Close everything; the life and the final report stay."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        for fd in (self.shim_fd, self.leader_fd, self.orphan_fd, self.log):
            if fd is not None:
                os.close(fd)
        self.shim_fd = self.leader_fd = self.orphan_fd = self.log = None
        self.outgoing.clear()
        self.wake_at_ms = self.lingers_at_ms = None


def _understand(line: bytearray) -> dict[str, Any] | None:
    """One line of a shim's news; None, and a line in the log, when it is no JSON object.

    The shim is a process of the user's like any other: a debugger can make it say anything.
    """
    try:
        news = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        LOG.error("a shim said what is not JSON (%s): %r", error, bytes(line[:200]))
        return None
    if not isinstance(news, dict):
        LOG.error("a shim said what is not an object: %r", bytes(line[:200]))
        return None
    return news
