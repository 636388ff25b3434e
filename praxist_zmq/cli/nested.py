"""A launch from inside an attempt: a plain child in the allocation that is there already.

The environment names the attempt, and is only a hint: the scheduler decides. Whatever keeps it
from saying yes leaves an ordinary submission. Standard library only.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import PraxistError
from ..host.paths import RunPaths
from ..protocol.envelope import Json
from .connect import Caller, ask
from .settings import Settings

ASK_BOUND_S = 4.0
ATTEMPT = "PRAXIST_EXPERIMENT_ATTEMPT_ID"
DIRECTORY = "PRAXIST_EXPERIMENT_ATTEMPT_DIR"
ATTEMPT_CHARACTERS_MAX = 64


def enclosing_attempt(client: Caller, settings: Settings) -> Json | None:
    """What is to be said of the attempt that the environment names; None when it names none.
    `inside` tells whether we are part of it, by the scheduler's word."""
    attempt, directory = os.environ.get(ATTEMPT), os.environ.get(DIRECTORY)
    if not attempt or not directory or settings.run is None:
        return None
    if len(attempt) > ATTEMPT_CHARACTERS_MAX:
        return None
    if directory != str(RunPaths(Path(settings.run)).attempt(attempt)):
        return _outside(attempt, "the directory is not that attempt's in this run")
    request = {"kind": "validate_attempt", "attempt": attempt, "attempt_directory": directory}
    try:
        return ask(client, request, min(settings.timeout_s, ASK_BOUND_S))
    except PraxistError as error:
        return _outside(attempt, str(error))


def _outside(attempt: str, reason: str) -> Json:
    return {"inside": False, "attempt": attempt, "job": None, "reason": reason}
