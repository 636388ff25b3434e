"""What the kernel tells of this network namespace's Unix sockets: who listens, and on which names.

An abstract name (shown with `@` in front) has no file: the kernel frees it when the process that
bound it ends, however that comes, and nothing else can. Nobody here accepts: a connection that
waits tells who listens, and hangs up when the listener is gone. Standard library only.
Sources: unix(7) "Abstract sockets", SO_PEERCRED; proc_net(5) `unix`.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

WAITING_MAX = 4096
"""Connections that may wait at a name; who finds no room is told nothing but that it is held."""
_LISTENS = "00010000"
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who listens on a name, as far as the kernel tells us."""

    pid: int | None
    """None: of a process namespace that we do not see, or too many wait there to be told."""
    uid: int | None


UNTOLD = Holder(None, None)


def listening() -> Iterator[str]:
    """Every path and name on which somebody listens; none where /proc shows none."""
    with contextlib.suppress(OSError), open("/proc/net/unix", errors="surrogateescape") as table:
        for line in table:
            parts = line.rstrip("\n").split(None, 7)
            if len(parts) == 8 and parts[3] == _LISTENS:
                yield parts[7]


def hold(name: str) -> socket.socket | None:
    """Take an abstract name and listen there; None when somebody has it.

    Raises OSError when the kernel has no room for a socket.
    """
    taken = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        taken.bind(_address(name))
        taken.listen(WAITING_MAX)
    except OSError as error:
        taken.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return taken


def ask(name: str) -> tuple[Holder, socket.socket | None] | None:
    """Who holds an abstract name or path; None when nobody does.

    With it a connection that becomes readable once the holder is gone, to be closed by the caller;
    None where too many wait there, or we can have no socket: then somebody may. Never blocks.
    """
    try:
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError:
        return UNTOLD, None
    try:
        probe.connect(_address(name))
    except BlockingIOError:
        probe.close()
        return UNTOLD, None
    except OSError:
        probe.close()
        return None
    raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Holder(pid or None, uid), probe


def gone(connection: socket.socket, wait_ms: int) -> bool:
    """Whether the holder behind a connection of `ask` ended, waiting for it at most `wait_ms`."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(wait_ms))


def _address(name: str) -> str:
    return "\0" + name[1:] if name.startswith("@") else name
