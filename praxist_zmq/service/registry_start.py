"""Finds the host's claim registry, or starts it; safe when many do so at once.

A starter holds the start lock from its look at the socket until the registry that it started says,
by message, that it serves; so the next one finds it serving. Everything is bounded: a registry or
a starter that hangs is an error after `START_MS`, never a wait without end. One of an earlier
release is replaced in the same way, once it has ended. It decides nothing about claims.
"""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Any

from ..errors import ERRORS, PraxistError
from ..host.clock import Clock, SystemClock
from ..host.paths import HostPaths
from ..host.runtime_dir import ScopeDirectory, check_socket_owner, ensure_private, ensure_scope
from ..host.spawn import service_environment
from ..ledger.lock import OwnerLock
from .child import service_command
from .registry_info import end_outdated, outdated
from .service_log import open_log

START_MS = 20_000
LOCK_RETRY_MS = 20
HELD_RETRY_MS = 200
SILENT_ENDS_MAX = 3
"""A registry may be killed while it starts; so often in a row, its log must say why."""
_MESSAGE_BYTES_MAX = 65_536


class _EndedSilently(PraxistError):
    """It ended before it said that it serves, or why it does not."""


def ensure_registry(host: HostPaths) -> ScopeDirectory:
    """Return once a registry serves `host`; start one, detached, when nobody does.

    In another user's shared scope none is started. Raises `unsafe_path` or `path_unusable` for a
    directory that is neither private nor shared as it should be, `no_registry` when none serves
    another's, `start_failed` when none serves in time, and the code with which the started one
    ended.
    """
    scope = ensure_scope(host.directory)
    if scope.ours:
        ensure_private(host.log)
    if serves(host, scope.owner) and not (scope.ours and outdated(host)):
        return scope
    if not scope.ours:
        raise PraxistError("no_registry", of_another(host, scope.owner))
    _start_one(host)
    return scope


def of_another(host: HostPaths, owner: int) -> str:
    """In words, who may serve a scope, and how."""
    return (
        f"{host.directory} belongs to user {owner}, who alone may serve it: "
        f"`python -m praxist_zmq.service.registry {host.directory} --detach`"
    )


def _start_one(host: HostPaths) -> None:
    clock = SystemClock()
    deadline_ms = clock.mono_ms() + START_MS
    lock = _start_lock(host, clock, deadline_ms)
    try:
        # Under the start lock: else those who miss it would start one of their own release again.
        end_outdated(host)
        held, silent_ends = "", 0
        while not serves(host):
            try:
                held = _start(host, clock, deadline_ms, held)
            except _EndedSilently:
                silent_ends += 1
                if silent_ends == SILENT_ENDS_MAX:
                    raise
                continue
            if not held:
                return
            # Its holder is about to serve, or about to end; the kernel tells nobody which.
            select.poll().poll(HELD_RETRY_MS)
    finally:
        lock.release()


def serves(host: HostPaths, owner: int | None = None) -> bool:
    """Whether somebody listens on the registry's socket. Raises `unsafe_path` for a stranger's.

    `owner` is the user who should; by default we.
    """
    try:
        check_socket_owner(host.registry_socket, os.geteuid() if owner is None else owner)
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(host.registry_socket))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except (TimeoutError, BlockingIOError):
            return True  # its queue is full: somebody holds the socket, and is slow
        except OSError as error:
            raise PraxistError(
                "path_unusable", f"{host.registry_socket}: {error.strerror}"
            ) from error
    return True


def _start_lock(host: HostPaths, clock: Clock, deadline_ms: int) -> OwnerLock:
    """The right to start one. The kernel tells nobody when a lock is free, so it is asked."""
    while True:
        try:
            return OwnerLock.acquire(host.registry_start_lock, {"pid": os.getpid()})
        except PraxistError as error:
            if error.code != "already_running":
                raise
            if clock.mono_ms() >= deadline_ms:
                raise PraxistError(
                    "start_failed",
                    f"somebody starts the claim registry, too slowly: {error.detail}",
                ) from error
        select.poll().poll(LOCK_RETRY_MS)


def _start(host: HostPaths, clock: Clock, deadline_ms: int, held: str) -> str:
    """Start a registry and wait for its one line.

    Returns "" when it serves, else who held the lock before it; `held` is what the last one said.
    """
    log = open_log(host.log / "registry.log")
    read_end, write_end = os.pipe()
    command = [
        *service_command("registry"),
        os.fspath(host.directory),
        "--detach",
        "--ready-fd",
        str(write_end),
    ]
    try:
        os.set_inheritable(write_end, True)
        pid = os.posix_spawn(
            command[0],
            command,
            service_environment(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
        )
    except OSError as error:
        os.close(read_end)
        raise PraxistError("start_failed", f"{command[0]}: {error.strerror}") from error
    finally:
        os.close(write_end)
        os.close(log)
    try:
        line = _line(read_end, clock, deadline_ms)
    except PraxistError as error:
        os.waitpid(pid, os.WNOHANG)
        raise PraxistError(error.code, f"{error.detail}{held and ': '}{held}") from None
    finally:
        os.close(read_end)
    os.waitpid(pid, 0)  # it forked the registry and ended before that said anything
    return _understood(line, host)


def _line(descriptor: int, clock: Clock, deadline_ms: int) -> bytes:
    line = bytearray()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while not line.endswith(b"\n") and len(line) < _MESSAGE_BYTES_MAX:
        left_ms = deadline_ms - clock.mono_ms()
        if left_ms <= 0 or not poll.poll(left_ms):
            raise PraxistError("start_failed", "the claim registry did not get ready in time")
        piece = os.read(descriptor, 4096)
        if not piece:
            break
        line += piece
    return bytes(line)


def _understood(line: bytes, host: HostPaths) -> str:
    message: Any = json.loads(line) if line else None
    if not isinstance(message, dict):
        raise _EndedSilently(
            "start_failed", f"the claim registry ended without a word; see {host.log}/registry.log"
        )
    error = message.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        known = code if isinstance(code, str) and code in ERRORS else "start_failed"
        raise PraxistError(known, f"claim registry: {error.get('detail')}")
    return str(message.get("held", ""))[:500]
