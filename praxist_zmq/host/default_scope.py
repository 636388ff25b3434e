"""Which host scope is meant where none is named: one for each user of a host, in every shell.

The place follows from the user alone (`paths.runtime_root`). Earlier releases let it follow from
XDG_RUNTIME_DIR; a registry of the user that still serves in such a place is gone on with for as
long as it lives, so that nothing it holds is promised twice. All shells find it by the same looks:
at the directory of logind, and at the sockets that the kernel knows.

Standard library only: the command line's fast verbs import this module. It starts nothing.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from ..errors import PraxistError
from .paths import (
    RUNTIME_VARIABLE,
    SCOPE_VARIABLE,
    HostPaths,
    canonical,
    runtime_root,
    runtime_roots,
    user_root,
)
from .runtime_dir import check_socket_owner
from .unix_sockets import ask, gone, hold, listening

REGISTRY_MODULE = "praxist_zmq.service.registry"
_EARLIER = Path("praxist-zmq") / "host"
"""Below a runtime directory, where earlier releases had the scope."""

HOLD_TRIES = 100
"""For a name that is taken and on which nobody listens."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Server:
    """A registry that serves a place."""

    directory: Path | None
    """None when its command line is not to be seen."""
    pid: int | None
    """None when it is too busy to tell, or of a process namespace that we do not see."""


def host_scope() -> Path:
    """The host scope's directory: `PRAXIST_ZMQ_HOST_DIR`, else the default place.

    That is below the runtime root, unless a registry of ours serves only in an earlier one.
    """
    named = os.environ.get(SCOPE_VARIABLE)
    if named:
        return canonical(named)
    own = _scope_in(runtime_root())
    if os.environ.get(RUNTIME_VARIABLE) or server_of(own) is not None:
        return own
    return next((other.directory for other in other_servers(own) if other.directory), own)


def refuse_second() -> None:
    """Raise `second_scope` when registries of ours serve in two default places; else return.

    Whoever names a scope means that one; then nothing is refused.
    """
    if os.environ.get(SCOPE_VARIABLE) or os.environ.get(RUNTIME_VARIABLE):
        return
    chosen = host_scope()
    for other in other_servers(chosen):
        raise second_scope(other, chosen)


def second_scope(other: Server, chosen: Path) -> PraxistError:
    """The refusal that names who serves, where, and the ways on."""
    who = "a process" if other.pid is None else f"process {other.pid}"
    place = other.directory or "a place that is not to be seen from here"
    return PraxistError(
        "second_scope",
        f"{who} serves this user's runs in {place}; none may be served in {chosen} beside it",
        [
            f"to go on with it: {SCOPE_VARIABLE}={place}",
            "to have it end: `praxist-zmq down` for each of its runs; it ends by itself soon after "
            "the last allocation",
        ],
    )


def other_servers(chosen: Path) -> list[Server]:
    """Registries of ours that serve in other default places than `chosen`."""
    places = {canonical(place) for place in {*map(_scope_in, runtime_roots()), *_listening()}}
    found = (server_of(place) for place in sorted(places - {canonical(chosen)}))
    return [server for server in found if server is not None]


def _is_default_place(directory: Path) -> bool:
    """Whether this directory may be that of a user who named none, in any release."""
    if directory == canonical(_scope_in(user_root())):
        return True
    return directory.parts[-2:] == _EARLIER.parts and _is_private(directory)


def _is_private(directory: Path) -> bool:
    """Whether it is one user's alone; a scope that was shared on purpose was named."""
    try:
        return not os.lstat(directory).st_mode & 0o077
    except OSError:
        return False


def _scope_in(root: Path) -> Path:
    return root / _EARLIER.name


def server_of(directory: Path) -> Server | None:
    """The registry of ours that serves in `directory`; None when there is none."""
    path = HostPaths(directory).registry_socket
    try:
        check_socket_owner(path, os.geteuid())
    except (FileNotFoundError, PraxistError):
        return None
    answer = ask(os.fspath(path))
    if answer is None:
        return None
    holder, connection = answer
    if connection is not None:
        connection.close()
    return Server(directory, holder.pid)


def hold_scope(directory: Path, wait_ms: int) -> socket.socket | None:
    """Hold the name that only one registry of a user has in a default place.

    None where the scope was named, or another user has the name: that is told, and nothing worse.
    One that is just ending is waited for, at most `wait_ms`. Raises `second_scope`.
    """
    if not _is_default_place(directory):
        return None
    name = f"@praxist-zmq/scope/{os.geteuid()}"
    for _ in range(HOLD_TRIES):
        taken = hold(name)
        if taken is not None:
            return taken
        answer = ask(name)
        if answer is None:
            continue  # it has just ended, or begun, or only says that it is there
        holder, connection = answer
        if holder.uid != os.geteuid() or connection is None:
            break
        with connection:
            if not gone(connection, wait_ms):
                raise second_scope(Server(place_of(holder.pid), holder.pid), directory)
    _log.warning("%s is held by another user; so nothing tells of a second registry", name)
    return None


def place_of(pid: int | None) -> Path | None:
    """Which scope a registry serves, by its command line; None when that is not to be seen."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return Path(os.fsdecode(words[words.index(REGISTRY_MODULE.encode()) + 1]))
    except (OSError, ValueError, IndexError):
        return None


def _listening() -> set[Path]:
    """Earlier default places on whose socket somebody listens, whosever they are."""
    ending = f"/{_EARLIER}/{HostPaths(Path()).registry_socket}"
    places = {Path(path).parent for path in listening() if path[0] == "/" and path.endswith(ending)}
    return {place for place in places if _is_private(place)}
