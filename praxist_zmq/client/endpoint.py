"""Find the scheduler of a run: read `endpoint.json`, and believe it only as far as proved.

Decides whether a scheduler can be there at all, and who it must be. Never connects. The file is
opened without following links and without waiting on a pipe in its place; the socket it names
must be one of this very run, belong to the user who wrote the file, and its supervisor must still
live.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import PraxistError
from ..host.liveness import NamedProcess, liveness
from ..host.paths import RunPaths, RunSockets
from ..host.runtime_dir import check_socket_owner
from ..protocol.envelope import PROTOCOL_VERSION

ENDPOINT_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a run's scheduler listens, and as whom."""

    door: str
    events: str
    epoch: int
    owner: int


def find_endpoint(run: RunPaths) -> Endpoint:
    """The run's live endpoint.

    Raises `no_run`, `no_scheduler` (nothing published, or its supervisor is dead), `unsafe_path`,
    `protocol_mismatch`, `scheduler_restarting` (published, but its socket is not there; or a
    supervisor lives that has published nothing at the moment).
    """
    raw, owner = _read(run)
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        raise _damaged(run, "is not JSON") from None
    if not isinstance(value, dict):
        raise _damaged(run, "is no object")
    version = value.get("protocol_version")
    if version != PROTOCOL_VERSION:
        raise PraxistError(
            "protocol_mismatch",
            f"the scheduler speaks version {version!r}, this client {PROTOCOL_VERSION}",
        )
    endpoint = Endpoint(
        _socket_path(run, value, "endpoint"),
        _socket_path(run, value, "events_endpoint"),
        _epoch(run, value),
        owner,
    )
    supervisor = NamedProcess.of(value.get("supervisor"))
    if liveness(supervisor) == "gone":
        raise PraxistError("no_scheduler", f"the scheduler of {run.run_dir} has died")
    try:
        check_socket_owner(endpoint.door, owner)
    except FileNotFoundError:
        raise PraxistError(
            "scheduler_restarting",
            f"process {supervisor.pid} serves {run.run_dir}, but its socket {endpoint.door} was "
            "removed; it is made again within seconds",
        ) from None
    return endpoint


def _read(run: RunPaths) -> tuple[bytes, int]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(run.endpoint, flags)
    except FileNotFoundError:
        raise _absent(run) from None
    except OSError as error:
        code = "unsafe_path" if error.errno in (errno.ELOOP, errno.ENXIO) else "path_unusable"
        raise PraxistError(code, f"{run.endpoint}: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise PraxistError("unsafe_path", f"{run.endpoint} is not a regular file")
        _check_owner(run, found.st_uid)
        raw = os.read(descriptor, ENDPOINT_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(raw) > ENDPOINT_BYTES_MAX:
        raise _damaged(run, "is too long")
    return raw, found.st_uid


def _check_owner(run: RunPaths, uid: int) -> None:
    """The file must be ours or of the user who owns the scheduler's directory."""
    if uid not in (os.geteuid(), os.lstat(run.scheduler).st_uid):
        raise PraxistError("unsafe_path", f"{run.endpoint} belongs to user {uid}")


def _absent(run: RunPaths) -> PraxistError:
    if not run.run_dir.is_dir():
        return PraxistError("no_run", f"{run.run_dir} is not a directory")
    pid = _announced(run)
    if pid is not None:
        return PraxistError(
            "scheduler_restarting",
            f"process {pid} serves {run.run_dir}, and has no broker that answers at the moment",
        )
    return PraxistError("no_scheduler", f"nothing serves {run.run_dir}")


def _announced(run: RunPaths) -> int | None:
    """The process that says of itself that it serves the run, if it lives."""
    try:
        fd = os.open(RunSockets.of(run).announcement, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            named = NamedProcess.of(json.loads(file.read(ENDPOINT_BYTES_MAX))["supervisor"])
    except (OSError, PraxistError, ValueError, RecursionError, KeyError, TypeError):
        return None
    return named.pid if liveness(named) == "alive" else None


def _damaged(run: RunPaths, what: str) -> PraxistError:
    return PraxistError("path_unusable", f"{run.endpoint} {what}")


def _socket_path(run: RunPaths, value: dict[str, Any], key: str) -> str:
    text = value.get(key)
    if not isinstance(text, str) or not text.startswith("ipc:///") or "\0" in text:
        raise _damaged(run, f"has no ipc address under {key!r}")
    path = Path(text.removeprefix("ipc://"))
    # Not the whole path: who runs the scheduler may have another runtime directory than we have.
    own = RunSockets.of(run).directory.name
    if path.parent.name != own or value.get("run_dir", str(run.run_dir)) != str(run.run_dir):
        raise PraxistError(
            "unsafe_path",
            f"{run.endpoint} names another run's scheduler under {key!r}",
            [f"was it copied? `praxist-zmq up --run-dir {run.run_dir}` writes its own"],
        )
    return str(path)


def _epoch(run: RunPaths, value: dict[str, Any]) -> int:
    epoch = value.get("epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        raise _damaged(run, "has no epoch")
    return epoch
