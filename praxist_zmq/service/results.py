"""The reader of a task's own result store: asks the task's command, tells the broker.

A process of its own, only where a run has such a command: it may hang, fail or print nonsense, and
none of that reaches the broker's loop. It decides nothing and takes nothing back: a result that is
no longer printed stays published, and a failure is told as a warning. Every line that the command
prints is one result:

    {"tag": "mixup/seed0", "peer": "gen3_peer1", "mature": true, "generation": 3}

Source: seed 000 "Mature Evidence" (the task's canonical result store); docs/generations.md.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from itertools import islice

from pydantic import ValidationError

from ..host.bounded_run import CommandOutput, run_bounded
from ..host.clock import Clock, SystemClock
from ..host.signal_pipe import SignalPipe
from ..ledger.files import read_limited
from ..protocol.codec import encode, explain
from ..protocol.reports import StoreRead, StoreResult
from ..transport.link import LinkClient
from ..transport.poller import Poller
from .child_config import ChildConfig, report_ready, serve_child, supervisor_gone

CHANNEL = b"results"
INTERVAL_MS = 5_000
TIME_MS = 10_000
OUT_BYTES_MAX = 1024 * 1024
RESULTS_A_MESSAGE = 500
ROUNDS_UNTIL_ALL_AGAIN = 12
"""A broker that was killed may have lost what it was told; so all is told again once a minute."""
STATUS_BYTES_MAX = 4 * 1024 * 1024
STDIN = 0


def understand(out: bytes) -> tuple[list[StoreResult], str | None]:
    """The results in what a command printed, and the first line that is none."""
    found: list[StoreResult] = []
    problem: str | None = None
    for number, line in enumerate(out.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            found.append(StoreResult.model_validate_json(line))
        except ValidationError as error:
            problem = problem or f"line {number} of what it printed: {explain(error)}"
    return found, problem


class StoreReader:
    """Runs the command again and again, and says what is new."""

    def __init__(self, config: ChildConfig, clock: Clock) -> None:
        assert config.results is not None
        self._command = config.results
        self._status = config.run.status
        self._environment = {**os.environ, "PRAXIST_RUN_DIR": config.run_dir}
        self._clock = clock
        self._told: set[StoreResult] = set()
        self._rounds = 0

    def wanted(self) -> bool:
        """Whether a generation that may still get evidence is the current one, by the broker's
        derived view; what cannot be read says yes."""
        try:
            view = json.loads(read_limited(self._status, STATUS_BYTES_MAX))
            return bool(view["generation"]["state"] != "closed")
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return True

    def tell_all(self) -> None:
        """The broker may be another one: it is told everything with the next round."""
        self._told.clear()

    def read(self) -> Iterator[StoreRead]:
        """One round. Nothing when the supervisor went away meanwhile."""
        done = run_bounded(
            self._command.command,
            cwd=self._command.cwd,
            environment=self._environment,
            time_ms=TIME_MS,
            out_bytes_max=OUT_BYTES_MAX,
            until=STDIN,
            clock=self._clock,
        )
        if done is not None:
            yield from self._tell(done)

    def _tell(self, done: CommandOutput) -> Iterator[StoreRead]:
        whole = done.out if done.problem is None else done.out.rpartition(b"\n")[0]
        found, problem = understand(whole)
        problem = done.problem or problem
        self._rounds += 1
        if self._rounds % ROUNDS_UNTIL_ALL_AGAIN == 0:
            self._told.clear()
        fresh = [one for one in found if one not in self._told]
        self._told.update(fresh)
        pieces = list(_pieces(fresh)) or [()]
        for piece in pieces:
            yield StoreRead(results=piece, problem=problem and problem[:500])


def _pieces(results: Iterable[StoreResult]) -> Iterator[tuple[StoreResult, ...]]:
    rest = iter(results)
    while piece := tuple(islice(rest, RESULTS_A_MESSAGE)):
        yield piece


def _body(config: ChildConfig) -> int:
    clock = SystemClock()
    signals = SignalPipe()
    link = LinkClient(config.core, config.secret_bytes, clock.mono_ms)
    poller = Poller()
    for item in (STDIN, signals, link):
        poller.register(item)
    reader = StoreReader(config, clock)
    report_ready(config)
    due_ms = clock.mono_ms()
    try:
        while True:
            ready = poller.wait(max(0, due_ms - clock.mono_ms()))
            if STDIN in ready and supervisor_gone(STDIN):
                return 0
            if signals in ready and "end" in signals.drain():
                return 0
            if link.take().anew:
                reader.tell_all()
            if clock.mono_ms() < due_ms:
                continue
            if reader.wanted():
                for told in reader.read():
                    if not link.send(CHANNEL, [encode(told)]):
                        logging.getLogger(__name__).warning("the broker is away")
            due_ms = clock.mono_ms() + INTERVAL_MS
    finally:
        link.close()
        signals.close()


def main() -> None:
    """`python -m praxist_zmq.service.results`, started by the supervisor."""
    serve_child("results", _body)


if __name__ == "__main__":
    main()
