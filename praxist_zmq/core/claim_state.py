"""The claim registry's state: what every run holds on this host, as the fold of its ledger.

It decides nothing but whether an envelope fits on a device (`fits`); `core.claim` decides the
rest. State is changed only by `ClaimState.apply`, live and in replay, so a restart is a replay.
Counts told by `ReportLoad` are the one exception: they are for display and are not durable.
Rows are indexed by device and by run: no question costs more when other devices hold more rows.

Source of the rules: design 2 (promises 5, 6), design 3 "claim registry".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..errors import PraxistError
from ..protocol.claims import (
    AllocationRow,
    ClaimBound,
    ClaimReleased,
    ClaimReserved,
    ClaimSnapshot,
    Envelope,
    HostView,
    RegistryOpened,
    RunDeregistered,
    RunRegistered,
    RunRow,
)
from ..protocol.process import ProcessIdentity

RowKey = tuple[str, str]
"""(run key, attempt): the name of an allocation row."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A process whose end is a fact the registry waits for.

    `attempt` is None for a run's broker, else the attempt whose shim it is.
    """

    run_key: str
    attempt: str | None
    identity: ProcessIdentity


def is_exclusive(envelope: Envelope) -> bool:
    """Whether nobody else may share the devices. Unknown demand is exclusive."""
    return envelope.exclusive or envelope.memory_mib is None or envelope.utilization_pct is None


def fits(rows_on_device: Iterable[AllocationRow], envelope: Envelope) -> bool:
    """Whether `envelope` may join the rows of one device.

    An exclusive one needs a device with no row; no one joins an exclusive row. The seam for sums
    of declared memory and utilisation against the device's size: the registry has no device
    totals yet.
    """
    rows = list(rows_on_device)
    if is_exclusive(envelope):
        return not rows
    return not any(is_exclusive(row.envelope) for row in rows)


@dataclass(slots=True)
class ClaimState:
    """Run rows, allocation rows, view version and epoch."""

    epoch: int = 0
    version: int = 0
    boot_id: str = ""
    runs: dict[str, RunRow] = field(default_factory=dict)
    rows: dict[RowKey, AllocationRow] = field(default_factory=dict)
    by_device: dict[str, dict[RowKey, None]] = field(default_factory=dict)
    by_run: dict[str, dict[str, None]] = field(default_factory=dict)
    watches: dict[Watch, ProcessIdentity] = field(default_factory=dict)
    devices_held: int = 0
    _view: HostView | None = None

    # -- reading ---------------------------------------------------------------------------

    def on_device(self, device: str) -> list[AllocationRow]:
        """The rows that hold `device`."""
        return [self.rows[key] for key in self.by_device.get(device, ())]

    def of_run(self, run_key: str) -> list[AllocationRow]:
        """The rows of one run."""
        return [self.rows[run_key, attempt] for attempt in self.by_run.get(run_key, ())]

    def view(self) -> HostView:
        """Everything, at this version; built once a version."""
        if self._view is None:
            self._view = HostView(
                version=self.version,
                runs=tuple(self.runs.values()),
                allocations=tuple(self.rows.values()),
            )
        return self._view

    def snapshot(self) -> ClaimSnapshot:
        """The whole state, to be written to disk."""
        return ClaimSnapshot(
            epoch=self.epoch,
            version=self.version,
            boot_id=self.boot_id,
            runs=tuple(self.runs.values()),
            allocations=tuple(self.rows.values()),
        )

    @classmethod
    def restored(cls, snapshot: ClaimSnapshot) -> ClaimState:
        """The state that `snapshot` was taken from. Raises `ledger_damaged` on a double row."""
        state = cls(epoch=snapshot.epoch, version=snapshot.version, boot_id=snapshot.boot_id)
        for run in snapshot.runs:
            state._put_run(run)
        for row in snapshot.allocations:
            state._put_row(row, "the snapshot")
        return state

    # -- changing --------------------------------------------------------------------------

    def set_load(self, run_key: str, running: int, queued: int, limit: int) -> None:
        """Counts for display; neither durable nor a change of version."""
        self.runs[run_key] = self.runs[run_key].model_copy(
            update={"running": running, "queued": queued, "limit": limit}
        )
        self._view = None

    def apply(self, event: Any, sequence: int) -> None:
        """Change the state by one event. Raises `ledger_damaged` for one that cannot follow."""
        self._view = None
        where = f"record {sequence}"
        match event:
            case RegistryOpened():
                self.epoch, self.boot_id = event.epoch, event.boot_id
                return
            case RunRegistered():
                self._put_run(event.run)
            case RunDeregistered():
                self._drop_run(event.run_key, where)
            case ClaimReserved():
                self._put_row(event.row, where)
            case ClaimBound():
                self._bind(event, where)
            case ClaimReleased():
                self._drop_row((event.run_key, event.attempt), where)
            case _:
                raise PraxistError("internal", f"{where}: {type(event).__name__} has no rule")
        self.version += 1

    def _put_run(self, run: RunRow) -> None:
        old = self.runs.get(run.run_key)
        if old is not None:
            self.watches.pop(Watch(run.run_key, None, old.broker), None)
        self.runs[run.run_key] = run
        self.watches[Watch(run.run_key, None, run.broker)] = run.broker

    def _drop_run(self, run_key: str, where: str) -> None:
        old = self.runs.pop(run_key, None)
        if old is None:
            raise PraxistError("ledger_damaged", f"{where} ends a run that is not registered")
        self.watches.pop(Watch(run_key, None, old.broker), None)

    def _put_row(self, row: AllocationRow, where: str) -> None:
        key = (row.run_key, row.attempt)
        if key in self.rows:
            raise PraxistError("ledger_damaged", f"{where} reserves {row.attempt} twice")
        self.rows[key] = row
        self.by_run.setdefault(row.run_key, {})[row.attempt] = None
        for device in row.envelope.device_uuids:
            self.by_device.setdefault(device, {})[key] = None
        self.devices_held += len(row.envelope.device_uuids)
        if row.bound is not None:
            self.watches[Watch(row.run_key, row.attempt, row.bound)] = row.bound

    def _bind(self, event: ClaimBound, where: str) -> None:
        row = self.rows.get((event.run_key, event.attempt))
        if row is None or row.bound is not None:
            raise PraxistError("ledger_damaged", f"{where} binds {event.attempt} out of turn")
        self.rows[event.run_key, event.attempt] = row.model_copy(update={"bound": event.shim})
        self.watches[Watch(event.run_key, event.attempt, event.shim)] = event.shim

    def _drop_row(self, key: RowKey, where: str) -> None:
        row = self.rows.pop(key, None)
        if row is None:
            raise PraxistError("ledger_damaged", f"{where} releases {key[1]}, which holds nothing")
        attempts = self.by_run[row.run_key]
        del attempts[row.attempt]
        if not attempts:
            del self.by_run[row.run_key]
        for device in row.envelope.device_uuids:
            holders = self.by_device[device]
            del holders[key]
            if not holders:
                del self.by_device[device]
        self.devices_held -= len(row.envelope.device_uuids)
        if row.bound is not None:
            self.watches.pop(Watch(row.run_key, row.attempt, row.bound), None)
