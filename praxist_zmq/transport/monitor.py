"""What happens to a connection, as ZeroMQ's monitor tells it: made, lost, refused.

Source: zmq_socket_monitor(3). A connection counts as made when the ZMTP handshake succeeded, not
when the kernel accepted it: a stopped process still accepts.
"""

from __future__ import annotations

import struct

import zmq

from .context import ZSocket

WRITABLE_MS = 100
_EVENT = struct.Struct("=H")
"""The event's number, first in the first frame."""
_READABLE = int(zmq.POLLIN)
_MADE = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_LOST = int(zmq.EVENT_DISCONNECTED)
_REFUSED = (
    int(zmq.EVENT_CONNECT_RETRIED)
    | int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
    | int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
    | int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
)


class ConnectionMonitor:
    """Watches the one connection of a connecting socket. Create it before `connect`."""

    def __init__(self, socket: ZSocket) -> None:
        self._watched = socket
        self.socket: ZSocket = socket.get_monitor_socket(_MADE | _LOST | _REFUSED)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.connected = False
        self.made = 0
        self.lost = 0
        self.refused = 0
        self._told = 0

    def update(self) -> None:
        """Take in everything that happened since the last call; never blocks."""
        while int(self.socket.getsockopt(zmq.EVENTS)) & _READABLE:
            # pyzmq's own reader of these messages imports asyncio: 25 ms for every command.
            frame = self.socket.recv_multipart(zmq.NOBLOCK)[0]
            (event,) = _EVENT.unpack_from(frame)
            if event & _MADE:
                self.connected = True
                self.made += 1
            elif event & _LOST:
                self.connected = False
                self.lost += 1
            elif event & _REFUSED:
                self.refused += 1

    def made_anew(self) -> bool:
        """True once after each connection made (several at once count as one), when it can send.

        The monitor may tell of a connection before the socket itself knows; then this waits for
        that, microseconds as a rule, so that what is sent next is not dropped. One that cannot send
        even then was lost again: the monitor wakes its owner once more for that, and for the next.
        """
        self.update()
        if self.made == self._told or not self.connected:
            return False
        if not self._watched.poll(WRITABLE_MS, zmq.POLLOUT):
            return False
        self._told = self.made
        return True

    def close(self) -> None:
        """Stop watching; call before the watched socket is closed."""
        self._watched.disable_monitor()
        if not self.socket.closed:
            self.socket.close(0)
