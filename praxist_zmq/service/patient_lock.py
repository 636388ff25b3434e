"""A lock of the run, with a moment's patience for a holder that is just ending.

Our processes end by themselves when their supervisor is gone, but may need a moment for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import PraxistError
from ..host.clock import Clock, pause_ms
from ..ledger.lock import OwnerLock

PAUSE_MS = 20


def acquire_patiently(
    path: Path, holder: Mapping[str, object], clock: Clock, patience_ms: int
) -> OwnerLock:
    """The lock of `path`. Raises `already_running` when it is held for longer than
    `patience_ms`, `unsafe_path` or `path_unusable`."""
    deadline_ms = clock.mono_ms() + patience_ms
    while True:
        try:
            return OwnerLock.acquire(path, holder)
        except PraxistError as error:
            if error.code != "already_running" or clock.mono_ms() >= deadline_ms:
                raise
        pause_ms(PAUSE_MS)
