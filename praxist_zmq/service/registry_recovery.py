"""The claim registry's machine as its ledger tells it: snapshot, then the events after it."""

from __future__ import annotations

import logging
from typing import Any

from ..core.claim import ClaimMachine
from ..core.claim_invariants import state_violations
from ..errors import PraxistError
from ..ledger.log import Ledger
from ..protocol.claims import ClaimSnapshot
from ..protocol.codec import decode, decode_claim_event

_log = logging.getLogger(__name__)


def recovered(ledger: Ledger) -> ClaimMachine:
    """The machine as its ledger tells it; the ledger is then ready to append.

    Raises `ledger_damaged`, `ledger_newer`, and what `Ledger.start` raises.
    """
    found = ledger.snapshot
    snapshot: ClaimSnapshot | None = None
    if found is not None:
        snapshot = _decoded(ClaimSnapshot, found[1], "the snapshot")
    machine = ClaimMachine(snapshot)
    for sequence, payload in ledger.replay():
        try:
            event = decode_claim_event(payload)
        except PraxistError as error:
            raise PraxistError("ledger_damaged", f"record {sequence}: {error.detail}") from error
        machine.apply(event, sequence)
    faults = state_violations(machine.state)
    if faults:
        raise PraxistError("ledger_damaged", "; ".join(faults)[:2000])
    ledger.start()
    for note in ledger.notes:
        _log.warning(note)
    return machine


def _decoded(kind: Any, payload: bytes, what: str) -> Any:
    try:
        return decode(kind, payload)
    except PraxistError as error:
        raise PraxistError("ledger_damaged", f"{what}: {error.detail}") from error
