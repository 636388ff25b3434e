"""`bin/simulate`: as many seeds as there is patience for, or one of them again."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from . import world
from .coverage import RARE, USUAL, met

CHUNK = 25


def chunk(first: int, count: int) -> tuple[Counter[str], list[str]]:
    """Play some seeds: what they met, and what failed, in words."""
    found: Counter[str] = Counter()
    failed = []
    for seed in range(first, first + count):
        try:
            found += met(world.play(seed))
        except world.BrokenPromise as error:
            failed.append(str(error))
    return found, failed


def chunks(first: int, seeds: int) -> Iterator[tuple[int, int]]:
    """(first, count) of each part of the work."""
    for start in range(first, first + seeds, CHUNK):
        yield start, min(CHUNK, first + seeds - start)


def many(first: int, seeds: int, jobs: int) -> int:
    """Play `seeds` seeds from `first`; the exit status."""
    found: Counter[str] = Counter()
    failures = done = 0
    with ProcessPoolExecutor(jobs) as pool:
        parts = list(chunks(first, seeds))
        for more, failed in pool.map(chunk, *zip(*parts, strict=True)):
            found += more
            failures += len(failed)
            done += CHUNK
            for words in failed:
                print(words, flush=True)
            if done % 500 == 0:
                print(f"{min(done, seeds)} of {seeds} seeds, {failures} failed", flush=True)
    for name in (*USUAL, *RARE):
        print(f"{found[name]:>7}  {name}")
    print(f"{seeds} seeds from {first}: {failures} failed")
    return 1 if failures else 0


def one(seed: int, steps: int) -> int:
    """Play one seed, and tell what it met; the exit status."""
    world.STEPS_SHOWN = steps
    try:
        found = world.play(seed)
    except world.BrokenPromise as error:
        print(error)
        return 1
    print(f"seed {seed} is all right: {', '.join(sorted(met(found)))}")
    print(f"its history: {found.digest()}")
    return 0


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="bin/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many (10000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seed", type=int, help="play this one, and no other")
    parser.add_argument("--steps", type=int, default=world.STEPS_SHOWN, help="steps that are told")
    options = parser.parse_args()
    if options.seed is not None:
        return one(options.seed, options.steps)
    return many(options.first, options.seeds, max(1, options.jobs))


if __name__ == "__main__":
    sys.exit(main())
