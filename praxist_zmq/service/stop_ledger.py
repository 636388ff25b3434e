"""A stop as the ledger keeps it, when no broker runs: the same events that a broker would record.

The run is closed and its queue rejected durably before anybody is signalled, so that a later start
finds the same history whether a scheduler carried the stop out or not. The caller holds the run's
locks. It signals nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .. import __version__
from ..core.broker import Broker
from ..core.commands import ClientRequest
from ..core.decision import Send, Stamp
from ..errors import PraxistError
from ..host.clock import SystemClock
from ..host.identity import boot_id
from ..host.paths import RunPaths
from ..host.stop_search import KnownAttempt
from ..ledger.log import Ledger
from ..ledger.reading import LedgerReader
from ..protocol.envelope import Json
from ..protocol.replies import Stopping
from ..protocol.requests import StopRun
from .broker_store import credentials_key, fold, restore
from .step import Step
from .stop_status import view_of


@dataclass(slots=True)
class LedgerStop:
    """What the ledger says that a stop is about."""

    attempts: list[KnownAttempt] = field(default_factory=list)
    rejected: tuple[str, ...] = ()
    ending: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)
    view: Json | None = None
    """What `status` is to tell of the jobs; None when the stop could not be recorded."""


def look(run: RunPaths) -> LedgerStop:
    """What a stop would be about. Changes nothing; a damaged ledger is read up to the damage."""
    found = LedgerStop()
    broker = Broker()
    if run.ledger.is_dir():
        try:
            reader = LedgerReader(run.ledger)
            snapshot = reader.snapshot
            broker = restore((snapshot.sequence, snapshot.data) if snapshot else None)
            fold(broker, reader.records())
        except PraxistError as error:
            found.warnings.append(f"the ledger is read only in part: {error}")
    answer = broker.decide(_request(0, dry_run=True), _now())
    _take(found, broker, answer.outbox)
    if found.warnings:
        _add_unknown(found, run)
    return found


def close(run: RunPaths, grace_ms: int) -> LedgerStop:
    """Record the stop. A ledger that cannot be appended to is told of, and read instead."""
    if not run.ledger.is_dir():
        return LedgerStop()
    try:
        return _close(run, grace_ms)
    except PraxistError as error:
        found = look(run)
        found.warnings.append(f"the stop is not in the ledger: {error}")
        return found


def _close(run: RunPaths, grace_ms: int) -> LedgerStop:
    ledger = Ledger.open(run.ledger, "broker", run.run_id, boot_id())
    try:
        broker = restore(ledger.snapshot)
        fold(broker, ledger.replay())
        ledger.start()
        broker.soft.run_dir, broker.soft.run_key = str(run.run_dir), run.run_key
        broker.soft.credentials_key = credentials_key(run.credentials_key)
        step = Step(broker, ledger, _nobody_listens)
        state = broker.state
        begun = broker.begin(
            _now(),
            run_id=run.run_id,
            boot_id=boot_id(),
            version=__version__,
            policy=state.policy,
            generation=state.generation,
            reopen=False,
        )
        decided = broker.decide(_request(grace_ms, dry_run=False), _now())
        step.finish([*begun.events, *decided.events], [])
    finally:
        ledger.close()
    found = LedgerStop(warnings=list(ledger.notes), view=view_of(broker, _now()))
    _take(found, broker, decided.outbox)
    return found


def _take(found: LedgerStop, broker: Broker, outbox: list[Send]) -> None:
    for send in outbox:
        if isinstance(send.message, Stopping):
            found.rejected, found.ending = send.message.rejected, send.message.ending
    found.attempts = [
        KnownAttempt(attempt.attempt, attempt.shim, attempt.leader, attempt.presumed_dead)
        for attempt in broker.state.attempts.values()
    ]


def _add_unknown(found: LedgerStop, run: RunPaths) -> None:
    """Attempts that only their directories tell of: their evidence must prove itself."""
    known = {attempt.attempt for attempt in found.attempts}
    if run.attempts.is_dir():
        names = sorted(entry.name for entry in run.attempts.iterdir())
        found.attempts += [KnownAttempt(name) for name in names if name not in known]


def _request(grace_ms: int, *, dry_run: bool) -> ClientRequest:
    request = StopRun(grace_seconds=grace_ms / 1000, dry_run=dry_run)
    return ClientRequest(None, "offline-stop", "", request, None, None)


def _now() -> Stamp:
    clock = SystemClock()
    return Stamp(at_ms=clock.wall_ms(), mono_ms=clock.mono_ms())


def _nobody_listens(outbox: list[Any]) -> None:
    """There is no client, launcher or registry to tell: they learn it from the next broker."""
