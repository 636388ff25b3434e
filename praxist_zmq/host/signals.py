"""Signals, sent only to a process whose identity was just verified.

It never signals by bare number: every signal goes through a pidfd that was checked against the
identity on record. Source: pidfd_send_signal(2).
"""

from __future__ import annotations

import errno
import os
import signal
from functools import cache

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
