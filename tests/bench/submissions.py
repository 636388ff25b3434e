"""How many submissions a second are accepted and on disk, and how long one takes.

Limits: the same clients against a bare loop that only passes frames, and the sync that the
acknowledgement waits for, shared by as many records as the broker's turns in fact shared it.
"""

from __future__ import annotations

import json
import statistics
import time
import uuid
from pathlib import Path

from praxist_zmq.client import Client
from praxist_zmq.client.submission import submit_request
from praxist_zmq.ledger.log import Ledger
from praxist_zmq.protocol.codec import decode_event
from praxist_zmq.protocol.events import JobQueued
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
    """Durable submissions a second with 1, 8 and 64 clients."""
    runs = 1 if quick else 3
    counts = {1: 400, 8: 1_500, 64: 3_000} if quick else {1: 1_000, 8: 2_000, 64: 6_000}
    ours: dict[int, list[dict[str, float]]] = {}
    bare: dict[int, list[dict[str, float]]] = {}
    syncs: dict[int, list[float]] = {}
    with place.run("submit", 1) as run:
        occupy(run)
        for clients, count in counts.items():
            limits.Fleet(run.door, clients, _bodies(place, count // 8, f"w{clients}")).result()
            ours[clients], bare[clients], syncs[clients] = [], [], []
            for n in range(runs):
                bodies = _bodies(place, count, f"c{clients}-{n}")
                ours[clients].append(limits.Fleet(run.door, clients, bodies).result())
                bare[clients].append(limits.round_trips(place.directory, clients, bodies))
                syncs[clients] += limits.sync_seconds(place.directory, (clients + 1) // 2, 60)
        run.command("stop", "--yes", "--grace", "0s")
        shared = _records_a_turn(run)
    found = []
    for clients in counts:
        # How many records share a sync is known only now; the time of one hardly depends on it.
        commit = shared[f"c{clients}"] * len(syncs[clients]) / sum(syncs[clients])
        found += _rate(clients, ours[clients], bare[clients], shared[f"c{clients}"], commit)
    return found


def _rate(
    clients: int,
    ours: list[dict[str, float]],
    bare: list[dict[str, float]],
    records: float,
    commit: float,
) -> list[Figure]:
    rates = [result["count"] / result["seconds"] for result in ours]
    passing = [result["count"] / result["seconds"] for result in bare]
    limit = 1 / (1 / statistics.median(passing) + 1 / commit)
    detail = {
        "rates": spread(rates),
        "round_trips": spread(passing),
        "group_commit": commit,
        "records_a_turn": records,
        "ack_p50_ms": 1e3 * statistics.median(result["p50"] for result in ours),
        "ack_p99_ms": 1e3 * statistics.median(result["p99"] for result in ours),
    }
    rate = statistics.median(rates)
    name = f"{clients} client{'s' if clients > 1 else ''}"
    told = f"one thread: round trips, a sync a {max(1, round(records))}"
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


def _records_a_turn(run: Run) -> dict[str, float]:
    """How many submissions shared a sync, by the mark of their tags: a turn has one stamp."""
    ledger = Ledger.open(run.paths.ledger, "broker", run.paths.run_id, "")
    stamps: dict[str, list[int]] = {}
    for _, record in ledger.replay():
        event = decode_event(record)
        if isinstance(event, JobQueued):
            stamps.setdefault(event.tag.partition("-")[0], []).append(event.at_ms)
    ledger.close()
    return {mark: len(each) / len(set(each)) for mark, each in stamps.items()}


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
