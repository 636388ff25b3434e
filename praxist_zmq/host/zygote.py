"""The zygote: one warm, single-threaded interpreter that forks a shim for every attempt.

Forking it costs a fraction of starting an interpreter. It owns no state and no socket of ours but
the one to its launcher, and ends when that closes. It never signals and never waits for a shim:
the kernel reaps them (SIGCHLD ignored). Shims don't depend on it.

Run as `python -I -S -c BOOT PACKAGE_PARENT SOCKET`: no site, no PYTHON* variables, nothing of a
peer's. Standard library only. Sources: fork(2), unix(7) SCM_RIGHTS.
"""

from __future__ import annotations

import _socket
import gc
import os
import resource  # noqa: F401 - os.wait4 imports it: 1.5 ms of every shim unless it is here
import struct
import sys

from . import shim
from .subreaper import DEFAULT, IGNORE, SIGCHLD, become_subreaper, dispose

BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from praxist_zmq.host.zygote import main; main(int(sys.argv[2]))"
)
REQUEST_BYTES_MAX = 512
DESCRIPTORS_MAX = 253
"""As many as the kernel passes in one message: channel, directory, log, and names of devices."""
REHEARSALS = 20
MSG_CMSG_CLOEXEC = 0x40000000
KEPT = frozenset((4, 5, 6, 7, 8, 11, SIGCHLD, 18, 31))
"""ILL TRAP ABRT BUS FPE SEGV CHLD CONT SYS: faults of ours must show."""


def request(attempt: str, nonce: bytes) -> bytes:
    """What the launcher sends, together with channel, directory and log descriptors."""
    return attempt.encode() + b"\0" + nonce


def main(number: int) -> None:
    """Serve fork requests on descriptor `number` until it closes."""
    for each in shim.RESET_SIGNALS:
        if each not in KEPT:
            dispose(each, IGNORE)
    dispose(SIGCHLD, IGNORE)
    os.set_inheritable(number, False)
    door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, number)
    rehearse()
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


def rehearse() -> None:
    """Take a shim's steps here first.

    What a fork does for the first time it pays with copied pages: code that adapts itself, caches
    of types and methods, free lists. After this most of it is done, for all forks at once.
    """
    for _ in range(REHEARSALS):
        become_subreaper(on=False)
        dispose(SIGCHLD, IGNORE)
        ours, door = _socket.socketpair()
        one = shim.Shim("rehearsal", b"nonce", door, -1, -1)
        one.file = stage = os.memfd_create("rehearsal")
        one.prepare()
        ours.send(shim.launch_frame([b"/bin/true"], b"/", {b"A": b"B", b"C": b"D"}))
        ours.send(shim.go_frame(b"nonce", sys.maxsize // shim.MS))
        one.wait_for_go()
        one.record_go()
        one.leave(b"started", b', "leader": %b' % shim.identity_of(os.getpid()))
        one.watch(0)
        one.record_exit(b"exited", 0, (0.0, 0.0, 0), True)
        ours.close()
        door.close()
        os.close(stage)


def receive(door: _socket.socket) -> tuple[bytes, list[int]]:
    """One request and its descriptors, closed on exec from the start.

    Not `socket.recv_fds`: before Python 3.12 it drops its flags, and the evaluator would inherit
    the attempt's channel and directory.
    """
    size = struct.calcsize(f"{DESCRIPTORS_MAX}i")
    message, ancillary, _, _ = door.recvmsg(
        REQUEST_BYTES_MAX, _socket.CMSG_SPACE(size), MSG_CMSG_CLOEXEC
    )
    descriptors: list[int] = []
    for level, kind, data in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            whole = len(data) - len(data) % 4
            descriptors.extend(struct.unpack(f"{whole // 4}i", data[:whole]))
    return message, descriptors


def serve(door: _socket.socket, message: bytes, descriptors: list[int]) -> None:
    """Fork one shim and answer `attempt pid`, or `attempt -errno`."""
    attempt, _, nonce = message.partition(b"\0")
    try:
        pid = os.fork()
    except OSError as error:
        pid = -(error.errno or 1)
    if pid == 0:
        enter(door, attempt.decode(), nonce, descriptors)
    try:
        door.send(attempt + b" %d" % pid, _socket.MSG_NOSIGNAL)
    except OSError:
        # The launcher is gone; the next read ends us.
        return
    finally:
        # Only now: a channel that closes before its answer is there looks like a shim that died.
        for descriptor in descriptors:
            os.close(descriptor)


def enter(door: _socket.socket, attempt: str, nonce: bytes, descriptors: list[int]) -> None:
    """The fork becomes a shim; whatever goes wrong, it never returns to the loop."""
    try:
        dispose(SIGCHLD, DEFAULT)
        become_subreaper()
        os.close(door.fileno())
        channel, directory, log, *held = descriptors
        shim.run(attempt, nonce, channel, directory, log, held)
    except OSError as error:
        # Before its barrier: what the host lacks is told. After it, what it said before counts.
        os.write(descriptors[0], b'{"kind": "lacking", "errno": %d}\n' % (error.errno or 0))
    finally:
        os._exit(70)
