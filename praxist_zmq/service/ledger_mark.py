"""What a run remembers of its ledger beside it, so that a lost one is not begun anew in silence.

The mark names the last epoch that began. Written at starts only, so it costs no record anything.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ..errors import PraxistError
from ..host.paths import RunPaths
from ..ledger import segment
from ..ledger.files import read_limited, write_atomically
from ..ledger.snapshot import NAME

_BYTES_MAX = 4_096


def leave_mark(run: RunPaths, epoch: int) -> None:
    """Remember that `epoch` began. Raises `no_space`, `path_unusable`, `unsafe_path`."""
    body = json.dumps({"format_version": "1.0", "epoch": epoch})
    write_atomically(run.ledger_mark, body.encode() + b"\n")


def refuse_missing(run: RunPaths) -> None:
    """Raise `ledger_lost` where there is no ledger, and something tells that there was one."""
    if _has_ledger(run.ledger):
        return
    traces = [path.name for path in (run.ledger_mark, run.credentials_key) if path.exists()]
    if run.attempts.is_dir() and (count := len(os.listdir(run.attempts))):
        traces.append(f"{count} in {run.attempts.name}/")
    if traces:
        raise PraxistError(
            "ledger_lost",
            f"{run.ledger} holds no ledger, and this run had one: {', '.join(traces)}",
        )


def refuse_older(run: RunPaths, epoch: int) -> None:
    """Raise `ledger_lost` when the ledger that was read is of an earlier start than the mark."""
    known = marked_epoch(run)
    if known is not None and known > epoch:
        raise PraxistError(
            "ledger_lost",
            f"{run.ledger} ends in start {epoch}, and this run was at start {known}: an older copy "
            "was put in its place",
        )


def _has_ledger(directory: Path) -> bool:
    if not directory.is_dir():
        return False
    return any(segment.NAME.match(name) or NAME.match(name) for name in os.listdir(directory))


def marked_epoch(run: RunPaths) -> int | None:
    """The last epoch that began; None when no mark tells, or one that cannot be understood."""
    try:
        mark = json.loads(read_limited(run.ledger_mark, _BYTES_MAX))
        return int(mark["epoch"])
    except (FileNotFoundError, PraxistError, ValueError, RecursionError, KeyError, TypeError):
        return None
