"""The files of an attempt: its directory, log, evidence and protected-process manifest.

A peer may share our user, so every component of a path below the run is opened without following
links, new things are created exclusively, and what is read back is bounded and validated. It
decides nothing from what it reads. Source: openat(2).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from ..errors import PraxistError
from ..protocol.evidence import (
    AttemptCard,
    EvidenceRecord,
    ExitRecord,
    GoRecord,
    ReadyRecord,
    StartedRecord,
)
from ..protocol.limits import LOG_TAIL_BYTES
from ..protocol.process import ProcessIdentity
from .log_cap import take_middle_out
from .paths import RunPaths
from .shim import EVIDENCE

CARD = "attempt.json"
EVIDENCE_BYTES_MAX = 65_536
MANIFEST_BYTES = 512
"""Of every manifest, filled up with blanks: so one can be written over another."""
SPARES_MAX = 256
NEW_MANIFEST = ".new"
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Evidence:
    """What lies in an attempt's directory and says that it is about this attempt and shim."""

    ready: bool
    went: bool
    started: StartedRecord | None
    ended: ExitRecord | None


NO_EVIDENCE = Evidence(False, False, None, None)
RECORD: TypeAdapter[ReadyRecord | GoRecord | StartedRecord | ExitRecord] = TypeAdapter(
    EvidenceRecord
)


