"""What this machine allows, measured bare: syncs, messages, spawns. No code of the product."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import zmq

RECORD = b"r" * 299 + b"\n"


def sync_seconds(directory: Path, records: int, count: int) -> list[float]:
    """Seconds of each of `count` appends of `records` 300-byte records with one fdatasync."""
    path = directory / "sync.tmp"
    block = RECORD * records
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC, 0o600)
    found = []
    try:
        for _ in range(count):
            began = time.perf_counter()
            os.write(descriptor, block)
            os.fdatasync(descriptor)
            found.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink()
    return found


def rest(seconds: float) -> None:
    """Let the machine come to rest: what is measured is what it costs to wake it."""
    select.poll().poll(1e3 * seconds)


@contextlib.contextmanager
def echo(directory: Path, *, durable: bool = False) -> Iterator[str]:
    """A bare ROUTER in a process of its own that sends back what it gets; its endpoint.

    `durable`: once it is in a file and synced, all that waits with one sync.
    """
    endpoint = f"ipc://{directory}/echo.sock"
    file = [str(directory / "echo.tmp")] if durable else []
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.bench.echo", endpoint, *file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield endpoint
    finally:
        process.communicate()


class Fleet:
    """As many clients as asked, each with one message under way, in one other process."""

    def __init__(self, endpoint: str, clients: int, bodies: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.bench.fleet", endpoint, str(clients), str(bodies)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def result(self) -> dict[str, float]:
        """`count`, `seconds`, and `p50` and `p99` of one exchange in seconds."""
        out, _ = self._process.communicate(timeout=300)
        if self._process.returncode != 0:
            raise RuntimeError(f"the fleet ended with {self._process.returncode}")
        found: dict[str, float] = json.loads(out)
        return found


def round_trips(
    directory: Path, clients: int, bodies: Path, *, durable: bool = False
) -> dict[str, float]:
    """A fleet against a bare echo: the rate of one thread that does nothing but pass frames.

    `durable`: and commits them in groups, whatever waits in one sync.
    """
    with echo(directory, durable=durable) as endpoint:
        return Fleet(endpoint, clients, bodies).result()


def one_round_trip(directory: Path, count: int, size: int) -> list[float]:
    """Seconds of each exchange of one blocking DEALER with a bare ROUTER of another process."""
    found = []
    with echo(directory) as endpoint:
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.connect(endpoint)
        for _ in range(count + 50):
            began = time.perf_counter()
            socket.send(b"b" * size)
            socket.recv()
            found.append(time.perf_counter() - began)
        socket.close(0)
        context.term()
    return found[50:]


def spawn_rate(command: list[str], count: int, at_once: int) -> float:
    """Processes a second that one bare loop starts and reaps, `at_once` of them living."""
    epoll = select.epoll()
    living: dict[int, int] = {}
    started = 0
    began = time.perf_counter()
    while started < count or living:
        while started < count and len(living) < at_once:
            pid = os.posix_spawn(command[0], command, {}, setpgroup=0)
            descriptor = os.pidfd_open(pid)
            epoll.register(descriptor, select.EPOLLIN)
            living[descriptor] = pid
            started += 1
        for descriptor, _ in epoll.poll():
            os.waitpid(living.pop(descriptor), 0)
            epoll.unregister(descriptor)
            os.close(descriptor)
    seconds = time.perf_counter() - began
    epoll.close()
    return count / seconds
