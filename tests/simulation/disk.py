"""The fake disk: records that were written, and how many of them would outlive a power cut."""

from __future__ import annotations

from collections.abc import Callable
from random import Random


class Killed(BaseException):
    """SIGKILL in the middle of a turn. Not an Exception: nobody's handler stops it."""


class FakeDisk:
    """One ledger's records."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.synced = 0
        self.snapshot: bytes | None = None

    def crash(self, rng: Random) -> list[bytes]:
        """A writer died: of what was not synced, any beginning may be there. Returns that."""
        kept = rng.randint(self.synced, len(self.records))
        tail = self.records[self.synced : kept]
        del self.records[kept:]
        self.synced = kept
        return tail


class FakeLedger:
    """As much of `ledger.log.Ledger` as `service.step` calls, on a fake disk.

    `killed` says whether the writer dies at this point; `durable` hears what is on disk now.
    """

    def __init__(
        self,
        disk: FakeDisk,
        killed: Callable[[str], bool],
        durable: Callable[[list[bytes]], None],
    ) -> None:
        self._disk = disk
        self._killed = killed
        self._durable = durable

    def commit(self, payloads: list[bytes]) -> int:
        """Append and sync."""
        self._disk.records += payloads
        if self._killed("killed before a sync"):
            raise Killed
        self._disk.synced = len(self._disk.records)
        self._durable(payloads)
        if self._killed("killed after a sync"):
            raise Killed
        return self._disk.synced
