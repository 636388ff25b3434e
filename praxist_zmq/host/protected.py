"""The protected-process manifests of a run: written, read, judged, taken away.

One file a process under `<run>/protected_pids/`, also for those that the scheduler's launcher
writes (`host.attempt_files`). It never signals, and never believes a number that it did not
verify: boot id, pid namespace, pid and start ticks must all match. What lies there may be
anybody's: links are not followed, FIFOs not waited for, sizes bounded, fields checked.
Source: openat(2), rename(2), flock(2). Standard library only: `launch` must start fast.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from ..errors import PraxistError
from .clock import SystemClock, pause_ms
from .liveness import NamedProcess, boot_id, own_namespace
from .paths import RunPaths
from .proc_stat import ProcStat, has_live_task, read_stat

FOLDER = "protected_pids"
FORMAT_VERSION = "1.0"
MANIFEST_BYTES_MAX = 8192
MANIFESTS_MAX = 20_000
PID_MAX = 4_194_304
"""The kernel's highest limit (proc(5), pid_max)."""
LOCK = ".lock"
LOCK_WAIT_MS = 10_000
LOCK_LOOK_MS = 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HASH = re.compile(r"[0-9a-f]{64}")
_CLOCK = SystemClock()

State = Literal["live", "draining", "doubtful", "stale"]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One protected process.

    `pgid` is its process group. `launcher` is the process that started it and waits for its
    whole group. `attempt` is set in those of a scheduler. `command_hash` is sha256 over the
    words of the command; the words themselves are not kept, as they may hold a secret.
    """

    process: NamedProcess
    pgid: int
    peer: str | None = None
    tag: str | None = None
    attempt: str | None = None
    command_hash: str | None = None
    eta_seconds: float | None = None
    started_at: str | None = None
    launcher: NamedProcess | None = None

    @property
    def name(self) -> str:
        """The file's name: the same process has the same one."""
        return f"pid-{self.process.pid}-{self.process.start_ticks}.json"

    def body(self) -> dict[str, object]:
        """The file's content; the first keys are those of a scheduler's manifests."""
        return {
            "format_version": FORMAT_VERSION,
            "attempt": self.attempt,
            "pid": self.process.pid,
            "pgid": self.pgid,
            "start_ticks": self.process.start_ticks,
            "boot_id": self.process.boot_id,
            "pid_namespace": self.process.pid_namespace,
            "peer": self.peer,
            "tag": self.tag,
            "command_hash": self.command_hash,
            "eta_seconds": self.eta_seconds,
            "started_at": self.started_at,
            "launcher": None if self.launcher is None else asdict(self.launcher),
        }


@dataclass(frozen=True, slots=True)
class Protected:
    """A manifest as found, and what became of its process.

    `live`: exactly that process is there. `draining`: it is gone, its launcher is there and waits
    for the rest of its group. `stale`: nothing of it is left. `doubtful`: neither is proved.
    """

    file: str
    manifest: Manifest
    state: State

    @property
    def counts(self) -> bool:
        """Whether it is proved to go on."""
        return self.state in ("live", "draining")


@dataclass(frozen=True, slots=True)
class Found:
    """What lies in the folder: manifests, and files that are none, with the reason."""

    entries: tuple[Protected, ...]
    unreadable: tuple[tuple[str, str], ...]


def named(pid: int) -> NamedProcess | None:
    """The identity of a process of our own namespace that runs; None when none does."""
    found = read_stat(pid)
    if found is None or not _runs(found):
        return None
    return NamedProcess(boot_id(), own_namespace(), pid, found.start_ticks)


def group_and_user(process: NamedProcess) -> tuple[int, int] | None:
    """The process group and the user of exactly that process; None when it is gone."""
    try:
        user = os.stat(f"/proc/{process.pid}").st_uid
    except FileNotFoundError:
        return None
    found = read_stat(process.pid)
    if found is None or found.start_ticks != process.start_ticks:
        return None
    return found.group, user


