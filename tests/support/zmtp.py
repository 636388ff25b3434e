"""A peer that speaks ZMTP 3.0 by hand, right or wrong. Source: RFC 23/ZMTP."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

SIGNATURE = b"\xff" + b"\0" * 7 + b"\x01\x7f"
GREETING = SIGNATURE + b"\x03\0" + b"NULL".ljust(20, b"\0") + b"\0" + b"\0" * 31


def ready(kind: bytes) -> bytes:
    """The last word of a handshake of a socket of that kind."""
    told = b"\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    return b"\x04" + bytes([6 + len(told)]) + b"\x05READY" + told


READY = ready(b"DEALER")


class RawPeer:
    """One connection to a socket path."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(str(path))

    def send(self, data: bytes) -> bool:
        """Send bytes as they are; False when the other side has closed."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def handshake(self, kind: bytes = b"DEALER") -> bool:
        """A right handshake up to the other side's READY; False when it is refused."""
        self.send(GREETING + ready(kind))
        got = b""
        while len(got) < 66:
            piece = self._receive()
            if not piece:
                return False
            got += piece
        return got[66:72] == b"\x05READY"

    def _receive(self) -> bytes:
        try:
            return self.socket.recv(65_536)
        except ConnectionResetError:
            return b""

    def closed(self) -> bool:
        """Whether the other side closes, without or after a last word; waits for it."""
        while self._receive():
            pass
        return True

    def close(self) -> None:
        self.socket.close()


def frame(data: bytes, *, more: bool = False) -> bytes:
    """One message frame."""
    flags = 1 if more else 0
    if len(data) < 256:
        return bytes([flags, len(data)]) + data
    return bytes([flags | 2]) + struct.pack(">Q", len(data)) + data
