"""Messages taken off a socket one frame at a time, so that a strange one is never built whole.

Decides nothing about content. ZeroMQ bounds the size of one frame but not the number of frames in
a message; a message of a million frames is dropped here in slices, between which the owner of the
socket can do other work.
"""

from __future__ import annotations

import zmq

from .context import ZSocket

_NOBLOCK = int(zmq.NOBLOCK)
_EVENTS = int(zmq.EVENTS)
_READABLE = int(zmq.POLLIN)
SKIP_FRAMES_A_TURN = 20_000


class FrameReader:
    """Reads one socket. Use: `begin`, then `take` while `more`, then `skip` for what is left."""

    def __init__(self, socket: ZSocket) -> None:
        self._socket = socket
        self.more = False

    def begin(self) -> zmq.Frame | None:
        """The first frame of the next message; None when none waits or one is still dropped."""
        if self.more and not self.skip():
            return None
        # Looking first is cheaper than the exception at the end of every drain.
        if not int(self._socket.getsockopt(_EVENTS)) & _READABLE:
            return None
        try:
            frame = self._socket.recv(_NOBLOCK, copy=False)
        except zmq.Again:
            return None
        self.more = frame.more
        return frame

    def take(self) -> zmq.Frame:
        """The next frame of the message that `begin` started; only while `more`."""
        frame = self._socket.recv(_NOBLOCK, copy=False)
        self.more = frame.more
        return frame

    def skip(self) -> bool:
        """Drop the rest of the message, a slice of it at most; True when it is done."""
        for _ in range(SKIP_FRAMES_A_TURN):
            if not self.more:
                return True
            try:
                self.more = self._socket.recv(_NOBLOCK, copy=False).more
            except zmq.Again:
                return False  # the rest of it is to come
        return not self.more
