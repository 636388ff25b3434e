"""What must hold of the claim registry, said twice: of a state, and of a ledger's history.

The two checks share no code with the machine or with each other: a row that is released twice
leaves a good state and a bad history. They change nothing and return what is wrong, in words.
The state check also runs after every recovery.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..protocol.claims import (
    AllocationRow,
    ClaimBound,
    ClaimReleased,
    ClaimReserved,
    RegistryOpened,
    RunDeregistered,
    RunRegistered,
    RunRow,
)
from .claim_fit import DeviceSums, devices_of
from .claim_state import ClaimState, RowKey, Watch


def state_violations(state: ClaimState) -> list[str]:
    """What is wrong with a state; empty when nothing is."""
    found: list[str] = []
    for key, row in state.rows.items():
        if key != (row.run_key, row.attempt):
            found.append(f"row {key} is filed under another name")
        if len(set(row.envelope.device_uuids)) != len(row.envelope.device_uuids):
            found.append(f"{row.attempt} names a device twice")
    found += _holders_violations(state.rows.values())
    loads: dict[str, DeviceSums] = {}
    by_run: dict[str, set[str]] = {}
    watches = {Watch(key, None, run.broker) for key, run in state.runs.items()}
    for row in state.rows.values():
        by_run.setdefault(row.run_key, set()).add(row.attempt)
        for device, size_mib in devices_of(row):
            loads.setdefault(device, DeviceSums()).add(row.envelope, size_mib)
        if row.bound is not None:
            watches.add(Watch(row.run_key, row.attempt, row.bound))
    if loads != state.loads:
        found.append("the sums by device differ from the rows")
    holding = {
        run: sum(bool(state.rows[run, a].envelope.device_uuids) for a in by_run[run])
        for run in by_run
    }
    if state.with_devices != {run: rows for run, rows in holding.items() if rows}:
        found.append("the counts of rows with devices differ from the rows")
    if set(state.owners) - set(state.runs) - set(by_run):
        found.append("a run that is gone still has an owner")
    if set(state.down) - (set(by_run) - set(state.runs)):
        found.append("a run is told as down that is served, or that holds nothing")
    if by_run != {run: set(attempts) for run, attempts in state.by_run.items()}:
        found.append("the index by run differs from the rows")
    if watches != set(state.watches):
        found.append("the watched processes differ from the rows")
    if state.devices_held != sum(len(r.envelope.device_uuids) for r in state.rows.values()):
        found.append("the count of held devices differs from the rows")
    return found


def _holders_violations(rows: Iterable[AllocationRow]) -> list[str]:
    """Those that were claimed again where they ran already are no promise."""
    holders: dict[str, list[AllocationRow]] = {}
    for row in rows:
        for device in () if row.overcommitted else set(row.envelope.device_uuids):
            holders.setdefault(device, []).append(row)
    found = []
    for device, on_it in holders.items():
        alone = [row for row in on_it if _wants_all(row)]
        if alone and len(on_it) > 1:
            names = ", ".join(sorted(f"{row.run_key[:8]}/{row.attempt}" for row in on_it))
            found.append(f"device {device} is held exclusively and shared: {names}")
        if not alone:
            found += _sums_violations(device, on_it)
    return found


def _sums_violations(device: str, on_it: list[AllocationRow]) -> list[str]:
    """Each demand is known here. A single row is its own run's matter: only it knows the size."""
    if len(on_it) < 2:
        return []
    found = []
    busy = math.fsum(row.envelope.utilization_pct or 0.0 for row in on_it)
    if busy > 100.000002:
        found.append(f"device {device} is promised to {busy:g} %")
    sizes = [
        size
        for row in on_it
        for uuid, size in zip(row.envelope.device_uuids, row.device_memory_mib, strict=False)
        if uuid == device and size is not None
    ]
    memory = sum(row.envelope.memory_mib or 0 for row in on_it)
    if sizes and memory > 0.95 * min(sizes):
        found.append(f"device {device} of {min(sizes)} MiB is promised with {memory} MiB")
    return found


