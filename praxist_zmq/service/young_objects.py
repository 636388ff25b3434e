"""Keep the cycle collector to what is young, in a process whose history only grows.

What lives long in the broker holds no cycles and is freed by its counts. A full collection walks
all of it: over 20,000 jobs that took 62 ms in the middle of some peer's request, and over a burst
of submissions a third of the broker's time. Never turns the collector off.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 2_000
"""Made since the last look at the youngest; Python's own is 700."""


def watch_young() -> None:
    """From now on look for cycles among new objects only. What is there already stays as it is."""
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    gc.freeze()


def keep_rest() -> None:
    """Once a second or so: free the cycles among new objects, and look at the rest no more.

    Costs as much as there are new objects, some 20,000 at most: a millisecond.
    """
    gc.collect(1)
    gc.freeze()
