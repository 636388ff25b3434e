"""Durations as people type them: `900`, `900s`, `15m`, `1h30m`, `2d`.

Standard library and click only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

DURATION_SECONDS_MAX = 31_536_000.0
_PLAIN = re.compile(r"^[0-9]{1,9}(\.[0-9]{1,3})?s?$")
_PARTS = re.compile(
    r"^(?=.)(?:(\d{1,5})d)?(?:(\d{1,6})h)?(?:(\d{1,7})m)?(?:(\d{1,9})s)?$", re.ASCII
)


def parse_duration(text: str) -> float:
    """Seconds. Raises ValueError with a sentence that says what a duration looks like."""
    stripped = text.strip().lower()
    if _PLAIN.match(stripped):
        seconds = float(stripped.removesuffix("s"))
    else:
        match = _PARTS.match(stripped)
        if match is None:
            raise ValueError(f"{text[:40]!r} is not a duration; write 900, 900s, 15m or 1h30m")
        sizes = (86_400, 3600, 60, 1)
        seconds = float(
            sum(int(part or 0) * size for part, size in zip(match.groups(), sizes, strict=True))
        )
    if seconds > DURATION_SECONDS_MAX:
        raise ValueError(f"{text[:40]!r} is more than a year")
    return seconds


if TYPE_CHECKING:
    _FloatType = click.ParamType[float]
else:
    _FloatType = click.ParamType  # generic only since click 8.2


class DurationType(_FloatType):
    """A duration option; the value is seconds."""

    name = "duration"

    def __init__(self, *, positive: bool = True) -> None:
        self._positive = positive

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds of what was typed; a usage error when it is none."""
        if isinstance(value, float):
            return value
        try:
            seconds = parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if self._positive and seconds <= 0:
            self.fail("must be more than zero", param, ctx)
        return seconds


DURATION = DurationType()
DURATION_OR_ZERO = DurationType(positive=False)
