"""What the broker reads before it serves: its ledger, its key; and how the history is folded.

One record that cannot be read must not keep a run from starting: the framing proves that it is
what was written, so it is passed over, its job is set aside, and everything else goes on.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..core import broker_snapshot
from ..core.broker import Broker
from ..core.transitions import IllegalTransition
from ..errors import PraxistError
from ..host.identity import boot_id
from ..ledger.files import read_limited, write_atomically
from ..ledger.log import Ledger
from ..protocol.codec import decode_event
from ..protocol.ids import job_of
from .child_config import ChildConfig, report_progress
from .ledger_mark import marked_epoch, refuse_missing, refuse_older
from .remnants import look

KEY_BYTES = 32
PROGRESS_RECORDS = 50_000


def restore(snapshot: tuple[int, bytes] | None) -> Broker:
    """A machine with the state of a snapshot, or an empty one. Raises `ledger_damaged`."""
    if snapshot is None:
        return Broker()
    try:
        state = broker_snapshot.load(snapshot[1])
    except ValueError as error:
        raise PraxistError(
            "ledger_damaged", f"the snapshot at {snapshot[0]} is not the broker's: {error}"
        ) from None
    return Broker(state)


def fold(
    broker: Broker,
    records: Iterable[tuple[int, bytes]],
    progress: Callable[[int], None] | None = None,
) -> int:
    """Apply records in order; pass over those that cannot be. Returns how many were read."""
    count = 0
    with _no_cycles_looked_for():
        for sequence, body in records:
            try:
                broker.apply(decode_event(body), sequence)
            except (PraxistError, IllegalTransition) as error:
                broker.pass_over(sequence, _job_in(body), str(error))
            count += 1
            if progress is not None and count % PROGRESS_RECORDS == 0:
                progress(count)
    return count


def open_ledger(config: ChildConfig) -> tuple[Ledger, Broker]:
    """The ledger, ready to append, and the machine with everything that it holds."""
    log = logging.getLogger(__name__)
    if not config.accept_lost_records:
        refuse_missing(config.run)
    ledger = Ledger.open(config.run.ledger, "broker", config.run_id, boot_id())
    broker = restore(ledger.snapshot)
    count = fold(
        broker, ledger.replay(), lambda n: report_progress(config, f"{n} records replayed")
    )
    if not config.accept_lost_records:
        refuse_older(config.run, broker.state.epoch)
    elif (known := marked_epoch(config.run) or 0) > broker.state.epoch:
        note = (
            f"records up to start {known} are lost, as `up --accept-lost-records` accepted: "
            f"the ledger ends in start {broker.state.epoch}"
        )
        log.warning(note)
        broker.soft.warnings["lost records"] = note
        # A registry that lives knows the later epoch, and takes no earlier one.
        broker.state.epoch = known
    ledger.start()
    for note in ledger.notes:
        log.warning(note)
        broker.soft.warnings[f"ledger {note[:40]}"] = note
    broker.soft.remnants = look(config.run, broker.state)
    log.info("%d records replayed, last sequence %d", count, broker.state.last_sequence)
    return ledger, broker


@contextlib.contextmanager
def _no_cycles_looked_for() -> Iterator[None]:
    """Keep the cycle collector from walking a history that only grows, now and later.

    What was folded holds no cycles and is freed by its counts as ever; one full collection over
    20,000 jobs took 62 ms, in the middle of some peer's request.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _job_in(body: bytes) -> str | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    job, attempt = document.get("job"), document.get("attempt")
    if isinstance(job, str):
        return job
    return job_of(attempt) if isinstance(attempt, str) and "." in attempt else None


def credentials_key(path: Path) -> bytes:
    """The key of the keyed hashes; made at the first start. Raises `unsafe_path`."""
    try:
        key = bytes.fromhex(read_limited(path, 256).decode("ascii").strip())
    except FileNotFoundError:
        key = secrets.token_bytes(KEY_BYTES)
        write_key(path, key)
    except ValueError:
        raise PraxistError("unsafe_path", f"{path} does not hold a key") from None
    if len(key) != KEY_BYTES:
        raise PraxistError("unsafe_path", f"{path} does not hold a key of {KEY_BYTES} bytes")
    return key


def write_key(path: Path, key: bytes) -> None:
    """Keep the key for the next start. Raises `unsafe_path`, `path_unusable`, `no_space`."""
    write_atomically(path, key.hex().encode() + b"\n", 0o600)
