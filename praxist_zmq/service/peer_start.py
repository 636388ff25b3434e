"""Legacy mode: a peer starts its evaluator itself, protected by a manifest while it runs.

Decides whether the peer may start it now: not under the run's fence, not beyond the peer's cap,
not twice under one tag. The order is what keeps it safe: under the folder's lock the child is
forked and held, its manifest is written whole, the fence is looked at again, and only then it
begins. So whoever set the fence first and looks at manifests next misses nothing. Never signals
a process but its own child. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import PraxistError
from ..host.clock import SystemClock, pause_ms
from ..host.paths import RunPaths
from ..host.plain_child import PlainChild
from ..host.protected import Manifest, ProtectedFolder, group_and_user, named
from ..host.spawn import Exit, utc_now

POLL_MS_MIN = 50
_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Slot:
    """What a peer asks for: a place under a tag. `max_active` None is no cap."""

    peer: str
    tag: str | None
    eta_seconds: float | None = None
    allow_duplicate: bool = False
    max_active: int | None = None


@dataclass(frozen=True, slots=True)
class PeerStart:
    """One evaluator to start. `wait_s` None: refuse at once what can't start at once."""

    slot: Slot
    command: tuple[bytes, ...]
    cwd: bytes | None = None
    wait_s: float | None = None
    poll_s: float = 2.0
    to_stderr: bool = False
    """Its stdout goes to our stderr, where our own stdout is a document."""


def check_fence(run: RunPaths) -> None:
    """Raises `admission_closed` when the run is being shut down."""
    if os.path.lexists(run.shutdown_fence):
        raise PraxistError(
            "admission_closed",
            f"{run.shutdown_fence} is there: the run is being shut down",
            ["start nothing more in this run"],
        )


def start_as_peer(
    run: RunPaths,
    start: PeerStart,
    waits: Callable[[PraxistError], None],
    began: Callable[[Manifest], None],
) -> Exit:
    """Start it when that is allowed, and wait until its whole process group is gone.

    `waits` is told once, why it can't start yet; `began` once it runs. Raises `admission_closed`,
    `peer_at_capacity`, `already_protected`, `bad_command`, `bad_directory`, `start_failed`, and
    what the folder of manifests raises.
    """
    folder = ProtectedFolder(run)
    until_ms = None if start.wait_s is None else _CLOCK.mono_ms() + int(start.wait_s * 1000)
    told = False
    while True:
        check_fence(run)
        with folder.locked():
            refusal = refusal_of(folder, start.slot)
            if refusal is None:
                child, manifest = _begin(run, folder, start)
                break
        left_ms = 0 if until_ms is None else until_ms - _CLOCK.mono_ms()
        if left_ms <= 0:
            raise refusal
        if not told:
            told = True
            waits(refusal)
        pause_ms(min(left_ms, max(POLL_MS_MIN, int(start.poll_s * 1000))))
    began(manifest)
    ended = child.wait()
    folder.remove(manifest.name)
    return ended


def refusal_of(folder: ProtectedFolder, slot: Slot, but: str | None = None) -> PraxistError | None:
    """Why the peer may not have that slot now; None when it may. The caller holds the lock.

    `but` is the file of the process that asks. Manifests of peers' own processes that are proved
    gone are taken away.
    """
    active = []
    for entry in folder.read().entries:
        if entry.state == "stale" and entry.manifest.attempt is None:
            folder.remove(entry.file)
        elif entry.counts and entry.manifest.peer == slot.peer and entry.file != but:
            active.append(entry.manifest)
    same = [m.process.pid for m in active if slot.tag and m.tag == slot.tag]
    if same and not slot.allow_duplicate:
        return PraxistError(
            "already_protected", f"peer {slot.peer} runs tag {slot.tag!r} as pid {same[0]}"
        )
    if slot.max_active is not None and len(active) >= slot.max_active:
        pids = ", ".join(str(m.process.pid) for m in active[:20])
        return PraxistError(
            "peer_at_capacity",
            f"peer {slot.peer} runs {len(active)} of {slot.max_active}: pid {pids}",
        )
    return None


def _begin(run: RunPaths, folder: ProtectedFolder, start: PeerStart) -> tuple[PlainChild, Manifest]:
    child = PlainChild(start.command, start.cwd, to_stderr=start.to_stderr)
    manifest = None
    try:
        process = named(child.pid)
        if process is None:
            raise PraxistError("start_failed", "the child was killed before it began")
        manifest = Manifest(
            process=process,
            pgid=child.pid,
            peer=start.slot.peer,
            tag=start.slot.tag,
            command_hash=hashlib.sha256(b"\0".join(start.command)).hexdigest(),
            eta_seconds=start.slot.eta_seconds,
            started_at=utc_now(),
            launcher=named(os.getpid()),
        )
        folder.write(manifest)
        check_fence(run)
    except BaseException:
        child.abandon()
        if manifest is not None:
            folder.remove(manifest.name)
        raise
    try:
        child.release()
    except PraxistError:
        folder.remove(manifest.name)
        raise
    return child, manifest


def register(run: RunPaths, pid: int, slot: Slot) -> Manifest:
    """Protect a process that a peer started in another way.

    Again for the same process: its tag and times are renewed. Raises `malformed_request` when
    there is no such process, `not_yours`, `peer_at_capacity`, `already_protected`, and what the
    folder of manifests raises.
    """
    process = named(pid)
    found = None if process is None else group_and_user(process)
    if process is None or found is None:
        raise PraxistError(
            "malformed_request", f"no process {pid} runs here", ["give the pid of one that runs"]
        )
    group, user = found
    if user != os.geteuid() and os.geteuid() != 0:
        raise PraxistError("not_yours", f"process {pid} belongs to user {user}")
    folder = ProtectedFolder(run)
    manifest = Manifest(
        process=process,
        pgid=group,
        peer=slot.peer,
        tag=slot.tag,
        eta_seconds=slot.eta_seconds,
        started_at=utc_now(),
    )
    with folder.locked():
        refusal = refusal_of(folder, slot, but=manifest.name)
        if refusal is not None:
            raise refusal
        folder.write(manifest)
    return manifest


def unregister(run: RunPaths, pid: int, peer: str | None) -> int:
    """Take the manifests of a process of a peer's own away; how many there were.

    Raises `not_yours` for a process of the scheduler's, and what the folder raises.
    """
    folder = ProtectedFolder(run)
    chosen = [
        entry
        for entry in folder.read().entries
        if entry.manifest.process.pid == pid and peer in (None, entry.manifest.peer)
    ]
    own = [entry for entry in chosen if entry.manifest.attempt is None]
    if chosen and not own:
        raise PraxistError("not_yours", f"process {pid} is an attempt of the run's scheduler")
    return sum(folder.remove(entry.file) for entry in own)


def wait_clear(
    run: RunPaths, peer: str | None, tag: str | None, timeout_s: float | None, poll_s: float
) -> list[int]:
    """Wait until nothing proved live is protected for that peer and tag; the pids left if not."""
    folder = ProtectedFolder(run)
    until_ms = None if timeout_s is None else _CLOCK.mono_ms() + int(timeout_s * 1000)
    while True:
        left = [
            entry.manifest.process.pid
            for entry in folder.read().entries
            if entry.counts
            and peer in (None, entry.manifest.peer)
            and tag in (None, entry.manifest.tag)
        ]
        left_ms = None if until_ms is None else until_ms - _CLOCK.mono_ms()
        if not left or (left_ms is not None and left_ms <= 0):
            return left
        pause = max(POLL_MS_MIN, int(poll_s * 1000))
        pause_ms(pause if left_ms is None else min(pause, left_ms))
