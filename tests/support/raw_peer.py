"""A peer that speaks to a ROUTER by hand: raw bytes on a Unix socket, with and without ZMTP."""

from __future__ import annotations

import contextlib
import socket
import struct

SIGNATURE = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f"
GREETING = SIGNATURE + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\x00" + bytes(31)


def command(name: bytes, body: bytes) -> bytes:
    """One ZMTP 3.0 command frame."""
    content = bytes([len(name)]) + name + body
    return b"\x04" + bytes([len(content)]) + content


def ready(kind: bytes = b"DEALER") -> bytes:
    """The READY command."""
    name = b"Socket-Type"
    return command(b"READY", bytes([len(name)]) + name + struct.pack(">I", len(kind)) + kind)


def frame(body: bytes, more: bool = False, claimed: int | None = None) -> bytes:
    """One message frame, perhaps with a lie about its length."""
    size = len(body) if claimed is None else claimed
    if size < 256:
        return bytes([1 if more else 0, size]) + body
    return bytes([3 if more else 2]) + struct.pack(">Q", size) + body


class RawPeer:
    """One raw connection."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(5)
        self.socket.connect(path)

    def greet(self) -> RawPeer:
        """Complete the handshake, as far as the other side lets us in."""
        self.socket.sendall(GREETING)
        got = b""
        while len(got) < 64:
            part = self.socket.recv(4096)
            if not part:
                raise ConnectionError("cut during the greeting")
            got += part
        self.socket.sendall(ready())
        while b"READY" not in got:  # a message before that is a breach of the protocol
            part = self.socket.recv(4096)
            if not part:
                raise ConnectionError("cut during the handshake")
            got += part
        return self

    def send(self, data: bytes) -> bool:
        """False once the other side has cut the connection or takes no more."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def until(self, mark: bytes) -> bytes:
        """What comes until `mark` is in it after the handshake's own bytes."""
        got = b""
        while b"praxist" not in got or mark not in got.partition(b"praxist")[2]:
            part = self.socket.recv(65_536)
            if not part:
                raise ConnectionError(f"cut after {got!r}")
            got += part
        return got

    def is_cut(self) -> bool:
        """Whether the other side closed it, within the time limit."""
        try:
            while self.socket.recv(65_536):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        """Close it."""
        with contextlib.suppress(OSError):
            self.socket.close()
