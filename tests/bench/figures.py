"""What a measurement gives, and how it is shown: a table for people, a document for programs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `limit` and `ratio` None: there is nothing to compare with."""

    group: str
    name: str
    value: float
    unit: str
    limit: float | None = None
    limit_is: str = ""
    target: float | None = None
    """For the ratio, or for the value when `target_of` says so."""
    target_of: Literal["ratio", "value"] = "ratio"
    sense: Literal["least", "most"] = "least"
    """Whether the target is the least or the most that is wanted."""
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """The value over its limit."""
        return self.value / self.limit if self.limit else None

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without one."""
        got = self.ratio if self.target_of == "ratio" else self.value
        if self.target is None or got is None:
            return None
        return got >= self.target if self.sense == "least" else got <= self.target


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.floor(share * len(ordered)))]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Least, middle and greatest of several runs."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def number(value: float | None) -> str:
    """Three or four digits that count."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    sign = ">=" if figure.sense == "least" else "<="
    what = "x" if figure.target_of == "ratio" else f" {figure.unit}"
    verdict = "met" if figure.met else "MISSED"
    return f"{sign} {number(figure.target)}{what} {verdict}"


def table(figures: Sequence[Figure]) -> str:
    """The figures, one a line."""
    rows = [("", "measured", "", "limit", "ratio", "target", "the limit is")]
    rows += [
        (
            f"{f.group}: {f.name}",
            number(f.value),
            f.unit,
            number(f.limit),
            number(f.ratio),
            _target(f),
            f.limit_is,
        )
        for f in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(7)]
    right = (1, 3, 4)
    return "\n".join(
        "  ".join(
            text.rjust(widths[column]) if column in right else text.ljust(widths[column])
            for column, text in enumerate(row)
        ).rstrip()
        for row in rows
    )


def as_json(figure: Figure) -> dict[str, Any]:
    """The figure with what follows from it."""
    return {**asdict(figure), "ratio": figure.ratio, "met": figure.met}
