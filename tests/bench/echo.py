"""`python -m tests.bench.echo ENDPOINT [FILE]`: a bare ROUTER, one thread, until stdin ends.

With FILE what waits is appended to it and synced before any of it is sent back.
"""

from __future__ import annotations

import os
import sys

import zmq


def main() -> None:
    """Drain what waits, make it durable if asked to, send all of it back, wait for more."""
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
    file = os.open(sys.argv[2], flags, 0o600) if sys.argv[2:] else -1
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
        if file >= 0 and waiting:
            os.write(file, b"".join([frame for message in waiting for frame in message]))
            os.fdatasync(file)
        for message in waiting:
            socket.send_multipart(message, zmq.NOBLOCK)


main()
