"""`last_failure.json`: why the supervisor gave up, or what it waits for. Decides nothing.

Written over by the next failure and removed when everything serves. When it cannot be written (the
disk is full) the log is told instead, and nothing else changes.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from ..errors import PraxistError
from ..host.spawn import utc_now
from ..ledger.files import write_atomically


def leave_failure(path: Path, name: str, how: str, error: PraxistError, log_tail: str) -> None:
    """Write which process failed, how it ended, and the end of its log."""
    content = {
        "format_version": "1.0",
        "at": utc_now(),
        "process": name,
        "exit": how,
        "code": error.code,
        "detail": error.detail,
        "log_tail": log_tail,
    }
    try:
        write_atomically(path, json.dumps(content, indent=1).encode() + b"\n", durable=False)
    except (OSError, PraxistError) as trouble:
        logging.getLogger(__name__).error("last_failure.json: %s", trouble)
