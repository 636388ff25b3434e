"""A campaign: jobs come and go while processes of ours are killed; then everything must be right.

One seed gives one order of kills and delays. `bin/crash` plays many, the tests a few.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

from praxist_zmq.errors import PraxistError

from . import oracle
from .run import Run
from .wait import wait_until

TARGETS = (
    "supervisor",
    "broker",
    "gateway",
    "launcher",
    "zygote",
    "sampler",
    "supply",
    "registry",
    "all",
)
SHAPES = (
    (0, ("exit:0",)),
    (3, ("pause:400", "exit:3")),
    (0, ("codes:75,0",)),
    (75, ("pause:100", "exit:75")),
    (0, ("pause:1500", "say:done", "exit:0")),
    (5, ("close-stdio", "exit:5")),
)
"""Exit code that counts in the end, and what the experiment does."""


@dataclass
class Load:
    """A peer that submits short experiments until it is told to end; unanswered ones again."""

    run: Run
    seed: int
    limit: int = 40
    codes: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        number = 0
        pause = random.Random(self.seed)
        while not self._end.is_set() and number < self.limit:
            tag, (code, actions) = f"s{self.seed}-{number}", SHAPES[number % len(SHAPES)]
            if self._submit(tag, *actions):
                self.codes[tag] = code
                number += 1
            self._end.wait(pause.random() * 0.15)

    def _submit(self, tag: str, *actions: str) -> bool:
        try:
            with self.run.client(timeout_s=3.0) as client:
                self.run.submit(client, tag, *actions)
        except PraxistError as error:
            if not (error.row.retryable or error.code == "no_scheduler"):
                self.faults.append(f"{tag}: {error}")
                self._end.set()
            return False
        except AssertionError as error:
            self.faults.append(str(error))
            return False
        return True

    def finish(self) -> None:
        """No more; fails with what went wrong."""
        self._end.set()
        self._thread.join(timeout=30)
        assert not self.faults, self.faults


def ensure_up(run: Run) -> None:
    """Bring the scheduler back, if it is down or gave up under the kills."""

    def serves() -> bool:
        if "supervisor" not in run.processes():
            command = run.try_up()
            if command.status != 0:
                return False
        return run.answers(timeout_s=2.0)

    wait_until(serves, f"the scheduler to serve\n{run.service_logs()}", 45)


def strike(run: Run, target: str, rng: random.Random) -> None:
    """One kill."""
    if target == "all":
        run.kill_all(rng, registry=rng.random() < 0.5)
    else:
        run.kill(target)


def campaign(run: Run, seed: int, targets: tuple[str, ...], rounds: int) -> None:
    """Kill `rounds` times while jobs queue, start, run and end; then everything must be right.

    The run must be up. A failed check names the seed.
    """
    rng = random.Random(seed)
    load = Load(run, seed)
    try:
        for _ in range(rounds):
            target = rng.choice(targets)
            pause = threading.Event()
            pause.wait(rng.random() * 0.6)
            strike(run, target, rng)
            ensure_up(run)
    finally:
        load.finish()
    try:
        finish(run, load.codes)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n{run.service_logs()}") from error


def finish(run: Run, codes: dict[str, int], secrets: tuple[bytes, ...] = ()) -> None:
    """Every job ends once, with its own code; then the oracle."""
    ensure_up(run)
    with run.client(timeout_s=60.0) as client:
        for tag, code in codes.items():
            job = client.wait(f"tag:{tag}", 40)
            wanted = ("completed" if code == 0 else "failed", code)
            assert (job.state, job.exit_code) == wanted, (tag, wanted, job)
    run.down()
    oracle.check_ended(run, secrets=secrets)
