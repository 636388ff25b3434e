"""Values for tests of the claim registry: runs, shims, envelopes, commands."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

from praxist_zmq.core.claim_commands import ClaimCommand
from praxist_zmq.core.decision import Stamp
from praxist_zmq.protocol.claims import (
    ClaimLease,
    DeviceFacts,
    Envelope,
    ReleaseLease,
    Reserve,
    RunRow,
)
from praxist_zmq.protocol.process import ProcessIdentity

BOOT = "11111111-1111-4111-8111-111111111111"
_request_numbers = itertools.count(1)


def run_key(name: str) -> str:
    """The key of a run by name: that of its directory."""
    return hashlib.sha256(run_directory(name).encode()).hexdigest()


def run_directory(name: str) -> str:
    """Where the run of that name is. It need not exist, and a name may be a path itself."""
    return name if name.startswith("/") else f"/runs/{name}"


def process(pid: int, boot: str = BOOT, ticks: int = 1000) -> ProcessIdentity:
    """An identity; it need not exist."""
    return ProcessIdentity(boot_id=boot, pid_namespace=4026531836, pid=pid, start_ticks=ticks)


def run_row(
    name: str, epoch: int = 1, broker: ProcessIdentity | None = None, limit: int = 8
) -> RunRow:
    """A run's row."""
    return RunRow(
        run_key=run_key(name),
        run_id=name.rpartition("/")[2],
        run_dir=run_directory(name),
        user="tester",
        broker=broker or process(100 + epoch),
        epoch=epoch,
        running=0,
        queued=0,
        limit=limit,
    )


def exclusive(*devices: str) -> Envelope:
    """A hold that nobody shares."""
    return Envelope(device_uuids=devices, exclusive=True, memory_mib=1024, utilization_pct=50.0)


def shared(*devices: str, memory_mib: int | None = 1024) -> Envelope:
    """A hold that others may join while its demand is known."""
    return Envelope(
        device_uuids=devices, exclusive=False, memory_mib=memory_mib, utilization_pct=20.0
    )


def facts(
    *devices: str,
    memory_mib: int | None = 81_920,
    foreign_mib: int | None = 0,
    foreign_pct: float | None = 0.0,
) -> tuple[DeviceFacts, ...]:
    """What a run saw of these devices; by default nobody else is on them."""
    return tuple(
        DeviceFacts(
            uuid=device,
            memory_total_mib=memory_mib,
            foreign_memory_mib=foreign_mib,
            foreign_utilization_pct=foreign_pct,
        )
        for device in devices
    )


def reserve(
    name: str,
    attempt: str,
    envelope: Envelope,
    epoch: int = 1,
    seen: tuple[DeviceFacts, ...] | None = None,
) -> Reserve:
    """A plan to commit; `seen` are its facts, by default those of idle devices."""
    return Reserve(
        registration=1,
        run_key=run_key(name),
        epoch=epoch,
        attempt=attempt,
        envelope=envelope,
        facts=facts(*envelope.device_uuids) if seen is None else seen,
    )


def lease_name(number: int) -> str:
    """The name of a lease."""
    return f"supply-{number}-{number:016x}"


def claim_lease(
    name: str,
    number: int,
    envelope: Envelope,
    epoch: int = 1,
    seen: tuple[DeviceFacts, ...] | None = None,
    window_ms: int = 60_000,
) -> ClaimLease:
    """Room for an offer; `seen` are its facts, by default those of idle devices."""
    return ClaimLease(
        registration=1,
        run_key=run_key(name),
        epoch=epoch,
        lease_id=lease_name(number),
        envelope=envelope,
        facts=facts(*envelope.device_uuids) if seen is None else seen,
        window_ms=window_ms,
    )


def release_lease(name: str, number: int, epoch: int = 1) -> ReleaseLease:
    """The offer is over."""
    return ReleaseLease(
        registration=1, run_key=run_key(name), epoch=epoch, lease_id=lease_name(number)
    )


def command(
    request: Any,
    request_id: str | None = None,
    address: Any = b"a",
    uid: int = 1000,
    pid: int | None = None,
) -> ClaimCommand:
    """A request as the shell hands it on; each has a fresh request id unless one is given. It comes
    from the process `pid`, by default that of `run_row` for its epoch."""
    chosen = request_id or f"request-{next(_request_numbers)}"
    if pid is None:
        pid = 100 + getattr(request, "epoch", 0)
    return ClaimCommand(address=address, request_id=chosen, request=request, uid=uid, pid=pid)


def stamp(mono_ms: int = 0) -> Stamp:
    """A time of arrival."""
    return Stamp(at_ms=1_700_000_000_000 + mono_ms, mono_ms=mono_ms)
