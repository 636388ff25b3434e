"""The directories that hold sockets, private or shared on purpose: checked, not assumed.

Decides whether a directory is safe to bind in, and whether a socket belongs to who it should.
Never repairs what it did not make. Walks from the root with descriptors (O_NOFOLLOW), so that
nothing can be swapped between the check and the use; they are O_PATH, because a directory that
may be passed need not be readable. Sources: path_resolution(7), openat(2).
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from ..errors import PraxistError
from .paths import RunPaths

_LINKS_MAX = 40
_OPEN = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _unsafe(path: str, what: str) -> PraxistError:
    return PraxistError("unsafe_path", f"{path} {what}")


def ensure_private(path: str | os.PathLike[str]) -> Path:
    """Make `path` (and missing parents) with mode 0700, then prove it private. Returns it.

    Private: a real directory, ours, nothing for group and others; every parent owned by us or
    root and writable by nobody else, unless sticky. Raises `unsafe_path` naming the part that is
    not, `path_unusable` when it cannot be made.
    """
    full = os.path.abspath(os.fspath(path))
    try:
        descriptor = _walk(full)
    except OSError as error:
        raise PraxistError("path_unusable", f"{full}: {error.strerror}") from None
    try:
        _check_private(full, os.fstat(descriptor))
    finally:
        os.close(descriptor)
    return Path(full)


@dataclass(frozen=True, slots=True)
class ScopeDirectory:
    """A host scope's directory, as it was found safe to use."""

    owner: int
    """The user whose registry serves it."""
    shared: bool
    """Whether other users are let in."""

    @property
    def ours(self) -> bool:
        """Whether we are the one who may serve it."""
        return self.owner == os.geteuid()


def ensure_scope(path: str | os.PathLike[str]) -> ScopeDirectory:
    """Find, or make private, the directory of a host scope, and prove it safe.

    Private: as `ensure_private` wants it. Shared on purpose: 0711, 0755, 0710 or 0750, so that its
    group or everybody may pass and only its owner may write, sticky or not; for whoever may write
    there could put a socket in the registry's place. It belongs to us, to root, or to another user
    in a parent where not everybody could have made it. Raises as `ensure_private` does.
    """
    full = os.path.abspath(os.fspath(path))
    try:
        descriptor = _walk(full)
        try:
            found, parent = os.fstat(descriptor), os.stat("..", dir_fd=descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise PraxistError("path_unusable", f"{full}: {error.strerror}") from None
    mode = stat.S_IMODE(found.st_mode)
    if not mode & 0o077:
        _check_private(full, found)
        return ScopeDirectory(found.st_uid, shared=False)
    if mode & 0o022 or not mode & 0o011 or mode & 0o700 != 0o700:
        raise _unsafe(
            full,
            f"has mode {mode:04o}; it must be 0700 (`chmod 700 {full}`), or 0711, 0755, 0710 or "
            "0750 to be shared with other users",
        )
    if found.st_uid not in (0, os.geteuid()) and parent.st_mode & stat.S_IWOTH:
        raise _unsafe(full, f"belongs to user {found.st_uid}, and anybody could have made it")
    return ScopeDirectory(found.st_uid, shared=True)


def _walk(full: str) -> int:
    """An open descriptor of `full`, every parent checked, missing parts made."""
    here = os.open("/", _OPEN)
    walked, links = "/", 0
    parts = [part for part in full.split("/") if part][::-1]
    try:
        while parts:
            parent = os.fstat(here)
            _check_parent(walked, parent)
            name = parts.pop()
            target = _link_target(walked, parent, name, here, is_last=not parts)
            if target is not None:
                links += 1
                if links > _LINKS_MAX:
                    raise _unsafe(full, "goes through too many symbolic links")
                parts.extend([part for part in target.split("/") if part not in ("", ".")][::-1])
                if target.startswith("/"):
                    here, walked = _replace(here, os.open("/", _OPEN)), "/"
                continue
            here = _replace(here, _step(here, name, os.path.join(walked, name)))
            walked = os.path.join(walked, name)
    except BaseException:
        os.close(here)
        raise
    return here


def _replace(old: int, new: int) -> int:
    os.close(old)
    return new


def _step(here: int, name: str, shown: str) -> int:
    try:
        return os.open(name, _OPEN, dir_fd=here)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        raise _unsafe(shown, "is not a directory") from None
    with contextlib.suppress(FileExistsError):  # whoever made it meanwhile: the check decides
        os.mkdir(name, 0o700, dir_fd=here)
    try:
        return os.open(name, _OPEN, dir_fd=here)
    except NotADirectoryError:
        raise _unsafe(shown, "is not a directory") from None


def _link_target(
    walked: str, parent: os.stat_result, name: str, here: int, *, is_last: bool
) -> str | None:
    """Where a link that may be followed leads; None when `name` is no link."""
    try:
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(found.st_mode):
        return None
    shown = os.path.join(walked, name)
    if is_last or parent.st_mode & 0o022 or found.st_uid not in (0, os.geteuid()):
        raise _unsafe(shown, "is a symbolic link")
    return os.readlink(name, dir_fd=here)


def _check_parent(path: str, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise _unsafe(path, f"belongs to user {found.st_uid}, who could replace what is in it")
    if not found.st_mode & stat.S_ISVTX:
        _check_writers(path, found, " and not sticky")


def _check_alone(path: str, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise _unsafe(path, f"belongs to user {found.st_uid}")
    _check_writers(path, found, "")


def _check_writers(path: str, found: os.stat_result, more: str) -> None:
    if found.st_mode & stat.S_IWOTH:
        raise _unsafe(path, f"is writable by everybody{more}")
    if found.st_mode & stat.S_IWGRP and found.st_gid not in (0, os.getegid()):
        raise _unsafe(path, f"is writable by group {found.st_gid}{more}")


def why_not_ours(run: RunPaths) -> str | None:
    """In words, why what lies in a run's directory may be a stranger's; None when it cannot be.

    For a run that nobody named. Its directory, the scheduler's in it and the endpoint file, where
    there is one, are ours or root's and nobody else may write there, sticky or not: in a sticky
    directory anybody may make a folder. Of the directories above it a sticky one will do, because
    nobody else can put away there what is ours.
    """
    paths = [run.run_dir, run.scheduler, *([run.endpoint] if os.path.lexists(run.endpoint) else [])]
    try:
        for folder in reversed(run.run_dir.parents):
            _check_parent(str(folder), os.lstat(folder))
        for path in paths:
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                return f"{path} is a symbolic link"
            _check_alone(str(path), found)
    except PraxistError as error:
        return error.detail
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def _check_private(path: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise _unsafe(path, f"belongs to user {found.st_uid}")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise _unsafe(path, f"has mode {mode:04o}; it must be 0700 (`chmod 700 {path}`)")


def check_socket_owner(path: str | os.PathLike[str], uid: int) -> None:
    """Prove that a socket belongs to `uid`, so that nobody else answers in its place.

    Raises FileNotFoundError when there is nothing, `unsafe_path` when it is no socket (links are
    not followed) or somebody else's.
    """
    shown = os.fspath(path)
    try:
        found = os.lstat(shown)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise PraxistError("path_unusable", f"{shown}: {error.strerror}") from None
    if not stat.S_ISSOCK(found.st_mode):
        raise _unsafe(shown, "is not a socket")
    if found.st_uid != uid:
        raise _unsafe(shown, f"belongs to user {found.st_uid}, not to user {uid} who runs this")