def group_members(group: int) -> list[ProcStat]:
    """The processes of a group that run. Reads all of /proc: not for the steady state."""
    return [found for found in _processes() if found.group == group and _runs(found)]


def _processes() -> Iterator[ProcStat]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = read_stat(int(name))
            if found is not None:
                yield found


def _runs(found: ProcStat) -> bool:
    return found.state not in ("Z", "X", "x") or has_live_task(found.pid)


def _is_running(process: NamedProcess | None) -> bool:
    """Whether exactly that process, of our boot and namespace, runs."""
    if process is None or (process.boot_id, process.pid_namespace) != (boot_id(), own_namespace()):
        return False
    found = read_stat(process.pid)
    return found is not None and found.start_ticks == process.start_ticks and _runs(found)


def state_of(manifest: Manifest) -> State:
    """What became of the process. `stale` is proved, and so are `live` and `draining`."""
    process = manifest.process
    if process.boot_id != boot_id():
        return "stale"
    if process.pid_namespace != own_namespace():
        return "doubtful"
    if _is_running(process):
        return "live"
    if _is_running(manifest.launcher):
        return "draining"
    holder = read_stat(process.pid)
    if manifest.pgid == process.pid and holder is not None:
        # As long as a member of its group lives the kernel does not give the number away: a
        # stranger that has it proves that none is left.
        if holder.start_ticks != process.start_ticks:
            return "stale"
    elif manifest.pgid != process.pid:
        return "stale"  # it joined another's group, which says nothing about it
    return "doubtful" if group_members(manifest.pgid) else "stale"


