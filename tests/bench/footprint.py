"""Memory and processor time of all our processes, with nothing to do and with a long queue."""

from __future__ import annotations

import contextlib
import select
import time

import psutil

from praxist_zmq.client import Client
from tests.bench.figures import Figure
from tests.bench.place import Place, Run
from tests.bench.submissions import ENVIRONMENT, occupy

QUEUED = 10_000
BATCH = 500


def held(place: Place, *, quick: bool) -> list[Figure]:
    """Resident and proportional memory, and the share of one core over a while."""
    seconds, seconds_queued = (10, 5) if quick else (30, 30)
    with place.run("idle", 1) as run:
        occupy(run)
        _pause(1)
        found = _measure(run, "idle, one running", seconds, 1.0)
        with Client(run.paths.run_dir, timeout_s=60) as client:
            for start in range(0, QUEUED, BATCH):
                client.submit_many(
                    [
                        {
                            "tag": f"q-{n}", "peer": "bench", "command": place.trivial,
                            "cwd": "/", "environment": ENVIRONMENT,
                        }
                        for n in range(start, start + BATCH)
                    ]
                )  # fmt: skip
        _pause(2)
        found += _measure(run, f"{QUEUED:,} queued", seconds_queued, None)
    return found


def _pause(seconds: float) -> None:
    """Let time pass: this measures what happens while nothing is asked."""
    select.poll().poll(seconds * 1_000)


def _measure(run: Run, name: str, seconds: float, target: float | None) -> list[Figure]:
    processes = run.processes()
    before = _cpu(processes)
    began = time.monotonic()
    _pause(seconds)
    after = _cpu(processes)
    over = time.monotonic() - began
    share = {key: 100 * (after[key] - before[key]) / over for key in before}
    memory = {key: [_memory(process) for process in each] for key, each in processes.items()}
    rss = {key: sum(rss for rss, _ in pairs) for key, pairs in memory.items()}
    pss = {key: sum(pss for _, pss in pairs) for key, pairs in memory.items()}
    return [
        Figure("memory", f"{name}, RSS", sum(rss.values()), "MiB", detail=rss),
        Figure("memory", f"{name}, PSS", sum(pss.values()), "MiB", detail=pss),
        Figure("processor", f"{name}, {seconds} s", sum(share.values()), "% of a core",
               target=target, target_of="value", sense="most", detail=share),
    ]  # fmt: skip


def _cpu(processes: dict[str, list[psutil.Process]]) -> dict[str, float]:
    """Seconds of processor time so far, from each process's own clock (exact, not by ticks)."""
    found = {}
    for name, each in processes.items():
        # clock_getcpuclockid(3): the clock id of a process's processor time.
        found[name] = sum(time.clock_gettime((~process.pid << 3) | 2) for process in each)
    return found


def _memory(process: psutil.Process) -> tuple[float, float]:
    """(RSS, PSS) in MiB; where PSS may not be read, RSS stands for it."""
    rss = process.memory_info().rss / 2**20
    with contextlib.suppress(psutil.AccessDenied):
        return rss, process.memory_full_info().pss / 2**20
    return rss, rss
