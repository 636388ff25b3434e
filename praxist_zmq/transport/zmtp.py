"""One peer's side of ZMTP, the protocol of ZeroMQ's connections, with a bound on every message.

ZeroMQ itself bounds the size of a frame and not the number of frames, and keeps what has come of an
unfinished message until its last frame (docs/adr/0014). This reads the bytes of a DEALER of ours,
of this release or the last one, and keeps of them one message at most. NULL security: who the peer
is, the kernel says. Decides nothing about what a message means. Source: RFC 23/ZMTP 3.0, RFC 37.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

GREETING = b"\xff" + b"\0" * 7 + b"\x01\x7f\x03\0" + b"NULL".ljust(20, b"\0") + b"\0" + b"\0" * 31
_MORE, _LONG, _COMMAND = 1, 2, 4
_TYPE = b"\x0bSocket-Type"
COMMAND_BYTES_MAX = 1_024


class Broken(Exception):
    """The peer sent what is no message of a DEALER, or more than it may."""


def command(name: bytes, data: bytes = b"") -> bytes:
    """A command, framed."""
    body = bytes([len(name)]) + name + data
    return bytes([_COMMAND, len(body)]) + body


READY = command(b"READY", _TYPE + struct.pack(">I", 6) + b"ROUTER")


def message(parts: tuple[bytes, ...]) -> bytes:
    """A message, framed."""
    framed = []
    for number, part in enumerate(parts, 1):
        more = _MORE if number < len(parts) else 0
        if len(part) < 256:
            framed.append(bytes([more, len(part)]))
        else:
            framed.append(bytes([more | _LONG]) + struct.pack(">Q", len(part)))
        framed.append(part)
    return b"".join(framed)


class Reader:
    """What a peer has sent so far. `answer` collects what the protocol itself answers it."""

    def __init__(self, parts_max: int, part_bytes_max: int) -> None:
        self._parts_max = parts_max
        self._part_bytes_max = part_bytes_max
        self._data = bytearray()
        self._parts: list[bytes] = []
        self._greeted = False
        self.ready = False
        """Whether the handshake is over."""
        self.answer = bytearray(GREETING)

    @property
    def kept(self) -> int:
        """Bytes of a message that is not complete."""
        return len(self._data) + sum(map(len, self._parts))

    def take(self, data: bytes) -> Iterator[tuple[bytes, ...]]:
        """The messages that are complete with these bytes. Raises Broken."""
        self._data += data
        if not self._greeted and not self._greet():
            return
        at = 0
        while (frame := self._frame(at)) is not None:
            flags, start, end = frame
            if end > len(self._data):
                break
            body = bytes(self._data[start:end])
            at = end
            if flags & _COMMAND:
                self._obey(body)
                continue
            if not self.ready:
                raise Broken("a message before the handshake")
            self._parts.append(body)
            if not flags & _MORE:
                whole, self._parts = tuple(self._parts), []
                yield whole
            elif len(self._parts) == self._parts_max:
                raise Broken(f"a message of more than {self._parts_max} parts")
        del self._data[:at]

    def _greet(self) -> bool:
        """Whether the greeting has come, which is dropped then."""
        data = self._data
        if (data[:1] != b"\xff") or (len(data) > 9 and not data[9] & 1):
            raise Broken("no ZMTP")
        if len(data) < len(GREETING):
            return False
        if data[10] < 3 or data[12:32] != GREETING[12:32]:
            raise Broken("another version or mechanism of ZMTP")
        del data[: len(GREETING)]
        self._greeted = True
        return True

    def _frame(self, at: int) -> tuple[int, int, int] | None:
        """(flags, start, end) of the frame that begins there; None when its head is not there."""
        data = self._data
        if len(data) - at < 2:
            return None
        flags = data[at]
        if flags & ~(_MORE | _LONG | _COMMAND):
            raise Broken("a frame with unknown flags")
        start, size = at + 2, data[at + 1]
        if flags & _LONG:
            if len(data) - at < 9:
                return None
            start, size = at + 9, struct.unpack_from(">Q", data, at + 1)[0]
        if size > (COMMAND_BYTES_MAX if flags & _COMMAND else self._part_bytes_max):
            raise Broken(f"a frame of {size} bytes")
        return flags, start, start + size

    def _obey(self, body: bytes) -> None:
        if self._parts:
            raise Broken("a command within a message")
        name = body[1 : 1 + body[0]] if body else b""
        if name == b"READY" and not self.ready:
            if struct.pack(">I", 6) + b"DEALER" not in body:
                raise Broken("another kind of socket")
            self.ready = True
            self.answer += READY
        elif name == b"PING" and self.ready:
            self.answer += command(b"PONG", body[7:23])
        elif name != b"PONG" or not self.ready:
            raise Broken("an unknown command")
