"""`bin/bench`: measure, print a table, write JSON. Fails only when something breaks."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import footprint, launches, leases, machine, packing, submissions
from tests.bench.figures import Figure, as_json, table
from tests.bench.place import Place, place

MEASUREMENTS: dict[str, Callable[..., list[Figure]]] = {
    "submissions": submissions.accepted,
    "ack": submissions.acknowledged,
    "start": launches.started,
    "jobs": launches.finished,
    "lease": leases.woken,
    "decision": machine.decided,
    "packing": packing.packed,
    "replay": machine.replayed,
    "footprint": footprint.held,
}


def main() -> int:
    """Measure what was asked for."""
    options = _options()
    names = options.only or list(MEASUREMENTS)
    figures: list[Figure] = []
    began = time.monotonic()
    load = os.getloadavg()
    with place() as here:
        for name in names:
            figures += _one(name, here, quick=options.quick)
    if options.quick:
        print("quick: fewer and smaller runs, so the figures are rougher")
    print(table(figures))
    cores = os.cpu_count() or 1
    if load[0] > cores / 2:
        print("The machine was busy: our processes hand over to each other and suffer more of it")
        print("than a limit in one process does. Repeat on a quiet machine.")
    print(f"{time.monotonic() - began:.0f} s; load average before {load[0]:.1f}")
    if options.json:
        document = {
            "format_version": "1.0",
            "kind": "bench",
            "quick": options.quick,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "cores": os.cpu_count(),
            "load_before": load,
            "load_after": os.getloadavg(),
            "figures": [as_json(figure) for figure in figures],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def _one(name: str, here: Place, *, quick: bool) -> list[Figure]:
    print(f"bench: {name} ...", file=sys.stderr, flush=True)
    return MEASUREMENTS[name](here, quick=quick)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bin/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute, rougher")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument(
        "--only", action="append", choices=list(MEASUREMENTS), help="this one (repeatable)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
