"""`bin/chaos`: rounds of chaos, one seed each, for as long as one likes."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter

from .calamities import WEIGHTS
from .campaign import play


def main() -> int:
    """Play; the exit status."""
    parser = argparse.ArgumentParser(prog="bin/chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--minutes", type=float, default=30, help="how long")
    parser.add_argument("--calamities", type=int, default=60, help="how many a round")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[calamity.__name__ for calamity in WEIGHTS],
        help="one kind of calamity (repeatable)",
    )
    options = parser.parse_args()
    until = time.monotonic() + options.minutes * 60
    total: Counter[str] = Counter()
    for seed in itertools.count(options.seed):
        print(f"seed {seed}", flush=True)
        total += play(
            seed,
            options.calamities,
            frozenset(options.only),
            lambda line: print(f"  {line}", flush=True),
            keep=True,
        )
        if time.monotonic() >= until:
            break
    print(f"all right: {dict(total)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
