"""What is done to the runs of a round: kills, pauses, cleaners, full disks, dead namespaces.

Each is a function of the place and a seeded random source, does one thing, and gives a line that
tells what it did. Whatever has to come to an end by itself (a pause, a full disk) ends here.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from tests.support.campaign import TARGETS
from tests.support.run import Run, send

from .place import Place, can_box, until_box_serves

SERVICES = tuple(name for name in TARGETS if name != "all")
LOCKS = ("owner.lock", "ledger.lock", "launcher.lock")

Calamity = Callable[[Place, random.Random], str]


def rest(seconds: float) -> None:
    """Let the runs go on for a while: what happens meanwhile is the test."""
    threading.Event().wait(seconds)


def kill_one(place: Place, rng: random.Random) -> str:
    """SIGKILL of one process of ours."""
    run, name = rng.choice(place.runs), rng.choice(SERVICES)
    return f"kill {name} of {run.dir.name}: {run.kill(name)}"


def kill_all(place: Place, rng: random.Random) -> str:
    """SIGKILL of all processes of a run but its shims, at once or one after another."""
    run = rng.choice(place.runs)
    with_registry = rng.random() < 0.5
    found = run.processes()
    run.kill_all(rng if rng.random() < 0.5 else None, registry=with_registry)
    return f"kill all {len(found)} of {run.dir.name}, the registry too: {with_registry}"


def kill_shim(place: Place, rng: random.Random) -> str:
    """SIGKILL of a shim: nobody can know how its experiment ends."""
    run = rng.choice(place.runs)
    shims = {pid: names for pid, names in _shims(run).items() if names}
    if not shims:
        return "no shim to kill"
    pid = rng.choice(sorted(shims))
    place.lose(run, shims[pid])
    send(pid, signal.SIGKILL)
    return f"kill the shim of {sorted(shims[pid])} of {run.dir.name}"


def _shims(run: Run) -> dict[int, set[str]]:
    """The pid of each shim, and the attempt whose directory it holds."""
    found = {}
    for name, pid in run.processes().items():
        if name.startswith("shim:"):
            found[pid] = _attempts_held(run, pid)
    return found


def _attempts_held(run: Run, pid: int) -> set[str]:
    held = set()
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = link.readlink()
                if target.is_relative_to(run.paths.attempts):
                    held.add(target.relative_to(run.paths.attempts).parts[0])
    return held


def pause(place: Place, rng: random.Random) -> str:
    """SIGSTOP of one process of ours, and SIGCONT after a while."""
    run, name = rng.choice(place.runs), rng.choice(SERVICES)
    seconds = rng.choice([0.1, 0.5, 2.0, 4.0])
    pid = run.processes().get(name)
    if pid is None or not send(pid, signal.SIGSTOP):
        return f"no {name} of {run.dir.name} to pause"
    rest(seconds)
    send(pid, signal.SIGCONT)
    return f"pause {name} of {run.dir.name} for {seconds} s"


def clean_scope(place: Place, rng: random.Random) -> str:
    """Every file of the host scope is removed, as cleaners of old files do it."""
    host = str(place.runs[0].host_dir)
    subprocess.run(["find", host, "!", "-type", "d", "-delete"], check=False)
    return "remove all files of the host scope"


def clean_sockets(place: Place, rng: random.Random) -> str:
    """The sockets of all runs are removed."""
    subprocess.run(["find", str(place.base), "-type", "s", "-delete"], check=False)
    return "remove all sockets"


def clean_locks(place: Place, rng: random.Random) -> str:
    """A lock of a run is removed."""
    run, name = rng.choice(place.runs), rng.choice(LOCKS)
    (run.paths.scheduler / name).unlink(missing_ok=True)
    return f"remove {name} of {run.dir.name}"


def fill_disk(place: Place, rng: random.Random) -> str:
    """The disk of the second run is full for a while."""
    if place.small_disk is None:
        return "no small disk"
    filler = place.small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 65_536)
    seconds = rng.choice([0.5, 2.0])
    rest(seconds)
    filler.unlink(missing_ok=True)
    return f"the disk of two full for {seconds} s"


def box(place: Place, rng: random.Random) -> str:
    """The second run moves into a PID namespace, or its namespace dies."""
    run = place.runs[1]
    if place.box is not None:
        place.leave_box(run)
        return "the namespace of two dies"
    if not can_box():
        return "no namespaces here"
    run.cli("down")
    place.enter_box(run)
    until_box_serves(place, run)
    return "two moves into a namespace"


WEIGHTS: dict[Calamity, int] = {
    kill_one: 10,
    kill_all: 3,
    kill_shim: 2,
    pause: 5,
    clean_scope: 2,
    clean_sockets: 2,
    clean_locks: 2,
    fill_disk: 2,
    box: 3,
}
"""How often each comes, in relation to the others."""


def choose(rng: random.Random, names: frozenset[str]) -> Calamity:
    """The next calamity; `names` restricts the choice unless it is empty."""
    chosen = {c: w for c, w in WEIGHTS.items() if not names or c.__name__ in names}
    return rng.choices(list(chosen), list(chosen.values()))[0]
