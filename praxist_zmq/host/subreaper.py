"""Makes this process a child subreaper: orphans below it become its children.

Standard library only, because the zygote imports it. Source: prctl(2) PR_SET_CHILD_SUBREAPER.
"""

from __future__ import annotations

import ctypes
import os

PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.prctl.restype = ctypes.c_int  # resolved here, once, not in every fork


def become_subreaper() -> None:
    """Orphaned descendants of this process become its children. Raises OSError."""
    if LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")
