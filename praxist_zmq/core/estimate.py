"""How long an experiment will really run, learnt from those that ended well.

The ratio of wall time to the declared run time is taken as log-normal, with a neutral prior that
keeps the first few from counting for too much. A profile uses its own ratios once it has two, and
those of all profiles before that. What declares no run time stays unknown.
Source: seed 000 "Mature Evidence And Idle Supply Feedback"; the reference of the original system,
"ETA calibration" (newest 128; mean = sum/(n+2); spread 0.8 below two, else 0.2 to 1.25).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist

KEPT = 128
OWN_MIN = 2
PRIOR_WEIGHT = 2
PRIOR_SPREAD = 0.8
SPREAD_MIN, SPREAD_MAX = 0.2, 1.25
RATIO_MAX = math.log(1000.0)
"""A wall clock that jumped must not spoil the whole pool."""
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class RunTime:
    """The distribution of one experiment's wall time."""

    median_ms: float
    spread: float

    def remaining_ms(self, elapsed_ms: float, share: float) -> float:
        """After `elapsed_ms` without an end: `share` of such experiments end within this time."""
        passed = self._cdf(elapsed_ms)
        point = passed + share * (1.0 - passed)
        if point >= 1.0 - 1e-12:
            # Beyond all that was ever seen: as long again as it has taken.
            return elapsed_ms * share
        return max(0.0, self._quantile(point) - elapsed_ms)

    def within(self, available_ms: float) -> float:
        """The probability that it ends within so long from its start."""
        return 0.0 if available_ms <= 0 else self._cdf(available_ms)

    def _cdf(self, at_ms: float) -> float:
        if at_ms <= 0:
            return 0.0
        return _NORMAL.cdf(math.log(at_ms / self.median_ms) / self.spread)

    def _quantile(self, share: float) -> float:
        if share <= 0.0:
            return 0.0
        return self.median_ms * math.exp(self.spread * _NORMAL.inv_cdf(share))


@dataclass(slots=True)
class Calibration:
    """Logarithms of wall time over declared run time, newest last."""

    pool: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    profiles: dict[str, deque[float]] = field(default_factory=dict)
    learnt: int = field(default=0, compare=False)
    """Grows with every ending that changes a distribution."""
    fits: dict[str, tuple[float, float]] = field(default_factory=dict, compare=False)
    """By profile, until the next ending: (shift, spread). A fit walks all that is kept."""

    @classmethod
    def restored(
        cls, pool: Iterable[float], profiles: Mapping[str, Iterable[float]]
    ) -> Calibration:
        """The calibration that these figures were taken from."""
        return cls(
            deque(pool, maxlen=KEPT),
            {name: deque(ratios, maxlen=KEPT) for name, ratios in profiles.items()},
        )

    def observe(self, profile: str, eta_ms: int | None, wall_ms: int) -> None:
        """An experiment that declared `eta_ms` ended well after `wall_ms`."""
        if eta_ms is None or eta_ms <= 0 or wall_ms <= 0:
            return
        ratio = min(RATIO_MAX, max(-RATIO_MAX, math.log(wall_ms / eta_ms)))
        self.learnt += 1
        self.fits.clear()
        self.pool.append(ratio)
        self.profiles.setdefault(profile, deque(maxlen=KEPT)).append(ratio)

    def run_time(self, profile: str, eta_ms: int | None) -> RunTime | None:
        """The distribution for a job; None when it declares no run time."""
        if eta_ms is None or eta_ms <= 0:
            return None
        fit = self.fits.get(profile)
        if fit is None:
            own = self.profiles.get(profile, ())
            fit = self.fits[profile] = _fit(own if len(own) >= OWN_MIN else self.pool)
        shift, spread = fit
        return RunTime(eta_ms * math.exp(shift), spread)

    @property
    def observed(self) -> int:
        """How many endings it rests on."""
        return len(self.pool)


def _fit(ratios: Iterable[float]) -> tuple[float, float]:
    values = list(ratios)
    shift = sum(values) / (len(values) + PRIOR_WEIGHT)
    if len(values) < OWN_MIN:
        return shift, PRIOR_SPREAD
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    return shift, min(SPREAD_MAX, max(SPREAD_MIN, deviation))
