"""What the claim registry's ledger tells while no registry answers: runs that may hold something.

Reads only. What is held is the last that the registry wrote: an allocation whose tree is gone since
is left out, by the same rule by which a registry frees it; one that was never bound, or that cannot
be seen from here, is told.
"""

from __future__ import annotations

import os

from ..core.claim import ClaimMachine
from ..core.claim_state import Unserved, Watch
from ..errors import PraxistError
from ..host.identity import boot_id, is_alive
from ..host.paths import HostPaths
from ..ledger.reading import LedgerReader
from ..protocol.claims import AllocationRow, ClaimSnapshot, RunRow
from ..protocol.codec import decode, decode_claim_event
from .orphan_trees import may_live


def runs_that_hold(host: HostPaths) -> list[RunRow]:
    """Runs with an allocation that may live, by directory; none where there is no ledger.

    Raises `ledger_damaged`, `ledger_newer`, `unsafe_path` or `path_unusable`.
    """
    if not host.ledger.is_dir():
        return []
    reader = LedgerReader(host.ledger)
    found = reader.snapshot
    machine = ClaimMachine(None if found is None else decode(ClaimSnapshot, found.data))
    for sequence, payload in reader.records():
        try:
            machine.apply(decode_claim_event(payload), sequence)
        except PraxistError as error:
            raise PraxistError("ledger_damaged", f"record {sequence}: {error.detail}") from error
    state = machine.state
    if state.boot_id != boot_id():
        return []  # nothing outlives its boot
    known = {**state.runs, **state.down}
    holding = {
        row.run_key
        for row in state.rows.values()
        if row.run_key in known and _may_live(row, known[row.run_key])
    }
    return sorted((known[key] for key in holding), key=lambda run: run.run_dir)


def _may_live(row: AllocationRow, run: RunRow) -> bool:
    if row.bound is None or is_alive(row.bound):
        return True
    whose = Unserved(run.run_dir, own=run.uid in (None, os.getuid()), uid=run.uid)
    return may_live(Watch(row.run_key, row.attempt, row.bound), whose)
