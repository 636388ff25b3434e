"""Looks, a second apart, whether the files that processes of ours made still have their names.

A process that holds a lock or a socket goes on when the file is removed, and nobody finds it any
more: a second one starts beside it, or every client is told to come back later. What is done about
a loss is the caller's to decide.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ledger.named_file import NamedFile

LOOK_MS = 1_000


class Standing:
    """The files of one or more owners."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[NamedFile, ...]] = {}
        self.look_at_ms = 0
        """When the next look is due, CLOCK_BOOTTIME milliseconds."""

    def hold(self, owner: str, files: Iterable[NamedFile | None]) -> None:
        """From now on look after what `owner` has made; what it has not made is left out."""
        self._held[owner] = tuple(file for file in files if file is not None)

    def lost(self, now_ms: int) -> dict[str, str]:
        """Owners, with the first file of each that is not there any more; none before the next
        look is due. Told once: the owner is forgotten."""
        if now_ms < self.look_at_ms:
            return {}
        self.look_at_ms = now_ms + LOOK_MS
        found: dict[str, str] = {}
        for owner, files in self._held.items():
            gone = next((file.path for file in files if not file.is_there()), None)
            if gone is not None:
                found[owner] = gone
        for owner in found:
            del self._held[owner]
        return found