def _wants_all(row: AllocationRow) -> bool:
    demand = row.envelope
    known = demand.memory_mib is not None and demand.utilization_pct is not None
    return demand.exclusive or not known


class _History:
    """A reader of events that knows only the promises."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.live: dict[RowKey, AllocationRow] = {}
        self.runs: dict[str, RunRow] = {}
        self.epoch = 0
        self.boot_id = ""
        self.boots_left: set[RowKey] = set()
        self.boot_over: str | None = None
        """Where rows of the boot that is on disk have ended because it is over."""

    def read(self, index: int, event: Any) -> None:
        where = f"event {index}"
        match event:
            case RegistryOpened():
                self._opened(where, event)
            case RunRegistered():
                old = self.runs.get(event.run.run_key)
                if old is not None and event.run.epoch < old.epoch:
                    self.found.append(f"{where}: the epoch of {event.run.run_id} went back")
                self.runs[event.run.run_key] = event.run
            case RunDeregistered():
                if self.runs.pop(event.run_key, None) is None:
                    self.found.append(f"{where}: ended a run that is not registered")
            case ClaimReserved():
                self._reserved(where, event)
            case ClaimBound():
                self._bound(where, event)
            case ClaimReleased():
                self._released(where, event)

    def _opened(self, where: str, event: RegistryOpened) -> None:
        if event.epoch <= self.epoch:
            self.found.append(f"{where}: the registry's epoch did not grow")
        if event.boot_id != self.boot_id:
            self.boots_left = set(self.live)
        elif self.boot_over is not None:
            self.found.append(f"{self.boot_over}: a boot is over that goes on")
        self.boot_over = None
        self.epoch, self.boot_id = event.epoch, event.boot_id

    def _reserved(self, where: str, event: ClaimReserved) -> None:
        key = (event.row.run_key, event.row.attempt)
        if self.boots_left or self.boot_over is not None:
            self.found.append(f"{where}: reserved while rows of another boot are held")
        if event.row.run_key not in self.runs:
            self.found.append(f"{where}: {key[1]} reserved by a run that is not registered")
        if key in self.live:
            self.found.append(f"{where}: {key[1]} reserved while held")
        if event.row.bound is not None:
            self.found.append(f"{where}: {key[1]} is born bound")
        self.live[key] = event.row
        sharing = set(event.row.envelope.device_uuids)
        near = [r for r in self.live.values() if sharing & set(r.envelope.device_uuids)]
        self.found += [f"{where}: {fault}" for fault in _holders_violations(near)]

    def _bound(self, where: str, event: ClaimBound) -> None:
        key = (event.run_key, event.attempt)
        row = self.live.get(key)
        if row is None:
            self.found.append(f"{where}: {key[1]} bound without a hold")
            return
        if row.bound is not None:
            self.found.append(f"{where}: {key[1]} bound twice")
        if event.run_key not in self.runs:
            self.found.append(f"{where}: {key[1]} bound by a run that is not registered")
        self.live[key] = row.model_copy(update={"bound": event.shim})

    def _released(self, where: str, event: ClaimReleased) -> None:
        key = (event.run_key, event.attempt)
        row = self.live.pop(key, None)
        if row is None:
            self.found.append(f"{where}: {key[1]} released without a hold, or twice")
            return
        registered = event.run_key in self.runs
        match event.reason:
            case "released":
                right = registered
            case "not_claimed_by_run":
                right = row.bound is None
            case "proved_absent":
                right = row.bound is not None
            case "other_boot":
                right = True
                if key not in self.boots_left:
                    self.boot_over = self.boot_over or where
        if not right:
            self.found.append(f"{where}: {key[1]} cannot end as {event.reason}")
        self.boots_left.discard(key)


def history_violations(events: Iterable[Any]) -> list[str]:
    """What is wrong with a history, from the registry's first event; empty when nothing is."""
    history = _History()
    for index, event in enumerate(events, start=1):
        history.read(index, event)
    return history.found
