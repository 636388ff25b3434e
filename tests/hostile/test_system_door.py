"""Hostile peers at the door of a run that works: others are served, memory stays bounded,
experiments don't notice."""

from __future__ import annotations

import json
import os
import random
import resource
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from praxist_zmq.errors import PraxistError
from praxist_zmq.protocol.envelope import PREAMBLE
from tests.support import oracle
from tests.support.raw_peer import GREETING, RawPeer, frame
from tests.support.run import Run
from tests.support.wait import wait_until

GROWTH_KIB_MAX = 200 * 1024


def _door(run: Run) -> str:
    endpoint: str = json.loads(run.paths.endpoint.read_text())["endpoint"]
    return endpoint.removeprefix("ipc://")


def _resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


@contextmanager
def others_are_served(run: Run) -> Iterator[None]:
    """Somebody's experiment runs and somebody submits, all the while; memory is watched."""
    before = run.processes()
    kib = {name: _resident_kib(before[name]) for name in ("broker", "gateway")}
    stop = threading.Event()
    served: list[str] = []
    faults: list[str] = []

    def work() -> None:
        number = 0
        with run.client(timeout_s=60.0) as client:
            while not stop.is_set():
                try:
                    job = run.submit(client, f"ok{number}", "exit:0").job.job
                    served.append(client.wait(job, 60).state)
                except PraxistError as error:
                    faults.append(str(error))
                    return
                number += 1

    with run.client() as client:
        kept = run.submit(client, "kept", f"wait:{run.gate('go')}", "exit:5").job.job
    run.until_started(f"{kept}.1")
    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_until(lambda: served or faults, "the first to be served")
        yield
        count = len(served)
        wait_until(lambda: len(served) > count + 1 or faults, "more to be served")
    finally:
        stop.set()
        thread.join(timeout=40)
        run.open_gate("go")
    assert not faults, faults
    assert set(served) == {"completed"}
    now = run.processes()
    assert now["broker"] == before["broker"], "the broker was restarted"
    for name in ("broker", "gateway"):
        grown = _resident_kib(now[name]) - kib[name]
        assert grown < GROWTH_KIB_MAX, f"{name} grew by {grown} KiB"
    with run.client() as client:
        assert client.wait(kept, 60).exit_code == 5
    run.down()
    oracle.check_ended(run)


def test_random_bytes(run: Run) -> None:
    rng = random.Random(5)
    with others_are_served(run):
        door = _door(run)
        for kind in range(60):
            peer = RawPeer(door)
            if kind % 3 == 1:
                peer.send(GREETING[: rng.randrange(1, 64)])
            elif kind % 3 == 2:
                peer.greet()
            peer.send(rng.randbytes(rng.randrange(1, 5000)))
            peer.close()


def test_silent_connections(run: Run) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1024:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    with others_are_served(run), ExitStack() as stack:
        door = _door(run)
        peers = [RawPeer(door) for _ in range(200)]
        for peer in peers:
            stack.callback(peer.close)
        for peer in peers[::2]:
            peer.send(GREETING[:30])
        assert all(peer.is_cut() for peer in peers[:5] + peers[-5:]), "silence is cut off"


def test_a_message_of_a_million_frames(run: Run) -> None:
    with others_are_served(run):
        peer = RawPeer(_door(run)).greet()
        part = frame(b"x", more=True) * 10_000
        for _ in range(100):
            if not peer.send(part):
                break
        peer.send(frame(b"last"))
        peer.close()


def test_an_enormous_length(run: Run) -> None:
    with others_are_served(run):
        for claimed in (2**62, 2**40, 64 * 1024 * 1024):
            peer = RawPeer(_door(run)).greet()
            peer.send(frame(PREAMBLE, more=True) + frame(b"[" * 1000, claimed=claimed))
            assert peer.is_cut(), claimed
            peer.close()


def _asking(request: bytes) -> bytes:
    return b'{"request_id":"' + b"a" * 32 + b'","request":' + request + b"}"


BODIES = (
    b"[" * 4_000_000,
    b'{"request_id":"' + b"a" * 32 + b'","request":' + b'{"a":' * 500_000,
    _asking(b'{"kind":"ping"}') + b" trailing",
    _asking(b'{"kind":"ping"},"request_id":"b"'),
    _asking(b'{"kind":"list_jobs","limit":1e999}'),
    _asking(b'{"kind":"list_jobs","limit":' + b"9" * 100_000 + b"}"),
    _asking(b'{"kind":"list_jobs","limit":NaN}'),
    b"\xff\xfe\x00",
    b"",
    b"null",
    b'{"request_id":null,"request":null}',
    _asking(b'{"kind":"attempt_ended","attempt":"j-1.1"}'),
    _asking(b'{"kind":"no_such"}'),
)


def test_bodies(run: Run) -> None:
    with run.client() as client:
        before = client.status()["jobs_total"]
        for body in BODIES:
            peer = RawPeer(_door(run)).greet()
            peer.send(frame(PREAMBLE, more=True) + frame(body))
            client.ping()
            peer.close()
        peer = RawPeer(_door(run)).greet()
        peer.send(frame(PREAMBLE, more=True) + frame(_asking(b'{"kind":"ping"}')))
        assert b'"epoch"' in peer.until(b"}"), "the same by hand, but valid, is answered"
        peer.send(frame(PREAMBLE, more=True) + frame(_asking(b'{"kind":"no_such"}')))
        assert b"unknown_request" in peer.until(b"}")
        peer.close()
        job = run.submit(client, "after", "exit:0").job.job
        assert client.wait(job, 60).state == "completed"
        assert client.status()["jobs_total"] == before + 1
    run.down()
    oracle.check_ended(run)


def test_frame_counts_and_versions(run: Run) -> None:
    body = b'{"request_id":"' + b"a" * 32 + b'","request":{"kind":"ping"}}'
    with others_are_served(run):
        for message in (
            frame(PREAMBLE),
            frame(PREAMBLE, more=True) + frame(body, more=True) + frame(b"x"),
            b"".join(frame(b"", more=True) for _ in range(50)) + frame(b""),
            frame(b"OTHER\x01", more=True) + frame(body),
            frame(PREAMBLE[:-1] + b"\x63", more=True) + frame(body),
        ):
            peer = RawPeer(_door(run)).greet()
            peer.send(message)
            peer.close()


def test_out_of_descriptors(run: Run) -> None:
    """ZeroMQ ends a process that can't accept; then only the gateway is restarted."""
    gateway = run.processes()["gateway"]
    used = len(os.listdir(f"/proc/{gateway}/fd"))
    resource.prlimit(gateway, resource.RLIMIT_NOFILE, (used + 20, used + 20))
    with others_are_served(run), ExitStack() as stack:
        door = _door(run)
        for _ in range(60):
            try:
                stack.callback(RawPeer(door).close)
            except OSError:
                break
        run.until_healthy()
