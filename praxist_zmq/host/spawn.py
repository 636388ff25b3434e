"""Starts, signals and reaps the service's own processes, and detaches from a terminal.

Never starts an experiment: that is the shim's work. Children are started by `posix_spawn`, never
by a plain fork, because the caller may hold a ZeroMQ context. The only fork is `detach`, which
runs before anything else is opened.
Source of the rules: waitpid(2), posix_spawn(3), pipe(7).
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ..errors import PraxistError

READY_FD = 3
"""Where a child of the supervisor finds the descriptor for its readiness message."""
PASSED_FD = 4
"""Where it finds the one descriptor more that it may be given."""
CONFIG_BYTES_MAX = 1024 * 1024 - 4096
"""The largest first line on a child's stdin: it must fit the pipe, so that nobody blocks."""

_PASSED_ON = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")
_PLACES = ("PRAXIST_ZMQ_HOST_DIR", "PRAXIST_ZMQ_RUNTIME_DIR", "TMPDIR", "HOME")
"""Variables that hold one path each."""
_LISTS_OF_PLACES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
_PASSED_ON_DEVICES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: by itself with `code`, or by `signal_number`."""

    code: int | None
    signal_number: int | None

    def __str__(self) -> str:
        if self.signal_number is None:
            return f"exit code {self.code}"
        try:
            name = signal.Signals(self.signal_number).name
        except ValueError:
            name = f"signal {self.signal_number}"
        return f"killed by {name}"


def service_environment() -> dict[str, str]:
    """The environment of our own processes: only what they need.

    No other variable of whoever started the scheduler can reach an experiment through them. The
    package itself is found by PYTHONPATH, so that a source checkout works like an installation.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON
        or name in _PASSED_ON_DEVICES
        or name.startswith(("LC_", "PRAXIST_ZMQ_"))
    }
    places = [str(Path(__file__).resolve().parents[2])]
    operators = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    places += [os.path.abspath(place) for place in operators if place]
    kept["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(places))
    return kept


def spawn_child(
    argv: Sequence[str], first_line: bytes, output: int, passed: int | None = None
) -> tuple[int, int, int]:
    """Start a process of ours in its own process group.

    Its stdin is a pipe that already holds `first_line`; its stdout and stderr are `output`; its
    descriptor READY_FD is a pipe for its messages, and PASSED_FD is `passed`, whose number must be
    above it. Returns (pid, write end of its stdin, read end
    of its messages). Raises `start_failed`.
    """
    if len(first_line) > CONFIG_BYTES_MAX:
        raise PraxistError(
            "start_failed",
            f"the configuration has {len(first_line)} bytes; the limit is {CONFIG_BYTES_MAX}",
        )
    opened: list[int] = []
    try:
        stdin_read, stdin_write = os.pipe()
        opened += [stdin_read, stdin_write]
        ready_read, ready_write = os.pipe()
        opened += [ready_read, ready_write]
        if len(first_line) > 65_536:
            fcntl.fcntl(stdin_write, fcntl.F_SETPIPE_SZ, CONFIG_BYTES_MAX + 4096)
        os.set_blocking(stdin_write, False)
        if os.write(stdin_write, first_line) != len(first_line):
            raise PraxistError("start_failed", "the configuration does not fit the pipe")
        pid = os.posix_spawn(
            argv[0],
            list(argv),
            service_environment(),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, stdin_read, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
                (os.POSIX_SPAWN_DUP2, ready_write, READY_FD),
                *([] if passed is None else [(os.POSIX_SPAWN_DUP2, passed, PASSED_FD)]),
            ],
            setpgroup=0,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGTERM],
        )
    except (OSError, PraxistError) as error:
        for descriptor in opened:
            os.close(descriptor)
        if isinstance(error, PraxistError):
            raise
        raise PraxistError("start_failed", f"{argv[0]}: {error.strerror}") from error
    os.close(stdin_read)
    os.close(ready_write)
    os.set_blocking(ready_read, False)
    return pid, stdin_write, ready_read


def reap() -> list[tuple[int, Exit]]:
    """Every child that ended since the last call, also adopted ones. Never blocks."""
    ended: list[tuple[int, Exit]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended.append((pid, Exit(code, None) if code >= 0 else Exit(None, -code)))


def ask_to_end(pid: int) -> None:
    """SIGTERM to a child that was not reaped yet; its number is therefore still its own."""
    os.kill(pid, signal.SIGTERM)


def kill_now(pid: int) -> None:
    """SIGKILL to a child that was not reaped yet; its number is therefore still its own."""
    os.kill(pid, signal.SIGKILL)


def watch(pid: int) -> int | None:
    """A pidfd of any process, readable once it ended; None when there is no such process."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def ask_to_end_by(pidfd: int) -> bool:
    """SIGTERM through a pidfd. False when the process is gone."""
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    except ProcessLookupError:
        return False
    return True


def wait_ended(pidfd: int, timeout_s: float | None) -> bool:
    """Block until the process behind a pidfd ended, at most `timeout_s` seconds."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))


@dataclass(frozen=True, slots=True)
class Detached:
    """The starter's side of `detach`."""

    pid: int
    messages: int
    """Read end: what the detached process reports; end of file when it ended."""


def settle_environment() -> None:
    """Make every path of our environment absolute, from the directory that it was given in.

    For whoever is about to leave that directory. An empty entry of a list is the directory itself
    to some who read it and nothing to others, so it stays. Raises `path_unusable` when the
    directory is gone.
    """
    for name in (*_PLACES, *_LISTS_OF_PLACES):
        parts = os.environ.get(name, "").split(os.pathsep if name in _LISTS_OF_PLACES else "\0")
        if any(part and not os.path.isabs(part) for part in parts):
            try:
                whole = [os.path.abspath(part) if part else part for part in parts]
            except OSError as error:
                raise PraxistError(
                    "path_unusable", f"{name} is relative to a directory that is gone: {error}"
                ) from error
            os.environ[name] = os.pathsep.join(whole)


def detach() -> Detached | int:
    """Fork a process in its own session with stdio on /dev/null and nothing else open.

    It moves to `/`, so that it keeps no directory in use; paths in its environment stay what they
    were.

    A descriptor of the caller's that stayed open (a pipe that somebody reads to its end) would
    make that somebody wait for the whole run. Returns `Detached` to the caller, and the write end
    for its report to the new process. Raises `path_unusable`.
    """
    settle_environment()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        return Detached(pid, read_end)
    os.close(read_end)
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, write_end)
    os.closerange(write_end + 1, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    return write_end


def leave(code: int) -> NoReturn:
    """End a detached process without the starter's exit handlers."""
    os._exit(code)


def wait_for(pid: int) -> Exit:
    """Reap one child of ours, blocking."""
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return Exit(code, None) if code >= 0 else Exit(None, -code)


def boottime_ms_of(start_ticks: int) -> int:
    """CLOCK_BOOTTIME milliseconds of field 22 of /proc/PID/stat."""
    return start_ticks * 1000 // os.sysconf("SC_CLK_TCK")


def utc_now() -> str:
    """The wall clock in RFC 3339, for people."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def spawn_helper(argv: Sequence[str], output: int) -> tuple[int, int]:
    """Start a short process of ours without input; (pid, pidfd). Raises `start_failed`."""
    try:
        pid = os.posix_spawn(
            argv[0],
            list(argv),
            service_environment(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setpgroup=0,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGTERM],
        )
        return pid, os.pidfd_open(pid)
    except OSError as error:
        raise PraxistError("start_failed", f"{argv[0]}: {error.strerror}") from error
