"""Makes the scheduler's directories in a run, and refuses what is not safe to use.

Each level is opened by a descriptor of the one above and without following links, so that nothing
can be put in between. Never changes anything that somebody else owns.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from ..errors import PraxistError
from ..host.paths import RunPaths

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def prepare(run: RunPaths) -> None:
    """Make the run directory and everything in it that the scheduler writes to.

    Raises `unsafe_path` for a link, another file or a stranger's directory in the way, and
    `path_unusable` (naming the path) for anything the kernel refuses.
    """
    try:
        str(run.run_dir).encode("utf-8")
    except UnicodeEncodeError:
        raise PraxistError("path_unusable", f"{run.run_dir!r} is not valid UTF-8") from None
    _refuse_file(run.run_dir)
    try:
        run.run_dir.mkdir(parents=True, exist_ok=True)
        top = os.open(run.run_dir, _OPEN_DIRECTORY)
    except OSError as error:
        raise PraxistError("path_unusable", f"{run.run_dir}: {error.strerror}") from error
    try:
        for directory in (run.scheduler, run.service_logs, run.attempts):
            _make(top, run.run_dir, directory, private=True)
        for directory in (run.experiment_logs.parent, run.protected_pids):
            _make(top, run.run_dir, directory, private=False)
        _make(top, run.run_dir, run.experiment_logs, private=True)
        _check_writable(top, run)
    finally:
        os.close(top)


def missing(run: RunPaths) -> list[Path]:
    """Which of the directories that `prepare` makes are not there yet, the deepest first."""
    logs = run.experiment_logs
    made = (logs, logs.parent, run.protected_pids, run.scheduler, run.run_dir, *run.run_dir.parents)
    return [path for path in made if not os.path.lexists(path)]


def remove_made(run: RunPaths, made: list[Path]) -> None:
    """Take back what a refused start made, by what `missing` said before it: all of the
    scheduler's directory, of the others what is empty. The caller holds the owner lock and has no
    child left. Does nothing where the scheduler's directory was there before."""
    if run.scheduler not in made:
        return
    # In one step: a start beside ours finds all of it or makes its own, never half of ours.
    aside = run.run_dir / f".refused-{os.getpid()}"
    try:
        run.scheduler.rename(aside)
        shutil.rmtree(aside)
    except OSError as error:
        logging.getLogger(__name__).warning("%s stays: %s", error.filename, error.strerror)
        return
    for path in made:
        with suppress(OSError):  # somebody has put something there meanwhile: it stays
            path.rmdir()


def _refuse_file(run_dir: Path) -> None:
    """Say so when the run directory, or what it would be made in, is something else."""
    for path in (run_dir, *run_dir.parents):
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise PraxistError("path_unusable", f"{path}: {error.strerror}") from error
        if stat.S_ISDIR(mode):
            return
        kind = "a file" if stat.S_ISREG(mode) else "no directory"
        raise PraxistError(
            "path_unusable",
            f"{path} is {kind}; a run needs a directory of its own",
            ["name a directory with --run-dir; it is made if it is not there"],
        )


def _make(top: int, run_dir: Path, directory: Path, private: bool) -> None:
    current = os.dup(top)
    path = run_dir
    try:
        for name in directory.relative_to(run_dir).parts:
            path = path / name
            deeper = _step(current, name, path)
            os.close(current)
            current = deeper
        if private:
            _make_private(current, path)
    finally:
        os.close(current)


def _step(parent: int, name: str, path: Path) -> int:
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        pass
    except OSError as error:
        raise PraxistError("path_unusable", f"{path}: {error.strerror}") from error
    try:
        return os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
    except NotADirectoryError:
        kind = "a link" if stat.S_ISLNK(os.lstat(path).st_mode) else "not a directory"
        raise PraxistError("unsafe_path", f"{path} is {kind}") from None
    except OSError as error:
        raise PraxistError("path_unusable", f"{path}: {error.strerror}") from error


def _make_private(descriptor: int, path: Path) -> None:
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        raise PraxistError(
            "unsafe_path", f"{path} belongs to user {status.st_uid}, not to user {os.geteuid()}"
        )
    if status.st_mode & 0o022:
        raise PraxistError(
            "unsafe_path",
            f"{path} can be written by others (mode {stat.S_IMODE(status.st_mode):04o})",
            [f"look at what is in it, then: chmod 700 {path}"],
        )
    if status.st_mode & 0o077:
        try:
            os.fchmod(descriptor, 0o700)
        except OSError as error:
            raise PraxistError("path_unusable", f"{path}: {error.strerror}") from error


def _check_writable(top: int, run: RunPaths) -> None:
    """Find a read-only file system now, not at the first write (access(2) tells EROFS)."""
    for directory in (run.scheduler, run.experiment_logs):
        relative = directory.relative_to(run.run_dir)
        if not os.access(relative, os.W_OK | os.X_OK, dir_fd=top):
            raise PraxistError("path_unusable", f"{directory} cannot be written to")
