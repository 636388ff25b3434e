"""`bin/crash`: the crash campaign with as many seeds as there is patience for."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import strace
from .campaign import TARGETS, campaign
from .lease_points import LEASE_POINTS, QUICK_SUPPLY, play_lease_points
from .points import POINTS, play_point
from .run import Run, send


@contextlib.contextmanager
def fresh_run(name: str, slots: int = 3, settings: Sequence[str] = ()) -> Iterator[Run]:
    """A run that is up, in directories of its own; they are kept when something fails."""
    base = Path(tempfile.mkdtemp(prefix="pz-crash-", dir="/tmp"))
    for variable in [v for v in os.environ if v.startswith("PRAXIST_")]:
        if variable != "PRAXIST_ZMQ_VENV":
            del os.environ[variable]
    host = base / "h"
    host.mkdir(mode=0o700)
    os.environ.update(PRAXIST_ZMQ_RUNTIME_DIR=str(base), PRAXIST_ZMQ_HOST_DIR=str(host))
    run = Run(base / "of" / name, slots=slots, settings=settings)
    try:
        run.up()
        yield run
    except BaseException:
        print(f"kept: {base}", file=sys.stderr)
        raise
    else:
        shutil.rmtree(base, ignore_errors=True)
    finally:
        registry = run.processes().get("registry")
        if registry is not None:
            send(registry, signal.SIGTERM)
        run.close()


def main() -> int:
    """Play; the exit status."""
    parser = argparse.ArgumentParser(prog="bin/crash", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--rounds", type=int, default=20, help="how many seeds")
    parser.add_argument("--kills", type=int, default=12, help="kills a seed")
    parser.add_argument("--only", choices=["kills", "points", "leases"])
    options = parser.parse_args()
    if options.only in (None, "kills"):
        for seed in range(options.seed, options.seed + options.rounds):
            with fresh_run(f"seed-{seed}") as run:
                campaign(run, seed, TARGETS, options.kills)
            print(f"seed {seed}: {options.kills} kills, all right", flush=True)
    if strace.works() is not None:
        return 0
    for point in POINTS if options.only in (None, "points") else ():
        with fresh_run(point.name) as run:
            met = play_point(run, point, range(1, point.long + 1))
        print(f"{point.name}: {met} of {point.long} points met, all right", flush=True)
    for point, _ in LEASE_POINTS if options.only in (None, "leases") else ():
        with fresh_run(point.name, slots=2, settings=QUICK_SUPPLY) as run:
            met = play_lease_points(run, [(point, n) for n in range(1, point.long + 1)])
        print(f"lease, {point.name}: {met} of {point.long} points met, all right", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
