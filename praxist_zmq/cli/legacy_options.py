"""The options of a `launch` that only count where the peer starts the experiment itself.

Where a scheduler serves the run they are accepted and change nothing, because callers pass them
without knowing. Standard library and click only.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import click

from ..errors import PraxistError
from .duration import DURATION
from .settings import CallableT

CAP_VARIABLE = "PRAXIST_MAX_PARALLEL_RUNS_PER_PEER"
CAP_MAX = 1_000_000
POLL_S = 2.0
_NUMBER = re.compile(r"[0-9]{1,7}")


@dataclass(frozen=True, slots=True)
class LegacyOptions:
    """As typed. `poll` is seconds."""

    config: str | None
    allow_duplicate: bool
    max_active: int | None
    poll: float


def legacy_options(function: CallableT) -> CallableT:
    """Decorator: the options of legacy mode on a `launch`."""
    for option in reversed((_CONFIG, allow_duplicate, max_active, poll)):
        function = option(function)
    return function


_CONFIG = click.option(
    "--config",
    metavar="FILE",
    help="Contract of a run that never had a scheduler: with mode legacy the peer starts it.",
)
allow_duplicate = click.option(
    "--allow-duplicate", is_flag=True, help="Legacy mode: also when the tag already runs."
)
max_active = click.option(
    "--max-active",
    type=click.IntRange(1, CAP_MAX),
    metavar="N",
    help=f"Legacy mode: this peer's cap; else {CAP_VARIABLE}, else none.",
)
poll = click.option(
    "--poll",
    type=DURATION,
    default=POLL_S,
    metavar="DUR",
    help="Legacy mode: between looks while it waits [2s].",
)


def cap(typed: int | None) -> int | None:
    """The peer's cap: what was typed, else the environment's; None is none. Raises `usage`."""
    if typed is not None:
        return typed
    value = os.environ.get(CAP_VARIABLE, "").strip()
    if not value:
        return None
    if not _NUMBER.fullmatch(value) or not 1 <= int(value) <= CAP_MAX:
        raise PraxistError("usage", f"{CAP_VARIABLE} must be a number from 1, not {value[:40]!r}")
    return int(value)
