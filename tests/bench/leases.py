"""From the grant of a lease to the return of the waiting peer's call.

A grant begins when its record is written to the ledger: that is seen by a process that watches the
file, because the record's own stamp is cut to a whole millisecond. How late such a process sees a
write is measured with writes of ours, and added. By the stamp, which is also taken before the
decision, the wake is told as well. What the broker sends before the write, to wake those whom the
grant will pass, lies before that beginning.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
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
REST_S = 0.5
"""Before each of the limit's measurements; grants come a second after the last sample."""
WORK_S = 0.001
"""What the processes of a run do before a grant is written."""
IN_MODIFY = 2
"""See inotify(7)."""


def woken(place: Place, *, quick: bool) -> list[Figure]:
    """One peer after another waits for room that is idle already.

    The limits are measured in between, so that a busy moment of the machine meets all of them; and
    as the grant, each after a while in which nothing happens: a processor that sleeps takes far
    longer to wake than one that has just worked.
    """
    # Of fewer than a hundred the p99 is the slowest.
    count, rested = (8, 2) if quick else (100, 1)
    ours: list[float] = []
    stamped: list[float] = []
    wakes: list[float] = []
    syncs: list[float] = []
    late: list[float] = []
    with place.run("lease", 4) as run, Client(run.paths.run_dir) as client:
        writes = _Writes(max(run.paths.ledger.glob("*.segment")))
        (place.directory / "watched").touch()
        own_writes = _Writes(place.directory / "watched")
        for number in range(count):
            lease = client.lease_wait(f"p{number}", 60)
            woken_at = time.time()
            issued_at = datetime.fromisoformat(lease.issued_at).timestamp()
            ours.append(woken_at - writes.first_since(issued_at))
            stamped.append(woken_at - issued_at)
            client.lease_decline(lease.peer)
            wakes += _bare_wakes(place.directory, rested)
            for _ in range(rested):
                limits.rest(REST_S)
                syncs += limits.sync_seconds(place.directory, 1, 1)
                limits.rest(REST_S)
                late.append(own_writes.seen_late(place.directory / "watched"))
        for each in (writes, own_writes):
            each.close()
    ours = [each + quantile(late, 0.5) for each in ours]
    p99 = 1e3 * quantile(ours, 0.99)
    bare = 1e3 * (2 * quantile(wakes, 0.99) + quantile(syncs, 0.99))
    poll = 1e3 * POLL_S * 0.99
    detail = {
        "grants": count,
        "p50_ms": 1e3 * quantile(ours, 0.5),
        "by_stamp_p50_ms": 1e3 * quantile(stamped, 0.5),
        "by_stamp_p99_ms": 1e3 * quantile(stamped, 0.99),
        "bare_wake_p50_ms": 1e3 * quantile(wakes, 0.5),
        "sync_p50_ms": 1e3 * quantile(syncs, 0.5),
        "seen_late_p50_ms": 1e3 * quantile(late, 0.5),
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


class _Writes:
    """The moments of all writes to a file, from a process that sleeps until the kernel tells."""

    def __init__(self, path: Path) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._told, there = spawn.Pipe(duplex=False)
        self._process = spawn.Process(target=_watch, args=(str(path), there), daemon=True)
        self._process.start()
        self._told.recv()  # it watches

    def first_since(self, at: float) -> float:
        """The first write at or after `at`, seconds since 1970."""
        while True:
            moment = float(self._told.recv())
            if moment >= at:
                return moment

    def seen_late(self, path: Path) -> float:
        """Seconds from a write of ours, after work of `WORK_S` as a grant is, to the moment that is
        told of it."""
        with path.open("ab", buffering=0) as file:
            until = time.perf_counter() + WORK_S
            while time.perf_counter() < until:
                pass
            began = time.time()
            file.write(limits.RECORD)
        return self.first_since(began) - began

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join(20)


def _watch(path: str, pipe: Connection) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_CLOEXEC)
    if libc.inotify_add_watch(descriptor, os.fsencode(path), IN_MODIFY) < 0:
        raise OSError(ctypes.get_errno(), path)
    pipe.send(0.0)
    while os.read(descriptor, 65_536):
        pipe.send(time.time())


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
        limits.rest(REST_S)
        socket.send(repr(time.clock_gettime(time.CLOCK_MONOTONIC)).encode())
    socket.close(0)
    context.term()
