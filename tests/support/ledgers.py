"""Short ways to make and read a ledger in tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from praxist_zmq.ledger.log import Ledger


def opened(directory: Path, segment_bytes: int = 1 << 18, ballast_bytes: int = 0) -> Ledger:
    """The ledger of `directory` under fixed names, not replayed yet."""
    return Ledger.open(directory, "broker", "run", "boot", segment_bytes, ballast_bytes)


def started(directory: Path, segment_bytes: int = 1 << 18, ballast_bytes: int = 0) -> Ledger:
    """The same, replayed and started."""
    ledger = opened(directory, segment_bytes, ballast_bytes)
    for _ in ledger.replay():
        pass
    ledger.start()
    return ledger


def contents(directory: Path) -> list[bytes]:
    """All payloads after the snapshot, as a restart reads them; nothing is changed."""
    return [payload for _, payload in opened(directory).replay()]


def filled(directory: Path, payloads: Sequence[bytes], segment_bytes: int = 1 << 18) -> None:
    """A closed ledger with one commit for each payload."""
    ledger = started(directory, segment_bytes)
    for payload in payloads:
        ledger.commit([payload])
    ledger.close()


def bytes_of(directory: Path) -> dict[str, bytes]:
    """Every file of a directory, to prove that nothing was changed."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
