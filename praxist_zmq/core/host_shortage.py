"""What a host may lack for a moment, by errno: the one table, and what is remembered of a lack.

Processes, memory, descriptors and room on a disk come back. What lacks them before the first
instruction of an experiment says nothing about the experiment, so it costs no retry and fails
nobody, however often. What a program lacks itself (it is not there, is not allowed, is no program)
is not in the table, and neither is EIO: a disk that is broken does not pass.
Sources: design 5; errno(3), fork(2), execve(2), setrlimit(2), statvfs(3).
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import NamedTuple

from ..protocol.room import DiskRoom

MIB = 2**20
FLOOR_BYTES, FLOOR_INODES = 16 * MIB, 64
"""Less than this free, nothing is started: an experiment could not even write its log."""
FLOOR_SHARE = 20
"""On a small disk the floor is this part of it instead."""


class Lack(NamedTuple):
    """One thing that a host can lack."""

    what: str
    mend: str
    of_one_job: bool = False
    """Whether it says nothing about other jobs."""


_PROCESSES = Lack("processes", "raise the limit, or end what forks")
_MEMORY = Lack("memory", "free some memory, or raise the control group's limit")
_DESCRIPTORS = Lack("descriptors", "raise `ulimit -n` or fs.file-max, or end what holds files open")
_ZYGOTE = Lack("the process that forks", "nothing: it is replaced by itself")

LACKS: dict[int, Lack] = {
    errno.EAGAIN: _PROCESSES,
    errno.ENOMEM: _MEMORY,
    errno.ENOBUFS: _MEMORY,
    errno.EMFILE: _DESCRIPTORS,
    errno.ENFILE: _DESCRIPTORS,
    errno.ETOOMANYREFS: _DESCRIPTORS,
    errno.ENOSPC: Lack("room on the disk", "free space or inodes under the run's directory"),
    errno.EDQUOT: Lack("disk quota", "free some space, or have the quota raised"),
    errno.ETXTBSY: Lack("the program, which is being written", "end what writes to it", True),
    errno.EINTR: _ZYGOTE,
    errno.EPIPE: _ZYGOTE,
    errno.ECONNRESET: _ZYGOTE,
    errno.ENOTCONN: _ZYGOTE,
}
_RUN_DIRECTORY = Lack("the run's directory", "put it back in its place, writable by this user")
_OF_THE_RUNS_FILES = frozenset(
    {errno.ENOENT, errno.ESTALE, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO}
)
"""Of what the scheduler itself makes for an attempt: never the fault of the job."""


def lack_of(number: int | None, *, runs_files: bool = False) -> Lack | None:
    """What the host lacked when a call failed so; None when it is no such thing. `runs_files`: the
    call made the attempt's directory or log."""
    if number is None:
        return None
    if runs_files and number in _OF_THE_RUNS_FILES:
        return _RUN_DIRECTORY
    return LACKS.get(number)


def named(number: int) -> str:
    """`EAGAIN`, as the manual pages name it."""
    return errno.errorcode.get(number, f"errno {number}")


@dataclass(slots=True)
class HostShortage:
    """The host lacks something: nothing is started until one attempt shows that it has it again."""

    number: int
    detail: str
    mend: str
    since_ms: int
    """CLOCK_BOOTTIME, as all times here."""
    pause_ms: int
    until_ms: int
    withdrawn: int = 1
    """Attempts that were taken back for it."""
    trial: str | None = None
    """The attempt that tries it."""


class FullDisk(NamedTuple):
    """What a disk has too little of."""

    need: float
    free: float
    unit: str
    words: str


def full_disk(room: DiskRoom | None) -> FullDisk | None:
    """What a disk lacks for a start, with the numbers; None when it is roomy, or is not known."""
    if room is None:
        return None
    floor = min(FLOOR_BYTES, room.bytes // FLOOR_SHARE)
    if room.free_bytes < floor:
        words = f"{_size(room.free_bytes)} of {_size(room.bytes)} are free"
        return FullDisk(round(floor / MIB, 1), round(room.free_bytes / MIB, 1), "MiB", words)
    # A file system that counts no inodes tells none at all.
    floor = min(FLOOR_INODES, room.inodes // FLOOR_SHARE)
    if room.inodes and room.free_inodes < floor:
        words = f"{room.free_inodes} of {room.inodes} inodes are free"
        return FullDisk(floor, room.free_inodes, "inodes", words)
    return None


def disk_full_words(room: DiskRoom | None) -> str | None:
    """The same in words."""
    found = full_disk(room)
    return None if found is None else found.words


def _size(number: int) -> str:
    """`3.1 MiB`, `12 GiB`."""
    if number < 1024 * MIB:
        return f"{number / MIB:.1f} MiB"
    return f"{number / (1024 * MIB):.0f} GiB"
