"""Who starts the experiment of a `launch`: the run's scheduler, or in legacy mode the peer itself.

A run that has, or ever had, a scheduler has its `resource_scheduler` folder: no variable, option
or file downgrades it. Without one the peer may start it only when legacy mode is named and nothing
names another; blank names central. Reads, changes nothing. Standard library only, but for a
contract that is named.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

from ..errors import PraxistError
from ..host.paths import RunPaths
from .run_selection import live_runs

MODE_VARIABLE = "PRAXIST_RESOURCE_SCHEDULER_MODE"
CONFIG_VARIABLE = "PRAXIST_EXPERIMENT_SCHEDULER_CONFIG"
ENDPOINT_VARIABLE = "PRAXIST_EXPERIMENT_SCHEDULER_ENDPOINT"
LEGACY = "legacy"

Route = Literal["scheduler", "peer"]


def route(run: RunPaths, contract: str | None) -> Route:
    """Who starts what is launched into `run`; `contract` is a task file that was named.

    Raises `no_scheduler` when central mode is named and nothing serves the run, and what the
    reading of the contract raises.
    """
    if os.path.lexists(run.scheduler):
        return "scheduler"
    named = _modes()
    if contract is not None:
        named.append((contract, _mode_of_file(contract)))
    if not named:
        return "scheduler"
    for source, mode in named:
        if mode.strip().lower() != LEGACY:
            raise PraxistError(
                "no_scheduler",
                f"{source} asks for one ({mode[:40]!r}), and none serves {run.run_dir}",
            )
    # Somebody may have taken the folder away under a scheduler that lives.
    return "scheduler" if run.run_dir in live_runs() else "peer"


def _modes() -> list[tuple[str, str]]:
    """What the environment says about the mode: (variable, mode)."""
    found = []
    mode = os.environ.get(MODE_VARIABLE)
    if mode is not None:
        found.append((MODE_VARIABLE, mode))
    config = os.environ.get(CONFIG_VARIABLE)
    if config is not None:
        told = _mode_of_json(config)
        if told is not None:
            found.append((CONFIG_VARIABLE, told))
    endpoint = os.environ.get(ENDPOINT_VARIABLE, "").strip()
    if endpoint:
        found.append((ENDPOINT_VARIABLE, endpoint))
    return found


def _mode_of_json(text: str) -> str | None:
    """The mode in a JSON object; None when it names none. What can't be read is not legacy."""
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return "unreadable"
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        return "no object"
    modes = [value for key, value in pairs if key == "mode"]
    if not modes:
        return None if pairs or text.strip() == "{}" else "no object"
    return str(modes[0]) if len(modes) == 1 else "named twice"


def _mode_of_file(file: str) -> str:
    from ..service.policy_file import check_file, invalid

    path = Path(file)
    check = check_file(path)
    if check.policy is None:
        raise invalid(path, check.errors)
    return check.policy.mode
