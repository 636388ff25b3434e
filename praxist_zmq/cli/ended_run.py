"""How the scheduler of a run ended, for `status` when nothing serves it, and what comes next.

Told from what each kind of end leaves: a stop leaves the shutdown sentinel; an orderly end removes
`endpoint.json` and the sockets' `run.json`, a kill leaves either. Changes nothing, decides nothing.
"""

from __future__ import annotations

import os

from ..errors import PraxistError
from ..host.paths import RunPaths, RunSockets
from ..protocol.envelope import Json
from ..service.owner import find_owner
from ..service.stop_status import ENDED_BY_STOP
from .small_file import read_small
from .words import count, local_time, parse_stamp

SENTINEL_BYTES_MAX = 4096


def how_it_ended(run: RunPaths) -> str | None:
    """A sentence, with the next command; None where a scheduler lives, never was, or gave up and
    left why."""
    if not run.ledger.is_dir() or _is_served(run):
        return None
    if run.shutdown_fence.is_file():
        return f"stopped{_since(run)}: {run.shutdown_fence.name} is there; " + _next(
            "opens it again"
        )
    if run.last_failure.exists():
        return None
    if run.endpoint.exists() or RunSockets.of(run).announcement.exists():
        return "the scheduler was killed; " + _next("takes up what it left")
    return "the scheduler was ended in order; " + _next("adopts what still runs")


def ended_by_stop(status: Json) -> str | None:
    """What a stop ended while no scheduler could record it."""
    number = status.get(ENDED_BY_STOP)
    if not isinstance(number, int) or number < 1:
        return None
    noun = count(number, "experiment was", "experiments were")
    return f"{noun} ended by the stop; the next `up` records the outcome"


def _next(what: str) -> str:
    return f"`praxist-zmq up` {what}"


def _is_served(run: RunPaths) -> bool:
    try:
        owner = find_owner(run)
    except PraxistError:
        return True  # held by whom we cannot see: then nothing is said of its end
    if owner is None:
        return False
    os.close(owner.pidfd)
    return True


def _since(run: RunPaths) -> str:
    """When a stop wrote it; nothing for a sentinel that somebody else put there."""
    try:
        content = read_small(run.shutdown_fence, SENTINEL_BYTES_MAX)
    except (OSError, PraxistError):
        return ""
    written = content.decode("utf-8", "replace").strip()
    return f" at {local_time(written)}" if parse_stamp(written) is not None else ""
