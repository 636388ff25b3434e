"""A socket bound under ZAP: guarded before it is bound, and unbound whole.

Decides the order in which a door opens and closes. Never decides who is let in (`transport.zap`),
nor where a socket may be bound (`transport.context`).
"""

from __future__ import annotations

import os

from . import zap
from .context import ZSocket, bind_checked


class Door:
    """A bound socket. It is closed, and its file removed, also when opening it fails.

    `partner` is the kind of socket that proves that the kernel's word about a peer arrives; None
    leaves that to another door of the process. `everybody`: other users may
    connect too. Raises PraxistError when the path is unsafe or
    credentials do not arrive.
    """

    def __init__(
        self,
        socket: ZSocket,
        policy: zap.DoorPolicy,
        path: str | os.PathLike[str],
        partner: int | None = None,
        *,
        everybody: bool = False,
    ) -> None:
        self._socket = socket
        self._domain = zap.gatekeeper().guard(socket, policy)
        try:
            self._file = bind_checked(socket, path, everybody=everybody)
        except BaseException:
            self._shut()
            raise
        try:
            if partner is not None:
                zap.prove(policy, path, partner)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unbind, remove the socket file."""
        self._shut()
        self._file.remove()

    def _shut(self) -> None:
        self._socket.close(0)
        zap.gatekeeper().forget(self._domain)
