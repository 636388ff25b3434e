"""The launcher's side of the zygote: starts it, asks it for shims, replaces it when it dies.

It never starts an evaluator and keeps no record of shims. Source: unix(7) SCM_RIGHTS.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from ..errors import PraxistError
from . import zygote
from .clock import Clock
from .resource_limits import limit_open_files
from .zygote import BOOT, request

RESTARTS_MAX = 5
RESTART_WINDOW_MS = 10_000
CLEAN_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "LD_BIND_NOW": "1"}
NONCE_BYTES = 16
SILENT_MS = 10_000
"""A zygote that has not answered for so long is ended: a fork takes milliseconds."""


class Nursery:
    """One zygote at a time."""

    def __init__(self, clock: Clock, open_files: int) -> None:
        """`open_files` is the soft limit on descriptors that experiments inherit."""
        self._clock = clock
        self._open_files = open_files
        self._starts: deque[int] = deque(maxlen=RESTARTS_MAX + 1)
        self.start()

    def start(self) -> None:
        """Start a zygote. Raises PraxistError `restart_limit` when they keep dying."""
        now = self._clock.mono_ms()
        self._starts.append(now)
        self._unanswered: dict[str, int] = {}
        if len(self._starts) > RESTARTS_MAX and now - self._starts[0] < RESTART_WINDOW_MS:
            raise PraxistError(
                "restart_limit", f"the zygote ended {RESTARTS_MAX} times in 10 seconds"
            )
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        package_parent = str(Path(zygote.__file__).resolve().parents[2])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", BOOT, package_parent, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None,
                env=CLEAN_ENVIRONMENT,
                cwd="/",
                pass_fds=[theirs.fileno()],
            )
            limit_open_files(self._process.pid, self._open_files)
        except OSError as error:
            ours.close()
            raise PraxistError("start_failed", f"the zygote: {error}") from error
        finally:
            theirs.close()
        self._door = ours

    @property
    def pid(self) -> int:
        """The zygote's process id."""
        return self._process.pid

    def fileno(self) -> int:
        """Readable when the zygote answers or ended."""
        return self._door.fileno()

    def has_room(self) -> bool:
        """Whether it can be asked now. If not, it has questions to answer, and then it can."""
        poll = select.poll()
        poll.register(self._door, select.POLLOUT)
        return bool(poll.poll(0))

    def ask(
        self, attempt: str, channel: int, directory: int, log: int, held: Sequence[int] = ()
    ) -> bytes:
        """Ask for a shim that gets these descriptors; the nonce its GO must carry.

        `held`: sockets with the names of its devices, as `device_names.bind_held` made them. Raises
        OSError when the zygote cannot be asked now.
        """
        nonce = secrets.token_bytes(NONCE_BYTES)
        socket.send_fds(self._door, [request(attempt, nonce)], [channel, directory, log, *held])
        self._unanswered[attempt] = self._clock.mono_ms()
        return nonce

    def answers(self) -> list[tuple[str, int]] | None:
        """(attempt, pid of its shim or -errno) as answered; None when the zygote is gone."""
        found: list[tuple[str, int]] = []
        while True:
            try:
                message = self._door.recv(512)
            except BlockingIOError:
                return found
            except OSError:
                return None
            if not message:
                return found or None
            attempt, _, number = message.partition(b" ")
            self._unanswered.pop(attempt.decode(), None)
            found.append((attempt.decode(), int(number)))

    def silent_at_ms(self) -> int | None:
        """When a zygote that goes on to say nothing is to be ended; None when it owes nothing."""
        return next((asked_ms + SILENT_MS for asked_ms in self._unanswered.values()), None)

    def kill(self) -> None:
        """End a zygote that does not answer: its end is told like any other."""
        self._unanswered.clear()
        self._process.kill()

    def replace(self) -> None:
        """Start another zygote in the place of the one that ended."""
        self._door.close()
        self._process.poll()
        self.start()

    def close(self) -> None:
        """Let the zygote end; shims are not affected."""
        self._door.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def close_all(*descriptors: int) -> None:
    """Close descriptors that were handed on."""
    for descriptor in descriptors:
        os.close(descriptor)
