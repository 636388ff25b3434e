"""Whether a process stands below the shim of an attempt, or in its evaluator's group.

By the kernel's word alone: parents and groups of /proc, compared with identities on record. No
environment and no file is read. It never signals. Source: proc(5).
"""

from __future__ import annotations

import os

from ..protocol.process import ProcessIdentity
from .identity import is_alive, read_stat, stat_of, user_of

GENERATIONS_MAX = 256


def belongs_to(pid: int, shim: ProcessIdentity, leader: ProcessIdentity | None) -> str | None:
    """Why `pid` does not belong to the attempt; None when it does."""
    if not is_alive(shim):
        return "the attempt's shim is gone"
    caller = read_stat(pid)
    if caller is None:
        return "the caller is gone"
    if user_of(pid) != os.getuid():
        return "the caller is another user's process"
    if leader is not None and caller.group == leader.pid and is_alive(leader):
        return None
    above = caller
    for _ in range(GENERATIONS_MAX):
        if above.parent == shim.pid:
            # The shim lives, and is older than all below it: the number is still its own.
            return None if stat_of(shim) is not None else "the attempt's shim is gone"
        parent = read_stat(above.parent) if above.parent > 1 else None
        if parent is None or parent.start_ticks > above.start_ticks:
            break
        above = parent
    return "the caller does not descend from that attempt"
