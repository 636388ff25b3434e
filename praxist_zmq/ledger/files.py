"""Opens and replaces files so that a hostile or half-written one does no harm.

Every path is opened without following links and without blocking, and is used only when it turns
out to be a regular file of ours; so a FIFO, a device or a link planted in its place is refused and
never hangs us. Replacement is by a fresh temporary file and a rename, because a reader, or a
restart after a power cut, must see the old content or the new, never a part.
Never follows a link in the last part of a path; never deletes what it did not make.

Sources: open(2), rename(2), fsync(2).
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import PraxistError

_TEMPORARY = re.compile(r"^\.(.+)\.[0-9a-f]{16}\.tmp$")
_NOT_A_FILE = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV, errno.ENOTDIR})


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into PraxistError `no_space` or `path_unusable`."""
    try:
        yield
    except OSError as error:
        code = "no_space" if error.errno in NO_SPACE else "path_unusable"
        raise PraxistError(code, f"{path}: {reason(error)}") from error


def reason(error: OSError) -> str:
    """Why there is no room, or what else failed: a limit on a file's size is no full disk."""
    if error.errno == errno.EFBIG:
        return f"{error.strerror}: the limit on the size of a file (ulimit -f), not a full disk"
    return str(error.strerror)


NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors that say: the bytes don't fit now, and nothing else is wrong."""


def open_regular(path: Path, flags: int, mode: int = 0o600) -> int:
    """A descriptor of the regular file `path` that we own.

    Raises FileNotFoundError and FileExistsError as open(2) does, PraxistError `unsafe_path` for
    anything that is not a regular file of ours, `path_unusable` for other failures.
    `O_TRUNC` is not allowed: it would act before the check.
    """
    if flags & os.O_TRUNC:
        raise PraxistError("internal", "open_regular does not take O_TRUNC")
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            raise PraxistError("unsafe_path", f"{path} is not a regular file") from error
        code = "no_space" if error.errno in NO_SPACE else "path_unusable"
        raise PraxistError(code, f"{path}: {reason(error)}") from error
    unsafe = _unsafe(os.fstat(descriptor))
    if unsafe:
        os.close(descriptor)
        raise PraxistError("unsafe_path", f"{path} {unsafe}")
    return descriptor


def _unsafe(status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not to user {os.geteuid()}"
    return None


def own_directory(directory: Path) -> None:
    """Make `directory` (mode 0700, durable) unless it is there; refuse links and strangers'.

    Raises PraxistError `unsafe_path`, `path_unusable` or `no_space`.
    """
    with usable(directory):
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            status = directory.lstat()
        else:
            fsync_directory(directory.parent)
            return
    if not stat.S_ISDIR(status.st_mode):
        raise PraxistError("unsafe_path", f"{directory} is not a directory")
    if status.st_uid != os.geteuid():
        raise PraxistError("unsafe_path", f"{directory} belongs to user {status.st_uid}")


def fsync_directory(directory: Path) -> None:
    """Make the names in `directory` durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte of `data`, whatever the kernel takes at a time. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_all_at(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """Write every byte of `data` from `offset` on. Raises OSError; a part may be there then."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


def create_temporary(path: Path, mode: int = 0o600) -> tuple[int, Path]:
    """A new file next to `path` under a name nobody can foresee: (descriptor, its path)."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = open_regular(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
    os.fchmod(descriptor, mode)
    return descriptor, temporary


def write_atomically(path: Path, data: bytes, mode: int = 0o600, durable: bool = True) -> None:
    """Give `path` the content `data` in one step.

    `durable=False` is for derived views that are rebuilt anyway: no sync. Raises PraxistError
    `unsafe_path` when something other than a regular file stands at `path`, else `no_space` or
    `path_unusable`; the old content is then still there.
    """
    refuse_irregular(path)
    with usable(path):
        descriptor, temporary = create_temporary(path, mode)
        try:
            try:
                write_all(descriptor, data)
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            fsync_directory(path.parent)


def refuse_irregular(path: Path) -> None:
    """Raise PraxistError `unsafe_path` when `path` exists and is not a regular file."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise PraxistError("unsafe_path", f"{path} is not a regular file")


def remove_temporaries(directory: Path, name_pattern: re.Pattern[str]) -> None:
    """Delete what killed writers of files named like `name_pattern` left in `directory`.

    Only for the one writer of those names.
    """
    for entry in os.scandir(directory):
        match = _TEMPORARY.match(entry.name)
        if match and name_pattern.match(match[1]) and entry.is_file(follow_symlinks=False):
            os.unlink(entry.path)


def remove_leftovers(*paths: Path) -> None:
    """Delete what killed writers of exactly these files left beside them.

    Only for the one writer of them. Raises PraxistError `path_unusable`.
    """
    for directory in {path.parent for path in paths}:
        names = [re.escape(path.name) for path in paths if path.parent == directory]
        with usable(directory):
            remove_temporaries(directory, re.compile(f"(?:{'|'.join(names)})$"))


def read_limited(path: Path, limit: int) -> bytes:
    """The content of `path`. Raises PraxistError `too_large` beyond `limit` bytes.

    Also FileNotFoundError, and PraxistError `unsafe_path` or `path_unusable`.
    """
    descriptor = open_regular(path, os.O_RDONLY)
    with usable(path), os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise PraxistError("too_large", f"{path} has more than {limit} bytes")
    return data


def free_name(path: Path) -> Path:
    """The first name `path.broken-N` that is not taken."""
    number = 1
    while os.path.lexists(path.with_name(f"{path.name}.broken-{number}")):
        number += 1
    return path.with_name(f"{path.name}.broken-{number}")


def copy_aside(path: Path) -> Path:
    """A durable copy of `path` under a free name beside it. Raises OSError."""
    aside = free_name(path)
    source = open_regular(path, os.O_RDONLY)
    target = open_regular(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(source, "rb") as reading, os.fdopen(target, "wb") as writing:
            shutil.copyfileobj(reading, writing, 1 << 20)
            writing.flush()
            os.fsync(writing.fileno())
        fsync_directory(path.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    return aside


def copy_start(path: Path, target: int, size: int) -> None:
    """Append the first `size` bytes of `path` to the descriptor `target`. Raises OSError."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as reading:
        remaining = size
        while remaining and (piece := reading.read(min(remaining, 1 << 20))):
            write_all(target, piece)
            remaining -= len(piece)
