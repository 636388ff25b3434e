"""Read a small regular file that somebody else may have put there.

Follows no link in the last place, opens no FIFO or device, reads no more than it is told.
Standard library only.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import PraxistError


def open_foreign(path: Path) -> int:
    """A descriptor of the regular file at `path`, whoever owns it: a run may be another user's.

    `ledger.files.open_regular` takes only our own. Raises OSError of the open, and `unsafe_path`
    when it is a link or no regular file.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if path.is_symlink():
            raise PraxistError("unsafe_path", f"{path} is a symbolic link") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PraxistError("unsafe_path", f"{path} is not a regular file")
    return descriptor


def read_small(path: Path, limit: int) -> bytes:
    """All of a file. Raises OSError, `unsafe_path`, or `too_large` over `limit` bytes."""
    descriptor = open_foreign(path)
    with open(descriptor, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise PraxistError("too_large", f"{path} is over {limit} bytes")
    return content
