"""Limits of our own processes. Source: setrlimit(2), prlimit(2).

Never lowers a limit of an experiment: only a process that starts no experiment may call
`cap_memory` and `forbid_core`.
"""

from __future__ import annotations

import resource


def raise_open_files() -> int:
    """Raise the soft limit on open descriptors to the hard one. Returns what holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def open_files() -> int:
    """The soft limit on open descriptors."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def limit_open_files(pid: int, soft: int) -> None:
    """Set the soft limit on open descriptors of another process of ours. Raises OSError."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def forbid_core() -> None:
    """Let this process leave no core dump, which would hold what is in its memory.

    One byte rather than none: a limit of 0 binds only where a dump is written to a file, and the
    kernel gives none to a program either at 1. Source: core(5), fs/coredump.c.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    allowed = 1 if hard == resource.RLIM_INFINITY else min(1, hard)
    resource.setrlimit(resource.RLIMIT_CORE, (allowed, hard))


def cap_memory(limit_bytes: int) -> None:
    """Let this process have so much private memory and no more; over it, allocation fails.

    Data rather than address space is limited: threads reserve address space that they never use.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
