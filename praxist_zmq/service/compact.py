"""Makes a snapshot beside the broker: `python -m praxist_zmq.service.compact LEDGER_DIRECTORY`.

Replays the newest snapshot and the sealed segments with the code that a restart uses, and writes
the state. It touches nothing that still changes, so the broker neither waits for it nor stops for
it; when it dies, nothing is lost but its work.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ..core import broker_snapshot
from ..core.invariants import check_state
from ..errors import PraxistError
from ..ledger.snapshot import Snapshots, read_until, sealed_segments
from .broker_store import fold, restore
from .service_log import configure_log


def compact(directory: Path) -> int | None:
    """Write a snapshot of everything sealed; its sequence, or None when there is nothing new.

    Raises PraxistError `ledger_damaged`, `no_space`, `unreadable_record` (a snapshot would forget
    that a record could not be read, and with it what became of its job), `internal` (the state is
    unsound).
    """
    sealed = sealed_segments(directory)
    snapshots = Snapshots(directory)
    newest = snapshots.newest()
    after = newest.sequence if newest is not None else 0
    if not sealed or sealed[-1].last_sequence <= after:
        return None
    broker = restore((newest.sequence, newest.data) if newest is not None else None)
    last = sealed[-1].last_sequence
    fold(broker, read_until(directory, last, after))
    unreadable = broker.soft.unreadable
    if unreadable:
        raise PraxistError(
            "unreadable_record",
            f"no snapshot, so that it stays known: of {len(unreadable)} jobs, first "
            f"{next(iter(unreadable))}, there are records that cannot be read",
        )
    faults = check_state(broker.state)
    if faults:
        raise PraxistError("internal", f"no snapshot of an unsound state: {faults[0]}")
    snapshots.write(last, broker_snapshot.dump(broker.state))
    return last


def main() -> None:
    """Entry of the compactor process."""
    log = configure_log("compact")
    try:
        sequence = compact(Path(sys.argv[1]))
    except PraxistError as error:
        log.error(str(error))
        raise SystemExit(error.exit_code) from None
    log.info("snapshot at %s", sequence)


if __name__ == "__main__":
    main()
