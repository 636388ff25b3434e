"""Runs a command of the task's for a moment, with bounds on its time and on what it prints.

The command gets a session of its own and nothing on stdin; whatever is left of its group when the
time is over, when it has printed too much, or when this process is gone, is killed: the last by
`guard.py`, which stands between. It is no experiment: it holds nothing, and a process that leaves
its session is not followed.
Source: poll(2), setsid(2), killpg(3).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from . import guard
from .clock import Clock

ERROR_BYTES_KEPT = 2_000


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """What a command printed; `problem` says why that is not all, or not to be trusted."""

    out: bytes
    problem: str | None


def run_bounded(
    command: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    time_ms: int,
    out_bytes_max: int,
    until: int,
    clock: Clock,
) -> CommandOutput | None:
    """Run it to its end; None when the descriptor `until` became readable before that."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            locale = "keep" if "LC_CTYPE" in environment else "drop"
            words = [sys.executable, "-I", "-S", guard.__file__, str(theirs.fileno()), locale, "--"]
            try:
                process = subprocess.Popen(
                    [*words, *command],
                    cwd=cwd,
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else str(error)
                return CommandOutput(b"", f"{command[0]} cannot be executed: {why}")
        done = _to_end(process, time_ms, out_bytes_max, until, clock)
        ours.setblocking(False)
        with suppress(BlockingIOError, ConnectionResetError):
            why = ours.recv(1000).decode("utf-8", "replace")
            if why:
                return CommandOutput(b"", f"{command[0]} cannot be executed: {why}")
        return done


def _to_end(
    process: subprocess.Popen[bytes], time_ms: int, out_bytes_max: int, until: int, clock: Clock
) -> CommandOutput | None:
    reading = _Reading(process, out_bytes_max, until)
    try:
        problem = reading.to_end(clock, clock.mono_ms() + time_ms, time_ms)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reading.close()
    if reading.interrupted:
        return None
    if problem is None and process.returncode:
        problem = f"it ended with {_ending(process.returncode)}{reading.last_words()}"
    return CommandOutput(bytes(reading.out), problem)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit {code}"


class _Reading:
    """Both streams of a command while it runs."""

    def __init__(self, process: subprocess.Popen[bytes], out_bytes_max: int, until: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.out = bytearray()
        self.interrupted = False
        self._error = bytearray()
        self._max = out_bytes_max
        self._until = until
        self._process = process
        self._streams = {process.stdout.fileno(): self.out, process.stderr.fileno(): self._error}
        self._poll = select.poll()
        for descriptor in self._streams:
            self._poll.register(descriptor, select.POLLIN)
        self._poll.register(until, select.POLLIN)

    def to_end(self, clock: Clock, due_ms: int, time_ms: int) -> str | None:
        """Read until both are closed; what went wrong."""
        while self._streams:
            left_ms = due_ms - clock.mono_ms()
            if left_ms <= 0:
                return f"it had not ended after {time_ms / 1000:g} s{self.last_words()}"
            for descriptor, _ in self._poll.poll(left_ms):
                if descriptor == self._until:
                    self.interrupted = True
                    return None
                self._read(descriptor)
            if len(self.out) > self._max:
                del self.out[self._max :]
                return f"it printed more than {self._max} bytes"
        try:
            self._process.wait(max(0, due_ms - clock.mono_ms()) / 1000)
        except subprocess.TimeoutExpired:
            return f"it had not ended after {time_ms / 1000:g} s{self.last_words()}"
        return None

    def _read(self, descriptor: int) -> None:
        piece = os.read(descriptor, 65_536)
        if not piece:
            self._poll.unregister(descriptor)
            del self._streams[descriptor]
            return
        kept = self._streams[descriptor]
        kept += piece
        if kept is self._error:
            del kept[:-ERROR_BYTES_KEPT]

    def last_words(self) -> str:
        """The last line that it printed on stderr."""
        lines = bytes(self._error).decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1][-300:]}" if lines else ""

    def close(self) -> None:
        """Close both streams."""
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
