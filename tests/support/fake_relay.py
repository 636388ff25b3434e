"""A fake of the way between the gateway's publications and a peer: it loses, repeats and reorders.

A real subscriber at the run's publisher and a real publisher in its place, in a thread; the run's
`endpoint.json` is made to name the latter. Peers and scheduler notice nothing of it.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from praxist_zmq.host.paths import RunSockets
from praxist_zmq.transport.poller import Poller
from praxist_zmq.transport.publication import Publisher, Subscriber

from .run import Run
from .wait import wait_until

Publication = tuple[bytes, bytes]
Fault = Callable[[Publication], Iterable[Publication]]
"""What arrives when a publication is sent."""


def lose(prefix: bytes) -> Fault:
    """Publications under `prefix` are lost."""
    return lambda sent: () if sent[0].startswith(prefix) else (sent,)


class Tangle:
    """By a seed a publication of a lease is lost, repeated, or kept and sent after later ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._kept: list[Publication] = []

    def __call__(self, sent: Publication) -> Iterable[Publication]:
        if not sent[0].startswith(b"lease/"):
            return (sent,)
        fate = self._random.choice(["lost", "twice", "late", "as it is"])
        if fate == "late":
            self._kept.append(sent)
        if fate in ("lost", "late"):
            return ()
        late = self._random.sample(self._kept, min(3, len(self._kept)))
        return [sent, *late] if fate == "as it is" else [*late, sent, sent]


class FakeRelay:
    """The fake. `passed` counts what went through, `sent` what came."""

    def __init__(self, run: Run, fault: Fault) -> None:
        self._run = run
        self._fault = fault
        self.sent = 0
        self.passed = 0
        self._end = threading.Event()
        self._told = json.loads(run.paths.endpoint.read_text())
        self._real = self._told["events_endpoint"].removeprefix("ipc://")
        self._fake = RunSockets.of(run.paths).directory / "relay.sock"
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> FakeRelay:
        self._thread.start()
        wait_until(self._ready.is_set, "the relay to publish")
        _replace(self._run.paths.endpoint, {**self._told, "events_endpoint": f"ipc://{self._fake}"})
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join(20)
        if self._run.paths.endpoint.exists():
            _replace(self._run.paths.endpoint, self._told)

    def _work(self) -> None:
        publisher = Publisher(self._fake)
        subscriber = Subscriber(self._real)
        poller = Poller()
        poller.register(subscriber)
        poller.register(publisher)
        self._ready.set()
        while not self._end.is_set():
            poller.wait(50)
            publisher.update()
            for publication in subscriber.drain():
                self.sent += 1
                for arriving in self._fault(publication):
                    self.passed += 1
                    publisher.publish(*arriving)
        subscriber.close()
        publisher.close()


def _replace(path: Path, document: object) -> None:
    fresh = path.with_suffix(".fake")
    fresh.write_text(json.dumps(document))
    fresh.chmod(path.stat().st_mode & 0o777)
    os.replace(fresh, path)
