"""What may go wrong in one seed, and how often: named chances, drawn once from the seed."""

from __future__ import annotations

from random import Random

CHANCES = {
    # of a process, at each of its commits or sends
    "killed before a sync": 0.004,
    "killed after a sync": 0.004,
    "killed between sends": 0.002,
    # of a message
    "slow": 0.03,
    "late after a cut": 0.5,
    "full": 0.01,
    "lost": 0.01,
    "sample lost": 0.05,
    "publication lost": 0.2,
    "publication twice": 0.1,
    "publication late": 0.1,
    "request twice": 0.05,
    # of an attempt
    "no spawn": 0.06,
    "no exec": 0.03,
    "escapees": 0.2,
    "stubborn": 0.2,
    "shim killed": 0.03,
}
"""Name -> the usual chance."""

CALAMITIES = (
    "kill broker", "kill broker", "kill broker", "kill registry", "kill launcher", "kill supply",
    "kill gateway", "stall broker", "stall registry", "cut launcher", "cut registry", "cut gateway",
    "cut supply", "part registry", "wall clock", "foreign load", "blind sampler", "silent sampler",
    "foreign load", "device lost", "pressure", "kill pair", "power cut", "snapshot", "close file",
)  # fmt: skip


class Faults:
    """The chances of a seed. Nothing is drawn once they are off."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.on = True
        level = rng.choice((0.0, 0.5, 1.0, 1.0, 3.0))
        self.level = level
        self.chances = {
            name: min(0.9, usual * level * rng.choice((0, 1, 1, 2)))
            for name, usual in CHANCES.items()
        }
        self.met: dict[str, int] = {}
        """What went wrong, and how often."""

    def hits(self, name: str) -> bool:
        """Whether it goes wrong this time."""
        if not self.on:
            return False
        chance = self.chances[name]
        if not chance or self._rng.random() >= chance:
            return False
        self.met[name] = self.met.get(name, 0) + 1
        return True
