"""The claim registry's state: what every run holds on this host, as the fold of its ledger.

It decides nothing; `core.claim` does. State is changed only by `ClaimState.apply`, live and in
replay, so a restart is a replay. Counts told by `ReportLoad` are the one exception: they are not
durable. Rows are summed up by device and indexed by run: no question costs more with more rows.

Source of the rules: design 2 (promises 5, 6), design 3 "claim registry".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from ..errors import PraxistError
from ..protocol.claims import (
    AllocationRow,
    ClaimBound,
    ClaimReleased,
    ClaimReserved,
    ClaimSnapshot,
    DeviceElsewhere,
    RegistryOpened,
    RunDeregistered,
    RunRegistered,
    RunRow,
)
from ..protocol.process import ProcessIdentity
from .claim_fit import DeviceSums, devices_of

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


@dataclass(frozen=True, slots=True)
class Unserved:
    """Whose a bound row is that no run answers for."""

    run_dir: str
    own: bool
    """Whether the run is of the registry's own user, so that its processes can be looked at."""
    uid: int | None = None
    """Whose it is, where that is known."""


@dataclass(slots=True)
class ClaimState:
    """Run rows, allocation rows, view version and epoch."""

    epoch: int = 0
    version: int = 0
    boot_id: str = ""
    runs: dict[str, RunRow] = field(default_factory=dict)
    rows: dict[RowKey, AllocationRow] = field(default_factory=dict)
    loads: dict[str, DeviceSums] = field(default_factory=dict)
    by_run: dict[str, dict[str, None]] = field(default_factory=dict)
    with_devices: dict[str, int] = field(default_factory=dict)
    """How many rows of a run hold devices."""
    owners: dict[str, int] = field(default_factory=dict)
    """Whose each run is, for as long as it is registered or holds anything."""
    down: dict[str, RunRow] = field(default_factory=dict)
    """What was known of a run that is not registered any more, for as long as it holds anything."""
    own_uid: int | None = None
    """The registry's own user, once started; a run without an owner is theirs."""
    watches: dict[Watch, ProcessIdentity] = field(default_factory=dict)
    devices_held: int = 0
    elsewhere: dict[str, DeviceElsewhere] = field(default_factory=dict)
    """Devices that other host scopes hold; not durable."""
    leased: dict[str, dict[tuple[str, str], int | None]] = field(default_factory=dict)
    """Device -> who holds a lease there, each with the size that its run was told; not durable."""

    # -- reading ---------------------------------------------------------------------------

    @property
    def placed(self) -> set[str]:
        """The devices on which something is placed or planned."""
        return {*self.loads, *self.leased}

    def of_run(self, run_key: str) -> list[AllocationRow]:
        """The rows of one run."""
        return [self.rows[run_key, attempt] for attempt in self.by_run.get(run_key, ())]

    def shims(self) -> set[int]:
        """The shims of all rows that have one."""
        return {row.bound.pid for row in self.rows.values() if row.bound is not None}

    def limit(self) -> int:
        """Allocations that the host takes: the largest limit that a registered run published."""
        return max((run.limit for run in self.runs.values()), default=0)

    def owner_of(self, run_key: str) -> int | None:
        """Whose a run is; None when it is not known here, or its owner is not."""
        known = run_key in self.runs or run_key in self.by_run
        return self.owners.get(run_key, self.own_uid if known else None)

    def is_guest(self, uid: int | None) -> bool:
        """Whether this is another user than the registry's own."""
        return self.own_uid is not None and uid != self.own_uid

    def knows(self, run: RunRow) -> bool:
        """Whether the run is registered just so, but for what is only reported."""
        counts = {"running": run.running, "queued": run.queued, "limit": run.limit}
        old = self.runs.get(run.run_key)
        return old is not None and old.model_copy(update=counts) == run

    def unserved(self, disowned: Collection[RowKey]) -> dict[Watch, Unserved]:
        """Bound rows of runs that are down, and `disowned` ones: their end no run will tell."""
        keys = [(run_key, a) for run_key in self.down for a in self.by_run.get(run_key, ())]
        found: dict[Watch, Unserved] = {}
        for key in (*keys, *disowned):
            row, run = self.rows[key], self.runs.get(key[0]) or self.down.get(key[0])
            if row.bound is not None and run is not None:
                uid = self.owner_of(key[0])
                found[Watch(*key, row.bound)] = Unserved(run.run_dir, not self.is_guest(uid), uid)
        return found

    def held(self, run_key: str, devices_only: bool) -> int:
        """How many rows a run holds; `devices_only`: that hold devices."""
        if devices_only:
            return self.with_devices.get(run_key, 0)
        return len(self.by_run.get(run_key, ()))

    def held_by_user(self, uid: int) -> tuple[int, int]:
        """(rows, devices in them) of all runs of one user."""
        rows = [
            row for key in self.by_run if self.owners.get(key) == uid for row in self.of_run(key)
        ]
        return len(rows), sum(len(row.envelope.device_uuids) for row in rows)

    def snapshot(self) -> ClaimSnapshot:
        """The whole state, to be written to disk."""
        return ClaimSnapshot(
            epoch=self.epoch,
            version=self.version,
            boot_id=self.boot_id,
            runs=tuple(self.runs.values()),
            allocations=tuple(self.rows.values()),
            owners=dict(self.owners),
            down=tuple(self.down.values()),
        )

    @classmethod
    def restored(cls, snapshot: ClaimSnapshot) -> ClaimState:
        """The state that `snapshot` was taken from. Raises `ledger_damaged` on a double row."""
        state = cls(epoch=snapshot.epoch, version=snapshot.version, boot_id=snapshot.boot_id)
        for run in snapshot.runs:
            state._put_run(run)
        for row in snapshot.allocations:
            state._put_row(row, "the snapshot")
        state.owners.update(snapshot.owners)
        state.down.update((run.run_key, run) for run in snapshot.down)
        return state

    # -- changing --------------------------------------------------------------------------

    def set_load(self, run_key: str, running: int, queued: int, limit: int) -> None:
        """What a run reports; neither durable nor a change of version."""
        self.runs[run_key] = self.runs[run_key].model_copy(
            update={"running": running, "queued": queued, "limit": limit}
        )

    def apply(self, event: Any, sequence: int) -> None:
        """Change the state by one event. Raises `ledger_damaged` for one that cannot follow."""
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
        self.down.pop(run.run_key, None)
        if run.uid is not None:
            self.owners[run.run_key] = run.uid
        self.watches[Watch(run.run_key, None, run.broker)] = run.broker

    def _drop_run(self, run_key: str, where: str) -> None:
        old = self.runs.pop(run_key, None)
        if old is None:
            raise PraxistError("ledger_damaged", f"{where} ends a run that is not registered")
        self.watches.pop(Watch(run_key, None, old.broker), None)
        if run_key in self.by_run:
            # Without what it last reported, which is not on disk.
            silent = {"running": 0, "queued": 0, "limit": 1}
            self.down[run_key] = old.model_copy(update=silent)
        self._forget(run_key)

    def _forget(self, run_key: str) -> None:
        if run_key not in self.runs and run_key not in self.by_run:
            self.owners.pop(run_key, None)
            self.down.pop(run_key, None)

    def _put_row(self, row: AllocationRow, where: str) -> None:
        key = (row.run_key, row.attempt)
        if key in self.rows:
            raise PraxistError("ledger_damaged", f"{where} reserves {row.attempt} twice")
        self.rows[key] = row
        self.by_run.setdefault(row.run_key, {})[row.attempt] = None
        for device, size_mib in devices_of(row):
            self.loads.setdefault(device, DeviceSums()).add(row.envelope, size_mib)
        if row.envelope.device_uuids:
            self.with_devices[row.run_key] = self.with_devices.get(row.run_key, 0) + 1
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
        for device, size_mib in devices_of(row):
            load = self.loads[device]
            load.add(row.envelope, size_mib, -1)
            if not load.rows:
                del self.loads[device]
        if row.envelope.device_uuids:
            self.with_devices[row.run_key] -= 1
            if not self.with_devices[row.run_key]:
                del self.with_devices[row.run_key]
        self.devices_held -= len(row.envelope.device_uuids)
        if row.bound is not None:
            self.watches.pop(Watch(row.run_key, row.attempt, row.bound), None)
        self._forget(row.run_key)
