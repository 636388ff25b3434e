"""What the kernel lets this user have, and how much of it is taken, at the moment something lacks.

For the words of an alarm only: it decides nothing, and what cannot be read is left out.
Sources: statvfs(3), setrlimit(2), proc(5), the kernel's cgroup-v2 page (pids, memory).
"""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

from ..protocol.room import DiskRoom

CGROUPS = Path("/sys/fs/cgroup")
TEXT_BYTES_MAX = 4096


def disk_room(directory: Path | int) -> DiskRoom | None:
    """The room on the disk of a directory for this user; None when it cannot be asked."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    root = os.geteuid() == 0
    return DiskRoom(
        free_bytes=(found.f_bfree if root else found.f_bavail) * found.f_frsize,
        bytes=found.f_blocks * found.f_frsize,
        free_inodes=found.f_ffree if root else found.f_favail,
        inodes=found.f_files,
    )


def limit_words(number: int) -> str:
    """The limit behind an errno as far as it can be read: `60 of 60 processes of its control
    group`. Empty when nothing tells."""
    if number == errno.EAGAIN:
        return "; ".join(filter(None, (_cgroup("pids", "processes"), _processes_of_user())))
    if number in (errno.ENOMEM, errno.ENOBUFS):
        return _cgroup("memory", "bytes of memory")
    if number == errno.EMFILE:
        return f"at most {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} descriptors (ulimit -n)"
    if number == errno.ENFILE:
        used = _text(Path("/proc/sys/fs/file-nr")).split()
        return f"{used[0]} of {used[2]} files open on the host" if len(used) == 3 else ""
    return ""


def _processes_of_user() -> str:
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return "" if soft == resource.RLIM_INFINITY else f"{soft} processes of this user (ulimit -u)"


def _cgroup(controller: str, unit: str) -> str:
    """The tightest bound on the way from our control group to the root."""
    line = next((row for row in _text(Path("/proc/self/cgroup")).splitlines()
                 if row.startswith("0::")), "")  # fmt: skip
    at = CGROUPS / line[3:].lstrip("/")
    while at.is_relative_to(CGROUPS):
        used, most = _text(at / f"{controller}.current"), _text(at / f"{controller}.max")
        if used.isdigit() and most.isdigit() and int(used) * 10 >= int(most) * 9:
            return f"{used} of {most} {unit} of its control group ({controller}.max)"
        if at == CGROUPS:
            break
        at = at.parent
    return ""


def _text(path: Path) -> str:
    try:
        with path.open("rb") as source:
            return source.read(TEXT_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError:
        return ""