class AttemptFiles:
    """The files of all attempts of one run."""

    def __init__(self, run: RunPaths) -> None:
        self.run = run
        self._spares: list[str] = []

    def _descend(self, *components: str, create: bool = False) -> int:
        """A descriptor of a directory below the run. Raises OSError; ELOOP/ENOTDIR on a link."""
        at = os.open(self.run.run_dir, DIRECTORY)
        for component in components:
            try:
                try:
                    below = os.open(component, DIRECTORY, dir_fd=at)
                except FileNotFoundError:
                    if not create:
                        raise
                    # Two at once may make it; the open says whether it is a real directory.
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(component, 0o755, dir_fd=at)
                    below = os.open(component, DIRECTORY, dir_fd=at)
            finally:
                os.close(at)
            at = below
        return at

    def create(self, attempt: str, card: AttemptCard | None = None) -> int:
        """Make the attempt's directory, which must not exist, with its card; its descriptor.

        Raises OSError.
        """
        parent = self._descend("resource_scheduler", "attempts", create=True)
        try:
            os.mkdir(attempt, 0o700, dir_fd=parent)
            at = os.open(attempt, DIRECTORY, dir_fd=parent)
        finally:
            os.close(parent)
        try:
            if card is not None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with open(os.open(CARD, flags, 0o600, dir_fd=at), "wb") as file:
                    file.write(card.model_dump_json().encode())
        except OSError:
            os.close(at)
            self.discard(attempt)
            raise
        return at

    def card(self, attempt: str) -> AttemptCard | None:
        """What the attempt's directory says of it; None when it says nothing that can be used."""
        try:
            at = self._descend("resource_scheduler", "attempts", attempt)
        except OSError:
            return None
        try:
            lines = _read_lines(at, CARD)
        finally:
            os.close(at)
        try:
            card = AttemptCard.model_validate_json(b"".join(lines))
        except ValidationError:
            return None
        return card if card.attempt == attempt else None

    def discard(self, attempt: str) -> None:
        """Remove what was made for an attempt of which nothing ran, as far as it is empty: on a
        disk without inodes each one counts."""
        with contextlib.suppress(OSError):  # what stays is in nobody's way
            parent = self._descend("resource_scheduler", "attempts")
            try:
                with contextlib.suppress(OSError):
                    os.unlink(f"{attempt}/{CARD}", dir_fd=parent)
                os.rmdir(attempt, dir_fd=parent)
            finally:
                os.close(parent)
            parent = self._descend("logs", "experiments")
            try:
                found = os.stat(f"{attempt}.log", dir_fd=parent, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and not found.st_size:
                    os.unlink(f"{attempt}.log", dir_fd=parent)
            finally:
                os.close(parent)

    def create_log(self, attempt: str) -> int:
        """Open the attempt's log for appending (and for its tail), and lock it. Raises OSError.

        The lock lies on the open file, which shim, evaluator and all that keep its output share:
        the kernel frees it with the last of them, and any namespace can see whether it is held.
        """
        parent = self._descend("logs", "experiments", create=True)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
            fd = os.open(f"{attempt}.log", flags | os.O_CLOEXEC, 0o600, dir_fd=parent)
        finally:
            os.close(parent)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            os.close(fd)
            raise FileExistsError(f"{attempt}.log is not a plain file of its own")
        os.set_blocking(fd, True)
        with contextlib.suppress(OSError):  # a file system without locks: then none tells anything
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd

    def cap_log(self, attempt: str, cap_bytes: int) -> int:
        """Take the middle out of a log that is over its cap; the bytes that came back.

        Raises OSError.
        """
        parent = self._descend("logs", "experiments")
        try:
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(f"{attempt}.log", flags, dir_fd=parent)
        finally:
            os.close(parent)
        try:
            found = os.fstat(fd)
            plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
            return take_middle_out(fd, cap_bytes) if plain else 0
        finally:
            os.close(fd)

    def evidence(self, attempt: str, shim: ProcessIdentity) -> Evidence:
        """What the shim left; lines of another attempt, shim or shape are not there."""
        try:
            at = self._descend("resource_scheduler", "attempts", attempt)
        except OSError:
            return NO_EVIDENCE
        try:
            lines = _read_lines(at)
        finally:
            os.close(at)
        found: dict[str, ReadyRecord | GoRecord | StartedRecord | ExitRecord] = {}
        for line in lines:
            try:
                record = RECORD.validate_json(line)
            except ValidationError:
                continue  # forged, or half written: as good as absent
            if record.attempt == attempt and record.shim == shim:
                found[record.kind] = record
        ready, started, ended = found.get("ready"), found.get("started"), found.get("ended")
        return Evidence(
            ready=ready is not None,
            went="go" in found,
            started=started if isinstance(started, StartedRecord) else None,
            ended=ended if isinstance(ended, ExitRecord) else None,
        )

    def claimed_shim(self, attempt: str) -> ProcessIdentity | None:
        """The shim that the evidence names as its writer. Its word only."""
        try:
            at = self._descend("resource_scheduler", "attempts", attempt)
        except OSError:
            return None
        try:
            lines = _read_lines(at)
        finally:
            os.close(at)
        for line in lines:
            try:
                record = RECORD.validate_json(line)
            except ValidationError:
                continue
            if record.kind == "ready" and record.attempt == attempt:
                return record.shim
        return None

    def log_tail(self, attempt: str, log: int | None) -> str:
        """The end of the attempt's log; empty when there is none to read."""
        if log is not None:
            return _tail(log)
        try:
            parent = self._descend("logs", "experiments")
        except OSError:
            return ""
        try:
            fd = os.open(f"{attempt}.log", READ, dir_fd=parent)
        except OSError:
            return ""
        finally:
            os.close(parent)
        try:
            return _tail(fd) if stat.S_ISREG(os.fstat(fd).st_mode) else ""
        finally:
            os.close(fd)

    def protect(self, attempt: str, leader: ProcessIdentity) -> None:
        """Write the manifest that tells clean-up tools of others whose process this is.

        Raises PraxistError `path_unusable`.
        """
        body = json.dumps(
            {
                "format_version": "1.0",
                "attempt": attempt,
                "pid": leader.pid,
                "pgid": leader.pid,
                "start_ticks": leader.start_ticks,
                "boot_id": leader.boot_id,
                "pid_namespace": leader.pid_namespace,
            }
        ).encode()
        name = f"{attempt}.json"
        try:
            at = self._descend("protected_pids", create=True)
            try:
                written = self._write_spare(at, body.ljust(MANIFEST_BYTES))
                os.rename(written, name, src_dir_fd=at, dst_dir_fd=at)
            finally:
                os.close(at)
        except OSError as error:
            raise PraxistError("path_unusable", f"protected_pids/{name}: {error}") from error

    def _write_spare(self, at: int, body: bytes) -> str:
        """The name of a file with this content, under which nobody looks for a manifest.

        A spare one is written anew if it is still a plain file of its own.
        """
        while self._spares:
            spare = self._spares.pop()
            try:
                fd = os.open(spare, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                             dir_fd=at)  # fmt: skip
            except OSError:
                continue  # somebody took it, or put something else there: make another
            try:
                found = os.fstat(fd)
                if stat.S_ISREG(found.st_mode) and (found.st_nlink, found.st_size) == (
                    1,
                    len(body),
                ):
                    os.write(fd, body)
                    return spare
            finally:
                os.close(fd)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(NEW_MANIFEST, flags, 0o644, dir_fd=at)
        except FileExistsError:
            os.unlink(NEW_MANIFEST, dir_fd=at)
            fd = os.open(NEW_MANIFEST, flags, 0o644, dir_fd=at)
        try:
            os.write(fd, body)
        finally:
            os.close(fd)
        return NEW_MANIFEST

    def unprotect(self, attempt: str) -> None:
        """Take the manifest away, if it is there. Raises PraxistError `path_unusable`.

        Its file is kept as a spare one. A file that is made and removed for every attempt is dear
        beyond itself: ext4 without a journal gives an inode out again only after minutes, and
        every file made until then looks at all of them first.
        """
        name = f"{attempt}.json"
        try:
            at = self._descend("protected_pids")
            try:
                if len(self._spares) < SPARES_MAX:
                    spare = f".spare-{len(self._spares)}"
                    os.rename(name, spare, src_dir_fd=at, dst_dir_fd=at)
                    self._spares.append(spare)
                else:
                    os.unlink(name, dir_fd=at)
            finally:
                os.close(at)
        except FileNotFoundError:
            return
        except OSError as error:
            raise PraxistError("path_unusable", f"protected_pids/{name}: {error}") from error

    def close(self) -> None:
        """Remove the spare files, as far as they are there."""
        with contextlib.suppress(OSError):  # others may have removed them or the directory
            at = self._descend("protected_pids")
            try:
                for spare in self._spares:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(spare, dir_fd=at)
            finally:
                os.close(at)
        self._spares.clear()


def _read_lines(at: int, name: str = EVIDENCE) -> list[bytes]:
    """The lines of a file of an attempt; none when it is missing, no plain file, or too large."""
    try:
        fd = os.open(name, READ, dir_fd=at)
    except OSError:
        return []
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return []
        body = os.read(fd, EVIDENCE_BYTES_MAX + 1)
    except OSError:
        return []
    finally:
        os.close(fd)
    if len(body) > EVIDENCE_BYTES_MAX:
        return []
    return [line for line in body.split(b"\n") if line]


def _tail(fd: int) -> str:
    size = os.fstat(fd).st_size
    raw = os.pread(fd, LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES))
    return raw.decode("utf-8", errors="replace")
