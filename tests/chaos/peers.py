"""Peers of a round of chaos: they submit short experiments, cancel a few, and lose terminals."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import threading
from dataclasses import dataclass, field

from praxist_zmq.errors import PraxistError
from tests.support.run import Run

from .place import DEMANDS

TERMINAL_CODES_WRONG = frozenset({1, 120, 134, -6, -11})
"""Exit statuses of `launch` that tell of a fault of ours, whatever became of the terminal."""


@dataclass
class Peer:
    """One peer of one run, until it is told to end."""

    run: Run
    seed: int
    codes: dict[str, int] = field(default_factory=dict)
    """Tag to the exit status that its experiment ends with."""
    cancelled: set[str] = field(default_factory=set)
    terminals: set[str] = field(default_factory=set)
    """Tags of `launch` on a terminal that went away: maybe never submitted."""
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._end = threading.Event()
        self._launches: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        number = 0
        while not self._end.is_set():
            tag = f"{self.run.dir.name}-{number}"
            try:
                done = self._vanish(tag) if self._rng.random() < 0.08 else self._submit(tag)
            except PraxistError as error:
                done = False
                if not (error.row.retryable or error.code in ("no_scheduler", "not_running")):
                    self.faults.append(f"{tag}: {error}")
                    return
            except AssertionError as error:
                self.faults.append(str(error))
                return
            number += done
            self._end.wait(self._rng.random() * 0.4)

    def _shape(self, tag: str) -> tuple[str, int, list[str]]:
        """Profile, exit status and actions of an experiment, the same each time for one tag."""
        rng = random.Random(f"{self.seed} {tag}")
        profile = rng.choice([name for name in DEMANDS for _ in range(1 if name == "gpu" else 2)])
        code = rng.choice([0, 0, 0, 3])
        length = rng.choice([50, 300, 300, 1200, 2500])
        return profile, code, ["end-on-term", f"pause:{length}", f"exit:{code}"]

    def _submit(self, tag: str) -> bool:
        profile, code, actions = self._shape(tag)
        with self.run.client(timeout_s=3.0) as client:
            result = self.run.submit(client, tag, *actions, profile=profile)
            self.codes[tag] = code
            if self._rng.random() < 0.05:
                self.cancelled.add(tag)
                self._end.wait(self._rng.random())
                with contextlib.suppress(PraxistError):  # it may have ended, or nobody answers
                    client.cancel(result.job.job, running=True)
        return True

    def _vanish(self, tag: str) -> bool:
        """`launch` on a terminal that goes away while it waits."""
        profile, code, actions = self._shape(tag)
        words = [
            "launch", "--peer", "p1", "--tag", tag, "--profile", profile, "--",
            *self.run.evaluator(*actions),
        ]  # fmt: skip
        master, slave = os.openpty()
        process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *self.run.words(*words)],
            stdin=slave, stdout=slave, stderr=slave, env=self.run.environment,
            cwd=self.run.dir.parent,
        )  # fmt: skip
        os.close(slave)
        self._end.wait(self._rng.random() * 1.5)
        os.close(master)
        self.terminals.add(tag)
        self.codes[tag] = code
        self._launches.append((tag, process))
        return True

    def finish(self) -> list[str]:
        """Submit no more; what went wrong."""
        self._end.set()
        self._thread.join(timeout=60)
        if self._thread.is_alive():
            self.faults.append(f"{self.run.dir.name}: a peer's request never came back")
        return self.faults

    def launches_ended(self) -> list[str]:
        """Once all experiments have ended: how each `launch` without a terminal ended."""
        faults = []
        for tag, process in self._launches:
            try:
                status = process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                faults.append(f"{tag}: launch went on after its experiment had ended")
                continue
            if status in TERMINAL_CODES_WRONG:
                faults.append(f"{tag}: launch without its terminal ended with {status}")
        return faults
