"""`python -m tests.bench.fleet ENDPOINT CLIENTS FILE`: clients in a closed loop, one message each.

FILE holds one message body a line, made before the clock starts, so that a client costs the same
whoever answers. Prints what it measured as JSON.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path

import zmq

from praxist_zmq.protocol.envelope import PREAMBLE
from tests.bench.figures import quantile

SILENCE_S = 60
READABLE = int(zmq.POLLIN)
REFUSED = b'"kind":"refusal"'


def main() -> None:
    """Connect all, then send, receive, send."""
    endpoint, clients = sys.argv[1], int(sys.argv[2])
    bodies = Path(sys.argv[3]).read_bytes().splitlines()
    context = zmq.Context()
    # Not a poller of ZeroMQ's, which asks every socket: one answer would cost as much as all.
    epoll = select.epoll()
    owners: dict[int, zmq.Socket[bytes]] = {}
    sockets = [context.socket(zmq.DEALER) for _ in range(clients)]
    for socket in sockets:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(endpoint)
        descriptor = int(socket.getsockopt(zmq.FD))
        epoll.register(descriptor, select.EPOLLIN)
        owners[descriptor] = socket
    warm = b'{"request_id":"warm-up-request","request":{"kind":"ping"}}'
    for socket in sockets:
        socket.send_multipart((PREAMBLE, warm))
    for socket in sockets:
        socket.recv_multipart()
    taken: list[float] = []
    sent_at: dict[zmq.Socket[bytes], float] = {}
    waiting = iter(bodies)

    def send(socket: zmq.Socket[bytes]) -> None:
        body = next(waiting, None)
        if body is not None:
            sent_at[socket] = time.perf_counter()
            socket.send_multipart((PREAMBLE, body))

    def exchange(socket: zmq.Socket[bytes]) -> None:
        # Until it says that there is no more: only then its descriptor tells of the next.
        while int(socket.getsockopt(zmq.EVENTS)) & READABLE:
            answer = socket.recv_multipart()[-1]
            taken.append(time.perf_counter() - sent_at[socket])
            if REFUSED in answer:
                sys.exit(f"refused: {answer[:500]!r}")
            send(socket)

    began = time.perf_counter()
    for socket in sockets:
        send(socket)
        exchange(socket)
    while len(taken) < len(bodies):
        ready = epoll.poll(SILENCE_S)
        if not ready:
            sys.exit(f"no answer in {SILENCE_S} s after {len(taken)} of {len(bodies)}")
        for descriptor, _ in ready:
            exchange(owners[descriptor])
    seconds = time.perf_counter() - began
    result = {
        "count": len(taken),
        "seconds": seconds,
        "p50": quantile(taken, 0.5),
        "p99": quantile(taken, 0.99),
    }
    print(json.dumps(result))


main()
