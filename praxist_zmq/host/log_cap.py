"""The cap of an experiment's log: the middle is taken out of a file that goes on growing.

The evaluator writes straight into its log, so nothing may block it, move the file or cut its end. A
hole is punched instead: the blocks go back to the disk, the size and every offset stay, and the
evaluator notices nothing. Head and tail are kept. Where a file system cannot do that, nothing is
done.
Sources: fallocate(2) FALLOC_FL_PUNCH_HOLE, stat(2) st_blocks.
"""

from __future__ import annotations

import errno
import os

KEEP_SIZE, PUNCH_HOLE = 0x01, 0x02
BLOCK = 512
ALIGN = 1 << 16
MARK = b"\n[praxist-zmq: the log was over its cap; the middle of it was taken out here]\n"
_UNABLE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def take_middle_out(fd: int, cap_bytes: int) -> int:
    """If a file takes more than `cap_bytes` of the disk, keep a quarter of that at its head and a
    quarter at its tail. How many bytes came back. `fd` is open for writing and does not append.

    Raises OSError, but not where the file system cannot punch holes.
    """
    before = os.fstat(fd)
    if before.st_blocks * BLOCK <= cap_bytes:
        return 0
    head = max(ALIGN, cap_bytes // 4 // ALIGN * ALIGN)
    end = (before.st_size - cap_bytes // 4) // ALIGN * ALIGN
    if end <= head:
        return 0
    try:
        _punch(fd, head, end - head)
    except OSError as error:
        if error.errno in _UNABLE:
            return 0
        raise
    os.pwrite(fd, MARK, head)
    return max(0, before.st_blocks - os.fstat(fd).st_blocks) * BLOCK


def _punch(fd: int, offset: int, length: int) -> None:
    import ctypes  # rarely needed, and a megabyte of the launcher's memory

    library = ctypes.CDLL(None, use_errno=True)
    wide = ctypes.c_int64
    mode = KEEP_SIZE | PUNCH_HOLE
    if library.fallocate64(fd, mode, wide(offset), wide(length)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
