"""Find the processes that a test started, from /proc. Linux only, like the product."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """One live process, as far as this user may read it."""

    pid: int
    ppid: int
    start_ticks: int
    arguments: str

    @property
    def is_registry(self) -> bool:
        """Whether it is a claim registry, which outlives runs by design."""
        return "praxist_zmq.service.registry" in self.arguments

    def signal(self, number: signal.Signals) -> None:
        """Signal it, unless it is gone or its number names another process by now."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            again = _read(self.pid)
            if again is not None and again.start_ticks == self.start_ticks:
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)

    def __str__(self) -> str:
        return f"pid {self.pid} (parent {self.ppid}): {self.arguments[:200]}"


def pids() -> frozenset[int]:
    """All process ids now."""
    return frozenset(int(name) for name in os.listdir("/proc") if name.isdigit())


def leaked(before: frozenset[int], marks: tuple[str, str]) -> list[Process]:
    """Processes that are not in `before` and belong to the test.

    They descend from this process, or hold the first mark (the host scope's directory) in their
    environment, or hold one of the marks in their arguments. Zombies hold nothing and don't count.
    """
    fresh = {pid: process for pid in pids() - before if (process := _read(pid)) is not None}
    return [p for p in fresh.values() if _descends(p, fresh) or _marked(p, marks)]


def _read(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    text = arguments.replace(b"\0", b" ").decode(errors="replace").strip()
    return Process(pid, int(fields[1]), int(fields[19]), text)


def _descends(process: Process, fresh: dict[int, Process]) -> bool:
    while process.ppid in fresh and process.ppid != process.pid:
        process = fresh[process.ppid]
    return process.ppid == os.getpid()


def _marked(process: Process, marks: tuple[str, str]) -> bool:
    if any(mark in process.arguments for mark in marks):
        return True
    try:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return f"PRAXIST_ZMQ_HOST_DIR={marks[0]}\0".encode() in environment + b"\0"
