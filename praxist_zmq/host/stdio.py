"""Standard streams that may be closed, full or gone, and descriptors that nobody meant to pass.

A service whose terminal or pipe went away goes on: what it says there is lost, nothing else.
"""

from __future__ import annotations

import os
from pathlib import Path


def ensure_open() -> None:
    """Put /dev/null on each closed standard descriptor, so that no file of ours lands on 0-2."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            else:
                os.set_inheritable(descriptor, True)


def keep_from_children() -> None:
    """Mark every other inherited descriptor close-on-exec.

    Otherwise a lock or pipe of whoever started us (`9>lock`) would live on in our children.
    """
    for entry in sorted(Path("/proc/self/fd").iterdir()):
        descriptor = int(entry.name)
        if descriptor <= 2:
            continue
        try:
            os.set_inheritable(descriptor, False)
        except OSError:
            continue  # the descriptor of this very listing is closed by now


def say(line: str, descriptor: int = 1) -> bool:
    """Write one line to a standard descriptor. False when nobody can read it any more.

    A dead pipe is replaced by /dev/null, so that no later write meets it again.
    """
    data = line.encode("utf-8", "backslashreplace") + b"\n"
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, descriptor)
        os.close(null)
        return False
    except OSError:
        return False
    return True
