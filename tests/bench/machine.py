"""The broker's machine by itself: what a decision costs as the queue grows, and a replay.

In this process, no sockets, no sync. The surroundings are those of `tests.support.broker_world`.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from praxist_zmq.core.broker import Broker
from praxist_zmq.core.commands import ClientRequest
from praxist_zmq.core.identity import identity_of, long_job_id
from praxist_zmq.ledger.log import Ledger
from praxist_zmq.protocol import events as ev
from praxist_zmq.protocol.codec import encode
from praxist_zmq.protocol.requests import SubmitJob
from praxist_zmq.service.broker_store import fold
from tests.bench.figures import Figure, quantile, spread
from tests.bench.place import Place
from tests.support.broker_world import World, identity

TURNS = 300
BATCH = 2_000
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


# -- decisions ------------------------------------------------------------------------------


def decided(place: Place, *, quick: bool) -> list[Figure]:
    """One turn that submits; one turn in which a job ends and the next one is planned."""
    sizes = (100, 10_000) if quick else (100, 10_000, 100_000)
    world = World(devices=0, limit=1)
    submitting: dict[int, list[float]] = {}
    ending: dict[int, list[float]] = {}
    for size in sizes:
        _fill(world, size)
        world.disk.clear()
        gc.collect()
        submitting[size] = [_submit_turn(world) for _ in range(TURNS)]
        ending[size] = [_end_turn(world) for _ in range(TURNS)]
    found = []
    for name, taken in (("submission", submitting), ("end and next", ending)):
        base = 1e6 * statistics.median(taken[sizes[0]])
        for size in sizes:
            last = size == sizes[-1]
            detail = {
                "us": spread([1e6 * value for value in taken[size]]),
                "p99_us": 1e6 * quantile(taken[size], 0.99),
            }
            found.append(
                Figure("decision", f"{name}, {size:,} queued",
                       1e6 * statistics.median(taken[size]), "us", base,
                       f"the same with {sizes[0]} queued", 2 if last else None, sense="most",
                       detail=detail)
            )  # fmt: skip
    return found


def _request(world: World) -> ClientRequest:
    world.requests += 1
    name = f"request-{world.requests:08d}"
    submission = SubmitJob(
        tag=name, peer="bench", command=("/bin/true",), cwd="/", environment=ENVIRONMENT
    )
    return ClientRequest("client", name, f"{world.requests:064x}", submission, 0, 1)


def _fill(world: World, size: int) -> None:
    """Submit until `size` jobs are queued and one runs."""
    while (missing := size - world.broker.state.counts["queued"]) > 0:
        world.turn(*(_request(world) for _ in range(min(missing, 500))))
        world.settle()
        world.replies.clear()
        world.published.clear()


def _timed(world: World, *commands: Any) -> float:
    began = time.perf_counter()
    world.turn(*commands)
    return time.perf_counter() - began


def _submit_turn(world: World) -> float:
    request = _request(world)
    taken = _timed(world, request)
    world.settle()
    return taken


def _end_turn(world: World) -> float:
    """The report of an end arrives: allocation back, job finished, next job to the registry."""
    world.finish_one()
    taken = _timed(world, world.to_broker.popleft())
    if not any("reserve" in name for name, _ in world.to_registry):
        raise RuntimeError("no other job was planned")
    world.settle()
    return taken


# -- replay ---------------------------------------------------------------------------------


def replayed(place: Place, *, quick: bool) -> list[Figure]:
    """Read a ledger: the bytes with every checksum, then decoded and applied as well."""
    count = 50_000 if quick else 1_000_000
    directory = place.directory / "replay"
    ledger = Ledger.open(directory, "broker", "bench", "boot", ballast_bytes=0)
    for _ in ledger.replay():
        raise RuntimeError("the ledger should be new")
    ledger.start()
    batch: list[bytes] = []
    for record in _history(count):
        batch.append(record)
        if len(batch) == BATCH:
            ledger.commit(batch)
            batch.clear()
    if batch:
        ledger.commit(batch)
    size = ledger.bytes_on_disk
    ledger.close()
    raw = _read(directory, lambda records: sum(1 for _ in records), count)
    broker = Broker()
    whole = _read(directory, lambda records: fold(broker, records), count)
    if broker.soft.unreadable:
        raise RuntimeError(f"{len(broker.soft.unreadable)} records could not be applied")
    shutil.rmtree(directory)
    detail = {"events": count, "bytes": size, "seconds": whole, "bytes_only_seconds": raw}
    name = f"{count:,} events"
    return [
        Figure("replay", f"{name}, bytes and checksums", count / raw, "/s", detail=detail),
        Figure("replay", f"{name}, decoded and applied", count / whole, "/s", count / raw,
               "bytes and checksums only", detail=detail),
        Figure("replay", f"{name}, time", whole, "s"),
    ]  # fmt: skip


def _read(
    directory: Any, consume: Callable[[Iterator[tuple[int, bytes]]], int], count: int
) -> float:
    ledger = Ledger.open(directory, "broker", "bench", "boot", ballast_bytes=0)
    began = time.perf_counter()
    read = consume(ledger.replay())
    taken = time.perf_counter() - began
    ledger.close()
    if read != count:
        raise RuntimeError(f"{read} of {count} records were read")
    return taken


def _history(count: int) -> Iterator[bytes]:
    """Records of jobs that were queued, ran and ended, seven each, as the broker writes them."""
    made = 0
    digest = "e" * 64
    first = ev.EnvironmentRecorded(at_ms=1, environment_id=digest, variables={"PATH": "/bin"})
    yield encode(first)
    made += 1
    number = 0
    while made < count:
        number += 1
        for event in _life(number, digest):
            if made < count:
                yield encode(event)
                made += 1


def _life(number: int, environment: str) -> Iterator[ev.BaseModel]:
    at_ms = 1_700_000_000_000 + number
    job, attempt, tag = f"j-{number}", f"j-{number}.1", f"tag-{number}"
    who = identity_of("bench", 0, tag)
    yield ev.JobQueued.model_construct(
        at_ms=at_ms, job=job, job_id=long_job_id(who, number), identity=who, tag=tag,
        peer="bench", generation=0, profile="cpu", work_class="ordinary", eta_ms=None,
        command=("/bin/true", "--seed", str(number)), cwd="/data/run", environment_id=environment,
        lease_id=None, request_id=f"{number:032x}", request_digest=who, request_index=0, uid=0,
    )  # fmt: skip
    yield ev.AttemptAllocated.model_construct(
        at_ms=at_ms, job=job, attempt=attempt, device_uuids=(), exclusive=False, memory_mib=None,
        utilization_pct=None,
    )  # fmt: skip
    yield ev.AttemptBound.model_construct(at_ms=at_ms, attempt=attempt, shim=identity(number))
    yield ev.AttemptLaunched.model_construct(
        at_ms=at_ms, attempt=attempt, leader=identity(number + 1)
    )
    yield ev.AttemptExited.model_construct(
        at_ms=at_ms, attempt=attempt, outcome="exited", exit_code=0, signal=None
    )
    yield ev.JobFinished.model_construct(
        at_ms=at_ms, job=job, attempt=attempt, state="completed", exit_code=0, signal=None,
        failure_category=None, failure_signature=None,
    )  # fmt: skip
    yield ev.AllocationReleased.model_construct(at_ms=at_ms, attempt=attempt)
