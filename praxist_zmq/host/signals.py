"""Signals, sent only to a process whose identity was just verified; and child deaths as a wake-up.

It never signals by bare number: every signal goes through a pidfd that was checked against the
identity on record. Source: pidfd_send_signal(2), signal-safety(7).
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable
from functools import cache
from types import FrameType

from ..protocol.process import ProcessIdentity
from .identity import open_pidfd

TERM = signal.SIGTERM
KILL = signal.SIGKILL
CONT = signal.SIGCONT
PROCESS_GROUP = 4  # PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9


@cache
def group_signals_supported() -> bool:
    """Whether the kernel can signal a whole group through its leader's pidfd; probed once."""
    fd = os.pidfd_open(os.getpid())
    try:
        signal.pidfd_send_signal(fd, 0, None, PROCESS_GROUP)
    except OSError as error:
        return error.errno != errno.EINVAL  # ESRCH: we lead no group, but the flag is known
    finally:
        os.close(fd)
    return True


def send(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Signal exactly that process. False when it is gone or not ours to signal."""
    fd = open_pidfd(identity)
    if fd is None:
        return False
    try:
        return send_pidfd(fd, number)
    finally:
        os.close(fd)


def send_pidfd(fd: int, number: signal.Signals) -> bool:
    """Signal the process behind a pidfd. False when it is gone or belongs to another user."""
    try:
        signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def send_group(leader_fd: int, number: signal.Signals) -> bool:
    """Signal the whole group of the leader behind a pidfd, also after the leader was reaped.

    False when nobody is left, or when the kernel cannot do it: then the caller signals the
    members one by one, which is slower and as safe.
    """
    if not group_signals_supported():
        return False
    try:
        signal.pidfd_send_signal(leader_fd, number, None, PROCESS_GROUP)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class ChildWatch:
    """Turns SIGCHLD into a readable descriptor, so that one poll waits for everything."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        self._old_handler = signal.signal(signal.SIGCHLD, _note)
        self._old_fd = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Readable after a child changed state."""
        return self._receiver.fileno()

    def drain(self) -> None:
        """Make the descriptor unreadable again."""
        try:
            while self._receiver.recv(4096):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Put the earlier handler back."""
        signal.set_wakeup_fd(self._old_fd)
        signal.signal(signal.SIGCHLD, self._old_handler)
        self._receiver.close()
        self._sender.close()


def _note(_number: int, _frame: FrameType | None) -> None:
    """The wake-up descriptor carries the news; the handler itself has nothing to do."""


def outlive_terminal() -> None:
    """Ignore what a terminal sends: our end is the end of our supervisor, seen on stdin."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)


def on_term(action: Callable[[], None]) -> None:
    """Run `action` in the main thread when SIGTERM comes; a `ChildWatch` wakes its poll."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: action())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def reap() -> list[tuple[int, int]]:
    """Collect every dead child: (pid, wait status). Never waits."""
    dead: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return dead
        if pid == 0:
            return dead
        dead.append((pid, status))
