"""The zygote: one warm, single-threaded interpreter that forks a shim for every attempt.

Forking it costs a fraction of starting an interpreter. It owns no state and no socket of ours but
the one to its launcher, and ends when that closes. It never signals and never waits for a shim:
the kernel reaps them (SIGCHLD ignored). Shims don't depend on it.

Run as `python -I -S -c BOOT PACKAGE_PARENT SOCKET`: no site, no PYTHON* variables, nothing of a
peer's. Standard library only. Sources: fork(2), unix(7) SCM_RIGHTS.
"""

from __future__ import annotations

import gc
import os
import resource  # noqa: F401 - os.wait4 imports it: 1.5 ms of every shim unless it is here
import signal
import socket
import struct
import sys

from . import shim
from .subreaper import become_subreaper

BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from praxist_zmq.host.zygote import main; main(int(sys.argv[2]))"
)
REQUEST_BYTES_MAX = 512
MSG_CMSG_CLOEXEC = 0x40000000
KEPT = frozenset(
    {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGCONT, signal.SIGSEGV,
     signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}
)  # fmt: skip


def request(attempt: str, nonce: bytes) -> bytes:
    """What the launcher sends, together with channel, directory and log descriptors."""
    return attempt.encode() + b"\0" + nonce


def main(number: int) -> None:
    """Serve fork requests on descriptor `number` until it closes."""
    for each in signal.valid_signals() - KEPT:
        signal.signal(each, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    door = socket.socket(fileno=number)
    door.set_inheritable(False)
    shim.identity_of(os.getpid())  # read what all shims share once
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        try:
            message, descriptors = receive(door)
        except ConnectionResetError:
            sys.exit(0)  # the launcher died with answers unread
        if not message:
            sys.exit(0)
        serve(door, message, descriptors)


def receive(door: socket.socket) -> tuple[bytes, list[int]]:
    """One request and its descriptors, closed on exec from the start.

    Not `socket.recv_fds`: before Python 3.12 it drops its flags, and the evaluator would inherit
    the attempt's channel and directory.
    """
    size = struct.calcsize("3i")
    message, ancillary, _, _ = door.recvmsg(
        REQUEST_BYTES_MAX, socket.CMSG_SPACE(size), MSG_CMSG_CLOEXEC
    )
    descriptors: list[int] = []
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            whole = len(data) - len(data) % 4
            descriptors.extend(struct.unpack(f"{whole // 4}i", data[:whole]))
    return message, descriptors


def serve(door: socket.socket, message: bytes, descriptors: list[int]) -> None:
    """Fork one shim and answer `attempt pid`, or `attempt -errno`."""
    attempt, _, nonce = message.partition(b"\0")
    try:
        pid = os.fork()
    except OSError as error:
        pid = -(error.errno or 1)
    if pid == 0:
        enter(door, attempt.decode(), nonce, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    try:
        door.send(attempt + b" %d" % pid, socket.MSG_NOSIGNAL)
    except OSError:
        # The launcher is gone; the next read ends us.
        return


def enter(door: socket.socket, attempt: str, nonce: bytes, descriptors: list[int]) -> None:
    """The fork becomes a shim; whatever goes wrong, it never returns to the loop."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        become_subreaper()
        door.close()
        channel, directory, log = descriptors
        shim.run(attempt, nonce, channel, directory, log)
    finally:
        os._exit(70)
