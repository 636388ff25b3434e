"""One round of chaos from one seed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

from tests.support.campaign import ensure_up

from .calamities import choose, rest
from .judge import judge
from .peers import Peer
from .place import fresh_place


def play(
    seed: int,
    calamities: int,
    names: frozenset[str] = frozenset(),
    tell: Callable[[str], None] = lambda line: None,
    *,
    keep: bool = False,
) -> Counter[str]:
    """Do `calamities` things to two runs under load, then judge. How often each was done.

    A failure names the seed and, with `keep`, leaves the files.
    """
    rng = random.Random(seed)
    done: Counter[str] = Counter()
    began = time.monotonic()
    with fresh_place(seed, keep=keep) as place:
        peers = [Peer(run, seed * 2 + number) for number, run in enumerate(place.runs)]
        try:
            for _ in range(calamities):
                rest(rng.random() * 0.8)
                chosen = choose(rng, names)
                said = chosen(place, rng)
                done[chosen.__name__] += 1
                tell(f"{time.monotonic() - began:6.1f} s  {said}")
                if rng.random() < 0.7:  # else the next one hits a run that is still coming back
                    for run in place.runs:
                        ensure_up(run)
            if place.box is not None:
                place.leave_box(place.runs[1])
            judge(place, peers)
        except AssertionError as error:
            logs = "\n".join(run.service_logs() for run in place.runs)
            raise AssertionError(f"seed {seed}: {error}\n{logs}") from error
        finally:
            for peer in peers:
                peer.finish()
        tell(f"{sum(len(peer.codes) for peer in peers)} experiments, all right")
    return done
