"""Makes this process a child subreaper: orphans below it become its children.

Standard library only, because the zygote imports it. Source: prctl(2) PR_SET_CHILD_SUBREAPER.
"""

from __future__ import annotations

import ctypes
import os

PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.prctl.restype = ctypes.c_int  # resolved here, once, not in every fork


LIBC.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
LIBC.signal.restype = ctypes.c_void_p
DEFAULT, IGNORE = 0, 1
SIGCHLD = 17


def dispose(number: int, how: int) -> None:
    """DEFAULT or IGNORE a signal. The module `signal` does it through enums, which is dear in a
    fork."""
    LIBC.signal(number, how)


def become_subreaper(on: bool = True) -> None:
    """Orphaned descendants of this process become its children; or not. Raises OSError."""
    if LIBC.prctl(PR_SET_CHILD_SUBREAPER, on, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")
