"""How many submissions a second are accepted and on disk, and how long one takes.

Limits: the same clients against a bare loop of one thread that passes frames and commits them in
groups, measured as one; and for one client alone a sync and a round trip, each for itself.
"""

from __future__ import annotations

import json
import statistics
import time
import uuid
from pathlib import Path

from praxist_zmq.client import Client
from praxist_zmq.client.submission import submit_request
from tests.bench import limits
from tests.bench.figures import Figure, quantile, spread
from tests.bench.place import Place, Run

ENVIRONMENT = {"PATH": "/usr/bin:/bin", **{f"BENCH_{n}": "v" * 30 for n in range(14)}}
GROUP = "durable submissions"
HOLDER = ["/bin/sh", "-c", "exec sleep 3600"]


def body(tag: str, command: list[str]) -> bytes:
    """A request as the client sends it."""
    request = submit_request(
        tag=tag, command=command, peer="bench", cwd="/", environment=ENVIRONMENT
    )
    envelope = {"request_id": uuid.uuid4().hex, "request": request}
    return json.dumps(envelope, separators=(",", ":")).encode()


def occupy(run: Run) -> None:
    """Let one job hold the only slot, so that what is submitted after it stays queued."""
    with Client(run.paths.run_dir) as client:
        job = client.submit(tag="holder", peer="bench", command=HOLDER, cwd="/").job.job
        while client.show(job).state != "running":
            client.watch(job, after_version=client.show(job).version, timeout_s=30)


def accepted(place: Place, *, quick: bool) -> list[Figure]:
    """Durable submissions a second with 1, 8 and 64 clients.

    In turns with their limit, so that a busy moment of the machine meets both.
    """
    runs = 3 if quick else 7
    counts = {1: 200, 8: 700, 64: 2_000} if quick else {1: 500, 8: 1_500, 64: 4_000}
    found = []
    with place.run("submit", 1) as run:
        occupy(run)
        for clients, count in counts.items():
            limits.Fleet(run.door, clients, _bodies(place, count // 4, f"w{clients}")).result()
            ours: list[dict[str, float]] = []
            bare: list[dict[str, float]] = []
            passing: list[dict[str, float]] = []
            for n in range(runs):
                bodies = _bodies(place, count, f"c{clients}-{n}")
                ours.append(limits.Fleet(run.door, clients, bodies).result())
                bare.append(limits.round_trips(place.directory, clients, bodies, durable=True))
                passing.append(limits.round_trips(place.directory, clients, bodies))
            found += _rate(clients, ours, bare, passing)
    return found


def _rate(
    clients: int,
    ours: list[dict[str, float]],
    bare: list[dict[str, float]],
    passing: list[dict[str, float]],
) -> list[Figure]:
    rates = [result["count"] / result["seconds"] for result in ours]
    limits_met = [result["count"] / result["seconds"] for result in bare]
    detail = {
        "rates": spread(rates),
        "bare": spread(limits_met),
        "bare_without_a_sync": spread([each["count"] / each["seconds"] for each in passing]),
        "ack_p50_ms": 1e3 * statistics.median(result["p50"] for result in ours),
        "ack_p99_ms": 1e3 * statistics.median(result["p99"] for result in ours),
    }
    rate, limit = statistics.median(rates), statistics.median(limits_met)
    name = f"{clients} client{'s' if clients > 1 else ''}"
    told = "one bare thread: round trips, group commit"
    target = 0.25 if clients == 64 else None
    figures = [Figure(GROUP, name, rate, "/s", limit, told, target, detail=detail)]
    if target is not None:
        figures.append(
            Figure(GROUP, f"{name}, as such", rate, "/s", target=3_000, target_of="value")
        )
    return figures


def _bodies(place: Place, count: int, mark: str) -> Path:
    path = place.directory / "bodies"
    with path.open("wb") as file:
        file.writelines(body(f"{mark}-{n}", place.trivial) + b"\n" for n in range(count))
    return path


def acknowledged(place: Place, *, quick: bool) -> list[Figure]:
    """From a connected client's call of `submit` to its return.

    In slices, each beside its limits, so that a busy moment of the machine meets all of them.
    """
    slices, count = (4, 75) if quick else (20, 100)
    ours: list[float] = []
    sync: list[float] = []
    trip: list[float] = []
    size = len(body("ack", place.trivial))
    with place.run("ack", 1) as run:
        occupy(run)
        with Client(run.paths.run_dir) as client:
            _submit_one_by_one(client, place.trivial, count, "warm")
            for n in range(slices):
                ours += _submit_one_by_one(client, place.trivial, count, f"ack{n}")
                sync += limits.sync_seconds(place.directory, 1, count)
                trip += limits.one_round_trip(place.directory, count, size)
    figures = []
    for share, target in ((0.5, 3), (0.99, None)):
        limit = 1e3 * (quantile(sync, share) + quantile(trip, share))
        name = f"p{100 * share:.0f}, one client"
        what = f"a sync and a round trip, p{100 * share:.0f}"
        got = 1e3 * quantile(ours, share)
        figures.append(Figure("submit to ack", name, got, "ms", limit, what, target, sense="most"))
    return figures


def _submit_one_by_one(client: Client, command: list[str], count: int, mark: str) -> list[float]:
    taken = []
    for n in range(count):
        began = time.perf_counter()
        client.submit(
            tag=f"{mark}-{n}", peer="bench", command=command, cwd="/", environment=ENVIRONMENT
        )
        taken.append(time.perf_counter() - began)
    return taken
