"""A plain stream socket that is listened to: bound where nobody else may look, and who connects, by
the kernel's word.

Decides nothing about who is let in. Sources: unix(7) SO_PEERCRED, accept(2).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from typing import NamedTuple

from .context import BACKLOG, bind_guarded, endpoint_of

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_CREDENTIALS = struct.Struct("3i")


class Arrival(NamedTuple):
    """A connection just made. Process 0 is unknown: another pid namespace."""

    connection: socket.socket
    uid: int
    pid: int


class Listener:
    """Raises PraxistError when the path is unsafe. `everybody`: other users may reach it who may
    pass its directory."""

    def __init__(self, path: str | os.PathLike[str], *, everybody: bool = False) -> None:
        endpoint_of(path)  # for its limit on the length
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._file = bind_guarded(path, lambda: _bind(self.socket, path), everybody=everybody)
            self.socket.listen(BACKLOG)
        except BaseException:
            self.socket.close()
            raise
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.turned_away = 0
        """Connections for which there was no descriptor."""

    def accept(self) -> Arrival | None:
        """The next that waits; None when there is none, or no room for it."""
        try:
            connection, _ = self.socket.accept()
        except BlockingIOError:
            return None  # it went away again
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
            self._turn_away()
            return None
        connection.setblocking(False)
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        return Arrival(connection, uid, pid)

    def _turn_away(self) -> None:
        """Without a descriptor left, a connection would keep us awake until it was accepted."""
        self.turned_away += 1
        os.close(self._spare)
        with contextlib.suppress(OSError):  # another thread of the process may have been quicker
            self.socket.accept()[0].close()
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close it, remove the socket file."""
        self.socket.close()
        os.close(self._spare)
        self._file.remove()


def _bind(listener: socket.socket, path: str | os.PathLike[str]) -> None:
    """In the place of what an earlier end of ours left there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener.bind(os.fspath(path))
