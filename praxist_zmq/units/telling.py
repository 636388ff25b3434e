"""Tells the scheduler how far this attempt has come. Telemetry: it decides nothing.

One short connection for one request, in the protocol of ZeroMQ by hand, because a task's
interpreter may lack its library; never waits longer than it is told to. A scheduler that is away
is no error, since experiments outlive it. Source: RFC 23/ZMTP 3.0, NULL mechanism, a DEALER.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .unit import UnitsError

PREAMBLE = b"praxist-zmq/1"
TEXT_BYTES_MAX = 1_024
STEPS_MAX = 1_000_000_000_000
TIMEOUT_S = 1.0
FILE_BYTES_MAX = 65_536
FRAME_BYTES_MAX = 65_536
MORE, LONG, COMMAND = 1, 2, 4
_GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\0" + b"NULL".ljust(20, b"\0") + bytes(32)
_DEALER = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ATTEMPT = re.compile(r"j-[1-9][0-9]{0,11}\.[1-9][0-9]{0,5}")

Reception = Literal["taken", "passed_over", "refused", "unreachable", "outside"]


@dataclass(frozen=True, slots=True)
class ProgressTold:
    """What became of it: `taken`; `passed_over`, for more was told before; `refused` with the
    scheduler's `code`; `unreachable`; `outside` any attempt. `shown` is what readers see."""

    reception: Reception
    detail: str = ""
    code: str | None = None
    shown: dict[str, Any] | None = None


class Unreachable(Exception):
    """No scheduler answers here now."""


def progress(done: int, total: int, text: str = "") -> bool:
    """Tell that `done` of `total` steps are done; whether a scheduler took note.

    For inside an attempt; elsewhere, and while no scheduler is there, it does nothing but return
    False, within about a second. A `done` below one told before is passed over. Raises UnitsError
    when the numbers or the text (one line, at most 1 KiB) are malformed.
    """
    return tell_progress(done, total, text).reception == "taken"


def tell_progress(
    done: int,
    total: int,
    text: str = "",
    *,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> ProgressTold:
    """`progress`, with what became of it. Raises UnitsError."""
    _check(done, total, text)
    environ = os.environ if environ is None else environ
    run_dir = environ.get("PRAXIST_RUN_DIR")
    attempt = environ.get("PRAXIST_EXPERIMENT_ATTEMPT_ID")
    if not run_dir or attempt is None or not _ATTEMPT.fullmatch(attempt):
        return ProgressTold("outside", "this is not the process of an attempt")
    request = {
        "kind": "report_progress",
        "attempt": attempt,
        "pgid": os.getpgrp(),
        "done": done,
        "total": total,
        "text": text,
    }
    body = {"request_id": os.urandom(16).hex(), "request": request}
    try:
        path, owner = _door(run_dir)
        reply = _ask(path, owner, json.dumps(body, ensure_ascii=False).encode(), timeout_s)
    except TimeoutError:
        return ProgressTold("unreachable", "the scheduler does not answer in time")
    except (OSError, Unreachable) as error:
        return ProgressTold("unreachable", str(error))
    if reply.get("kind") == "refusal":
        return ProgressTold("refused", str(reply.get("detail")), str(reply.get("code")))
    reception: Reception = "taken" if reply.get("taken") else "passed_over"
    return ProgressTold(reception, shown=reply.get("progress"))


def _check(done: int, total: int, text: str) -> None:
    for name, value in (("done", done), ("total", total)):
        if type(value) is not int or not 0 <= value <= STEPS_MAX:
            mend = f"give a whole number from 0 to {STEPS_MAX}"
            raise UnitsError(f"{str(value)[:40]!r} is no count of steps", name, mend)
    if total < 1 or done > total:
        raise UnitsError(f"{done} of {total} steps", "done", "give 0 <= done <= total, 1 <= total")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UnitsError("not text", "text", "give Unicode text") from None
    if size > TEXT_BYTES_MAX:
        raise UnitsError(f"{size} bytes", "text", f"give at most {TEXT_BYTES_MAX}")
    if _CONTROL.search(text):
        raise UnitsError("holds a control character", "text", "give one line of plain text")


def _door(run_dir: str) -> tuple[str, int]:
    """The socket that the run's scheduler published, and whose it is. Raises Unreachable."""
    path = os.path.join(run_dir, "resource_scheduler", "endpoint.json")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        found = os.fstat(descriptor)
        raw = os.read(descriptor, FILE_BYTES_MAX) if stat.S_ISREG(found.st_mode) else b""
    finally:
        os.close(descriptor)
    try:
        address = json.loads(raw)["endpoint"]
        if not address.startswith("ipc:///"):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unreachable(f"{path} names no socket") from None
    return address.removeprefix("ipc://"), found.st_uid


def _ask(path: str, owner: int, body: bytes, timeout_s: float) -> dict[str, Any]:
    """One request, one reply. Raises Unreachable, OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        line = _Line(door, timeout_s)
        line.ready()
        door.connect(path)
        credentials = door.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", credentials)[1] != owner:
            raise Unreachable(f"{path} is not served by the user who published it")
        line.send(_GREETING + _frame(COMMAND, _DEALER))
        if not line.exactly(64).startswith(_GREETING[:1]):
            raise Unreachable(f"{path} speaks another protocol")
        flags, word = line.frame()
        if not flags & COMMAND or not word.startswith(b"\x05READY"):
            raise Unreachable(f"{path} does not let this process in")
        line.send(_frame(MORE, PREAMBLE) + _frame(0, body))
        frames = [line.message_frame(), line.message_frame()]
    try:
        reply = json.loads(frames[1])["reply"]
    except (ValueError, KeyError, TypeError, RecursionError):
        reply = None
    if frames[0] != PREAMBLE or not isinstance(reply, dict):
        raise Unreachable(f"{path} gave an answer of another protocol")
    return reply


def _frame(flags: int, data: bytes) -> bytes:
    if len(data) < 256:
        return bytes([flags, len(data)]) + data
    return bytes([flags | LONG]) + struct.pack(">Q", len(data)) + data


class _Line:
    """A connection whose every step together has one limit of time."""

    def __init__(self, door: socket.socket, timeout_s: float) -> None:
        self._door = door
        self._until = time.monotonic() + timeout_s

    def ready(self) -> None:
        """Give the next step what is left of the time. Raises Unreachable."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise Unreachable("the scheduler does not answer in time")
        self._door.settimeout(left)

    def send(self, data: bytes) -> None:
        self.ready()
        self._door.sendall(data)

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            self.ready()
            piece = self._door.recv(size - len(data))
            if not piece:
                raise Unreachable("the scheduler closed the connection")
            data += piece
        return data

    def frame(self) -> tuple[int, bytes]:
        flags, size = self.exactly(2)
        if flags & LONG:
            size = int.from_bytes(bytes([size]) + self.exactly(7), "big")
        if size > FRAME_BYTES_MAX:
            raise Unreachable("the scheduler's answer is too long")
        return flags, self.exactly(size)

    def message_frame(self) -> bytes:
        """The next frame of a message; commands between messages are passed over."""
        while True:
            flags, data = self.frame()
            if not flags & COMMAND:
                return data
