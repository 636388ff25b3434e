"""From the grant of a lease to the return of the waiting peer's call."""

from __future__ import annotations

import multiprocessing
import time
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path

import zmq

from praxist_zmq.client import Client
from tests.bench import limits
from tests.bench.figures import Figure, quantile
from tests.bench.place import Place

GROUP = "lease"
POLL_S = 1.0


def woken(place: Place, *, quick: bool) -> list[Figure]:
    """One peer after another waits for room that is idle already.

    The grant's own stamp is taken before its sync, and cut to a whole millisecond: what is told
    is too much by up to 1 ms. The limits are measured in between, so that a busy moment of the
    machine meets all of them.
    """
    count = 8 if quick else 30
    ours: list[float] = []
    wakes: list[float] = []
    syncs: list[float] = []
    with place.run("lease", 4) as run, Client(run.paths.run_dir) as client:
        for number in range(count):
            lease = client.lease_wait(f"p{number}", 60)
            ours.append(time.time() - datetime.fromisoformat(lease.issued_at).timestamp())
            client.lease_decline(lease.peer)
            wakes += _bare_wakes(place.directory, 10)
            syncs += limits.sync_seconds(place.directory, 1, 10)
    ours = [max(0.0, seconds) for seconds in ours]
    p99 = 1e3 * quantile(ours, 0.99)
    bare = 1e3 * (2 * quantile(wakes, 0.99) + quantile(syncs, 0.99))
    poll = 1e3 * POLL_S * 0.99
    detail = {
        "grants": count,
        "p50_ms": 1e3 * quantile(ours, 0.5),
        "bare_wake_p50_ms": 1e3 * quantile(wakes, 0.5),
        "sync_p50_ms": 1e3 * quantile(syncs, 0.5),
    }
    return [
        Figure(GROUP, "grant to wake, p50", detail["p50_ms"], "ms"),
        Figure(
            GROUP, "grant to wake, p99", p99, "ms", bare, "2 bare PUB/SUB wakes + 1 fdatasync, p99",
            target=1.0, sense="most", detail=detail,
        ),
        Figure(
            GROUP, "a 1 s poll over it, p99", poll / max(p99, 1e-3), "times", target=20,
            target_of="value",
        ),
    ]  # fmt: skip


def _bare_wakes(directory: Path, count: int) -> list[float]:
    """Seconds from a PUB's send to the return of a SUB's receive in another process."""
    endpoint = f"ipc://{directory}/bare-wake.sock"
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_publish, args=(endpoint, there))
    process.start()
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    found = []
    try:
        here.recv()
        socket.connect(endpoint)
        while len(found) < count:
            sent = float(socket.recv())
            if sent:
                found.append(time.clock_gettime(time.CLOCK_MONOTONIC) - sent)
            here.send(b"next" if len(found) < count else b"end")
    finally:
        process.join(20)
        socket.close(0)
        context.term()
    return found


def _publish(endpoint: str, pipe: Connection) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.XPUB)
    socket.bind(endpoint)
    pipe.send(b"bound")
    socket.recv()  # the subscription
    socket.send(b"0")
    while pipe.recv() == b"next":
        socket.poll(2)  # the other one waits again
        socket.send(repr(time.clock_gettime(time.CLOCK_MONOTONIC)).encode())
    socket.close(0)
    context.term()