class ProtectedFolder:
    """The manifests of one run."""

    def __init__(self, run: RunPaths) -> None:
        self._run = run
        self.path = run.protected_pids

    def _open(self, *, create: bool = False) -> int:
        """The folder. Raises FileNotFoundError, `unsafe_path` or `path_unusable`."""
        try:
            at = os.open(self._run.run_dir, _DIRECTORY)
        except OSError as error:
            raise PraxistError("path_unusable", f"{self._run.run_dir}: {error.strerror}") from None
        try:
            if create:
                with contextlib.suppress(FileExistsError):  # the open tells what it is
                    os.mkdir(FOLDER, 0o755, dir_fd=at)
            return os.open(FOLDER, _DIRECTORY, dir_fd=at)
        except FileNotFoundError:
            raise
        except NotADirectoryError:  # also a link, with O_DIRECTORY
            raise PraxistError("unsafe_path", f"{self.path} is not a directory") from None
        except OSError as error:
            raise PraxistError("path_unusable", f"{self.path}: {error.strerror}") from None
        finally:
            os.close(at)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock, so that counting and writing are one step.

        Raises `busy` when somebody else keeps it, `unsafe_path`, `path_unusable`.
        """
        at = self._open(create=True)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            lock = os.open(LOCK, flags, 0o644, dir_fd=at)
        except OSError as error:
            raise PraxistError("path_unusable", f"{self.path}/{LOCK}: {error.strerror}") from None
        finally:
            os.close(at)
        try:
            self._take(lock)
            yield
        finally:
            # By name, not only by closing: a child that is just being started has it too.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def _take(self, lock: int) -> None:
        until = _CLOCK.mono_ms() + LOCK_WAIT_MS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if _CLOCK.mono_ms() >= until:
                    raise PraxistError("busy", f"{self.path}/{LOCK} is held by another") from None
            pause_ms(LOCK_LOOK_MS)

    def read(self) -> Found:
        """All of it. Raises `unsafe_path`, `path_unusable`, `too_large`."""
        try:
            at = self._open()
        except FileNotFoundError:
            return Found((), ())
        try:
            names = sorted(n for n in os.listdir(at) if n.endswith(".json") and n[0] != ".")
            if len(names) > MANIFESTS_MAX:
                raise PraxistError("too_large", f"{self.path} has {len(names)} manifests")
            owners = {0, os.geteuid(), os.fstat(at).st_uid}
            entries: list[Protected] = []
            unreadable: list[tuple[str, str]] = []
            for name in names:
                try:
                    manifest = _parsed(_content(at, name, owners))
                except FileNotFoundError:
                    continue  # taken away since the listing
                except (OSError, ValueError, RecursionError, PraxistError) as error:
                    unreadable.append((name, _reason(error)))
                    continue
                entries.append(Protected(name, manifest, state_of(manifest)))
            return Found(tuple(entries), tuple(unreadable))
        finally:
            os.close(at)

    def write(self, manifest: Manifest) -> None:
        """Put it there whole. Raises `unsafe_path`, `path_unusable`, `no_space`."""
        at = self._open(create=True)
        new = f".new-{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new, dir_fd=at)  # of a process that had our number and died here
            with open(os.open(new, flags, 0o644, dir_fd=at), "wb") as file:
                file.write(json.dumps(manifest.body()).encode())
            os.rename(new, manifest.name, src_dir_fd=at, dst_dir_fd=at)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(new, dir_fd=at)
            raise PraxistError(
                "path_unusable", f"{self.path}/{manifest.name}: {error.strerror}"
            ) from None
        finally:
            os.close(at)

    def remove(self, name: str) -> bool:
        """Take one away. False when it is not there. Raises `path_unusable`."""
        try:
            at = self._open()
        except FileNotFoundError:
            return False
        try:
            os.unlink(name, dir_fd=at)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise PraxistError("path_unusable", f"{self.path}/{name}: {error.strerror}") from None
        finally:
            os.close(at)
        return True


def _content(at: int, name: str, owners: set[int]) -> object:
    fd = os.open(name, _READ, dir_fd=at)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("is not a regular file")
        if found.st_uid not in owners:
            raise ValueError(f"belongs to user {found.st_uid}")
        raw = os.read(fd, MANIFEST_BYTES_MAX + 1)
    finally:
        os.close(fd)
    if len(raw) > MANIFEST_BYTES_MAX:
        raise ValueError(f"is over {MANIFEST_BYTES_MAX} bytes")
    return json.loads(raw)


def _reason(error: Exception) -> str:
    if isinstance(error, PraxistError):
        return error.detail
    if isinstance(error, OSError):
        return error.strerror or "cannot be read"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
        return "is not JSON"
    return str(error)


def _parsed(value: object) -> Manifest:
    """Raises ValueError or PraxistError when it is no manifest."""
    if not isinstance(value, dict):
        raise ValueError("is no object")
    process = NamedProcess.of(value)
    group = value.get("pgid")
    launcher = value.get("launcher")
    starter = None if launcher is None else NamedProcess.of(launcher)
    numbers = [group, process.pid, *([starter.pid] if starter is not None else [])]
    if not all(type(number) is int and 1 < number <= PID_MAX for number in numbers):
        raise ValueError("names no process or no process group")
    assert isinstance(group, int)
    eta = value.get("eta_seconds")
    if eta is not None and (isinstance(eta, bool) or not isinstance(eta, int | float)):
        raise ValueError("eta_seconds must be a number")
    command_hash = _text(value, "command_hash", 64)
    if command_hash is not None and _HASH.fullmatch(command_hash) is None:
        raise ValueError("command_hash must be 64 hex digits")
    return Manifest(
        process=process,
        pgid=group,
        peer=_text(value, "peer", 128),
        tag=_text(value, "tag", 512),
        attempt=_text(value, "attempt", 64),
        command_hash=command_hash,
        eta_seconds=eta,
        started_at=_text(value, "started_at", 64),
        launcher=starter,
    )


def _text(value: dict[str, object], key: str, limit: int) -> str | None:
    found = value.get(key)
    if found is not None and (not isinstance(found, str) or len(found) > limit):
        raise ValueError(f"{key} must be a text of at most {limit} characters")
    return found
