"""All records of a ledger that nobody runs, as a start would read them; nothing is changed."""

from __future__ import annotations

from pathlib import Path

from praxist_zmq.ledger.reading import LedgerReader


def history(directory: Path) -> list[bytes]:
    """Payloads in order. The ledger must not have been compacted yet."""
    reader = LedgerReader(directory)
    assert reader.snapshot is None, f"{directory} was compacted; its history is not whole"
    return [payload for _, payload in reader.records()]
