"""Exact crash points: which process, which calls, and how many of them one job's way has."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from praxist_zmq.errors import PraxistError

from .campaign import ensure_up, finish
from .run import Run
from .strace import injected


@dataclass(frozen=True, slots=True)
class Point:
    """Calls of one process."""

    process: str
    calls: str
    short: int
    long: int
    follow: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.process}-{self.calls.replace(',', '-')}"


POINTS = (
    Point("broker", "fdatasync", 5, 9),
    Point("broker", "sendto,sendmsg", 4, 12, follow=True),
    Point("registry", "fdatasync", 3, 4),
    Point("registry", "sendto,sendmsg", 2, 4, follow=True),
    Point("gateway", "sendto,sendmsg", 3, 8, follow=True),
    Point("launcher", "sendto,sendmsg", 4, 10, follow=True),
    Point("launcher", "mkdirat,mkdir,openat", 3, 30),
    Point("zygote", "pwrite64", 3, 4, follow=True),
    Point("zygote", "sendto", 4, 6, follow=True),
)


def play_point(run: Run, point: Point, occurrences: Iterable[int]) -> int:
    """Submit one job for every occurrence while that one is armed; then everything must be right.

    Gives the number of occurrences that were met.

    A shim that was killed after GO has an unknown end by right, and one that dies at its barrier
    in every attempt ends the job for good; all others end with their code.
    """
    codes: dict[str, int] = {}
    hits = 0
    for when in occurrences:
        ensure_up(run)
        tag, code = f"{point.name}-{when}", when % 3
        pid = run.processes()[point.process]
        with injected(pid, point.calls, "signal=SIGKILL", when, follow=point.follow):
            _submit(run, tag, code)
            ensure_up(run)
            _until_ended(run, tag)
        again = run.show(f"tag:{tag}").attempts > 1
        hits += again or run.processes().get(point.process) != pid or _shim_was_lost(run, tag)
        codes[tag] = code
    if point.process == "zygote":
        codes = {tag: code for tag, code in codes.items() if not _shim_was_lost(run, tag)}
    finish(run, codes)
    return hits


def _submit(run: Run, tag: str, code: int) -> None:
    """Until it is acknowledged: the same command again is always safe."""
    pause = threading.Event()
    for _ in range(50):
        try:
            with run.client(timeout_s=3.0) as client:
                run.submit(client, tag, f"exit:{code}")
                return
        except PraxistError as error:
            if not (error.row.retryable or error.code == "no_scheduler"):
                raise
            pause.wait(0.1)
            ensure_up(run)
    raise AssertionError(f"{tag} was never accepted")


def _until_ended(run: Run, tag: str) -> None:
    """Over restarts, also when the supervisor gave up: fast points come more often than allowed."""
    for _ in range(8):
        try:
            with run.client(timeout_s=10.0) as client:
                client.wait(f"tag:{tag}", 30)
                return
        except PraxistError as error:
            if error.code not in ("no_scheduler", "scheduler_restarting"):
                raise
            ensure_up(run)
    raise AssertionError(f"{tag} never ended")


def _shim_was_lost(run: Run, tag: str) -> bool:
    """Followed forks are all killed at the same point, also those of the next attempt."""
    job = run.show(f"tag:{tag}")
    return job.state == "drained_unknown" or job.failure_category == "infrastructure"
