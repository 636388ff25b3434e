"""From a submission to the evaluator's first instruction, and finished jobs a second."""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path

from praxist_zmq.client import Client, RefusedError
from tests.bench import limits
from tests.bench.figures import Figure, quantile, spread
from tests.bench.place import Place
from tests.support.wait import wait_until

GROUP = "submit to start"
SYNCS_TO_START = 5
"""Queued, reserved, allocated, bound, bound at the registry: each waits for the one before."""


def started(place: Place, *, quick: bool) -> list[Figure]:
    """A connected client, an empty queue; the evaluator reads the clock first.

    In slices, each beside its limits, so that a busy moment of the machine meets all of them.
    """
    slices, count = (4, 15) if quick else (20, 20)
    stamps = place.directory / "stamps"
    command = [*place.trivial, str(stamps)]
    ours: list[float] = []
    bare: list[float] = []
    sync: list[float] = []
    with place.run("start", 4) as run, Client(run.paths.run_dir) as client:
        _through_us(client, command, stamps, count, "warm")
        for n in range(slices):
            ours += _through_us(client, command, stamps, count, f"s{n}")
            bare += _bare(command, stamps, count)
            sync += limits.sync_seconds(place.directory, 1, count)
    middle, limit = 1e3 * quantile(ours, 0.5), 1e3 * quantile(bare, 0.5)
    synced = limit + SYNCS_TO_START * 1e3 * quantile(sync, 0.5)
    what = "bare Popen of the same" if place.compiled else "bare Popen; no compiler: in Python"
    return [
        Figure(GROUP, "p50", middle, "ms", limit, what),
        Figure(GROUP, "p50 over the bare one", middle - limit, "ms", target=10,
               target_of="value", sense="most"),
        Figure(GROUP, "p50, beside its syncs", middle, "ms", synced,
               f"the bare one and {SYNCS_TO_START} syncs one after the other"),
        Figure(GROUP, "p99", 1e3 * quantile(ours, 0.99), "ms", 1e3 * quantile(bare, 0.99), what),
    ]  # fmt: skip


def _through_us(
    client: Client, command: list[str], stamps: Path, count: int, mark: str
) -> list[float]:
    stamps.write_bytes(b"")
    sent = []
    for n in range(count):
        sent.append(time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        job = client.submit(
            tag=f"{mark}-{n}", peer="bench", command=command, cwd="/", environment={}
        ).job.job
        client.wait(job, timeout_s=30)
    return _differences(sent, stamps)


def _bare(command: list[str], stamps: Path, count: int) -> list[float]:
    stamps.write_bytes(b"")
    sent = []
    for _ in range(count):
        sent.append(time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        subprocess.Popen(command, env={}, start_new_session=True).wait()
    return _differences(sent, stamps)


def _differences(sent: list[int], stamps: Path) -> list[float]:
    seen = [int(line) for line in stamps.read_text().split()]
    if len(seen) != len(sent):
        raise RuntimeError(f"{len(sent)} jobs, but {len(seen)} evaluators ran")
    return [(there - here) / 1e9 for here, there in zip(sent, seen, strict=True)]


def finished(place: Place, *, quick: bool) -> list[Figure]:
    """Trivial jobs from the submission of a batch to the end of its last one."""
    found = []
    count, runs = (300, 1) if quick else (400, 3)
    for slots in (2, 8):
        rates, ones, manys = [], [], []
        with place.run(f"jobs{slots}", slots) as run, Client(run.paths.run_dir) as client:
            _batch(client, place.trivial, 50, "warm")
            for n in range(runs):
                rates.append(_batch(client, place.trivial, count, f"b{n}"))
                ones.append(limits.spawn_rate(place.trivial, 300, 1))
                manys.append(limits.spawn_rate(place.trivial, 300, slots))
        one, many = statistics.median(ones), statistics.median(manys)
        detail = {"rates": spread(rates), "bare_one_at_a_time": one, "bare_at_once": many}
        rate = statistics.median(rates)
        name = f"{slots} slots"
        # The goal speaks of a loop: spawn, reap, spawn again. That many at a time is told too.
        what = "a bare loop of posix_spawn and reap"
        target = {"target": 0.15} if slots == 8 else {}
        found.append(Figure("finished jobs", name, rate, "/s", one, what, **target, detail=detail))
        what = f"bare posix_spawn and reap, {slots} at a time"
        found.append(Figure("finished jobs", f"{name}, at once", rate, "/s", many, what))
        if slots == 8:
            found.append(
                Figure("finished jobs", f"{name}, as such", rate, "/s", target=200,
                       target_of="value")
            )  # fmt: skip
    return found


def _batch(client: Client, command: list[str], count: int, mark: str) -> float:
    """Jobs a second."""
    wanted = client.status()["jobs"]["completed"] + count
    jobs = [
        {"tag": f"{mark}-{n}", "peer": "bench", "command": command, "cwd": "/", "environment": {}}
        for n in range(count)
    ]
    began = time.perf_counter()
    answers = client.submit_many(jobs)
    last = answers[-1]
    if isinstance(last, RefusedError):
        raise last
    client.wait(last.job.job, timeout_s=120)
    wait_until(lambda: client.status()["jobs"]["completed"] >= wanted, "all jobs to complete")
    return count / (time.perf_counter() - began)
