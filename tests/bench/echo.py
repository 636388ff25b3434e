"""`python -m tests.bench.echo ENDPOINT`: a bare ROUTER, one thread, until stdin ends."""

from __future__ import annotations

import sys

import zmq


def main() -> None:
    """Drain what waits, send all of it back, wait for more."""
    socket = zmq.Context().socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(sys.argv[1])
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(0, zmq.POLLIN)
    print("ready", flush=True)
    while True:
        if 0 in dict(poller.poll()):
            return
        waiting = []
        while len(waiting) < 512:
            try:
                waiting.append(socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                break
        for message in waiting:
            socket.send_multipart(message, zmq.NOBLOCK)


main()
