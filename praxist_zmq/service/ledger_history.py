"""What the records of a ledger say, judged by the promises: for `ledger verify`.

The framing tells whether the records are what was written; here their order and the state that
they lead to are looked at, by the checks that tests use. Reads only. What cannot be read is told by
the framing's own check and ends the look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ..core.claim_invariants import history_violations
from ..core.invariants import check_history, check_state
from ..core.on_disk import unknown
from ..core.transitions import IllegalTransition
from ..errors import PraxistError
from ..host.paths import RunPaths
from ..ledger.reading import LedgerReader
from ..protocol.codec import decode_claim_event, decode_event
from .broker_store import fold, restore
from .remnants import names_on_disk


def history_faults(directory: Path) -> list[str]:
    """Every broken rule, in words, up to the first record that is damaged.

    A registry's ledger that was compacted is not looked at: what its snapshot stands for is gone.
    Raises PraxistError `ledger_damaged` for a snapshot that is none, `path_unusable`.
    """
    reader = LedgerReader(directory)
    if reader.segments and reader.segments[0].header.program == "registry":
        if reader.snapshot is not None:
            return []
        return _judged(reader, decode_claim_event, history_violations)
    found = reader.snapshot
    broker = restore((found.sequence, found.data) if found is not None else None)
    first = broker.state.last_sequence + 1

    def applied(events: Iterable[Any]) -> Iterator[Any]:
        for sequence, event in enumerate(events, first):
            try:
                broker.apply(event, sequence)
            except IllegalTransition as error:
                illegal.append(f"record {sequence}: {error}")
                broker.pass_over(sequence, None, str(error))
            yield event

    illegal: list[str] = []
    told = _judged(
        reader, decode_event, lambda events: check_history(applied(events), broker.state)
    )
    return [*illegal, *told, *check_state(broker.state)]


def lacking_attempts(run: RunPaths, directory: Path) -> list[str]:
    """The attempts that lie in a run's directory and that a broker's ledger does not know.

    Raises PraxistError `ledger_damaged`, `path_unusable`.
    """
    reader = LedgerReader(directory)
    if reader.segments and reader.segments[0].header.program == "registry":
        return []
    found = reader.snapshot
    broker = restore((found.sequence, found.data) if found is not None else None)
    fold(broker, reader.records())
    return unknown(names_on_disk(run), broker.state)


def _judged(
    reader: LedgerReader,
    decode: Callable[[bytes], Any],
    judge: Callable[[Iterator[Any]], list[str]],
) -> list[str]:
    unreadable: list[str] = []

    def events() -> Iterator[Any]:
        try:
            for sequence, payload in reader.records():
                try:
                    yield decode(payload)
                except PraxistError as error:
                    unreadable.append(f"record {sequence} does not decode: {error.detail}")
                    return
        except PraxistError as error:
            if error.code not in ("ledger_damaged", "ledger_newer", "path_unusable"):
                raise

    return [*judge(events()), *unreadable]
