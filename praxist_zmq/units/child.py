"""One unit's child process: started on its device, watched by a pidfd, ended with all it left.

The child stays in the attempt's process group and session. It dies with the evaluator
(PR_SET_PDEATHSIG), which holds for itself, not for what it starts. No shell.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from .descendants import Found, drain, find, now_s
from .outcome import Status, UnitAttempt, signature_of, tail_of
from .unit import MARK_VARIABLE, UNIT_VARIABLE, Unit

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class UnitChild:
    """A started unit."""

    def __init__(self, unit: Unit, mark: str, log: Path, limit_s: float | None) -> None:
        self.unit = unit
        self.mark = mark
        self.log = log
        self.started_at = stamp()
        self.started_s = now_s()
        self.limit_s = limit_s
        self.due_s = None if limit_s is None else self.started_s + limit_s
        self.process: subprocess.Popen[bytes] | None = None
        self.pidfd = -1
        self.refusal: str | None = None
        self.timed_out = False

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Start it. False when it cannot be: the reason is its last line."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        log = os.open(self.log, flags, 0o600)
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **environment,
                    UNIT_VARIABLE: self.unit.as_text(),
                    MARK_VARIABLE: self.mark,
                },
                preexec_fn=_die_with(os.getpid()),
            )
            self.pidfd = os.pidfd_open(self.process.pid)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.refusal = f"cannot start {command[0]!r}: {error}"
            os.write(log, f"{self.refusal}\n".encode())
            return False
        finally:
            os.close(log)
        return True

    @property
    def root(self) -> int | None:
        """Its process, while that number is still its own."""
        process = self.process
        return process.pid if process is not None and process.returncode is None else None

    def look(self) -> Found:
        """All of its processes that are to be seen."""
        root = self.root
        return find(self.mark, () if root is None else (root,))

    def end(self, grace_s: float) -> tuple[int, ...]:
        """End what is left of it, wait for its child; the processes that would not end."""
        left = drain(self.look, grace_s)
        self.close()
        return left

    def close(self) -> None:
        """Take the child's status, unless it lives on against all signals."""
        if self.process is not None:
            self.process.poll()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def record(
        self,
        scientific: Sequence[int],
        interrupted: bool,
        left: tuple[int, ...],
        result_fault: str | None,
    ) -> UnitAttempt:
        """What became of it, once it has ended."""
        status = None if self.process is None else self.process.returncode
        tail = tail_of(self.log)
        kind: Status
        signature: str | None = None
        devices = () if self.unit.device is None else (self.unit.device,)
        # Ended by us first: one that takes TERM and ends with 0 is not done.
        if interrupted:
            kind = "interrupted"
        elif self.timed_out:
            kind, signature = "timeout", f"not done within {self.limit_s:g} s"
        elif status == 0 and result_fault is None:
            kind = "succeeded"
        elif status in scientific:
            kind = "scientific"
        else:
            kind = "error"
            if result_fault is not None:
                signature = signature_of("result", result_fault, self.unit.key, devices)
            else:
                signature = signature_of(self._how(status), tail, self.unit.key, devices)
        return UnitAttempt(
            unit=self.unit.key,
            attempt=self.unit.attempt,
            status=kind,
            exit_code=status if status is not None and status >= 0 else None,
            signal=-status if status is not None and status < 0 else None,
            signature=signature,
            tail=tail,
            device=self.unit.device,
            started_at=self.started_at,
            ended_at=stamp(),
            seconds=round(now_s() - self.started_s, 3),
            log=str(self.log),
            left=left,
        )

    def _how(self, status: int | None) -> str:
        if status is None:
            return "start" if self.refusal is not None else "no end"
        return f"exit {status}" if status >= 0 else f"signal {-status}"


def stamp() -> str:
    """The wall clock for people: RFC 3339, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _die_with(parent: int) -> Callable[[], None]:
    """For between fork and exec: be killed when the evaluator dies, and not live on if it has."""

    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare
