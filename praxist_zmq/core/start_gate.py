"""Nothing starts while the host lacks what every start needs: room on the run's disk, processes.

An attempt that could not be started for such a lack goes back to its job at no cost. Then the whole
run pauses, longer with each attempt that meets the same, and one attempt tries it: when it starts,
the lack is over; what it lacked of its own is its job's pause alone (`pauses.py`).
Sources: design 5; the table in `host_shortage.py`.
"""

from __future__ import annotations

from ..protocol.views import Blocker
from .host_shortage import (
    MIB,
    HostShortage,
    disk_full_words,
    full_disk,
    lack_of,
    named,
)
from .soft import SoftState

PAUSE_MS, PAUSE_MAX_MS = 1_000, 30_000
UNTRIED_MS = 600_000
DETAIL_CHARACTERS_MAX = 200


def met(soft: SoftState, attempt: str, number: int, detail: str, *, runs_files: bool) -> None:
    """An attempt was taken back because the host lacked something."""
    lack = lack_of(number, runs_files=runs_files)
    if lack is None or lack.of_one_job:
        return
    soft.count("host_shortages")
    detail = f"{named(number)} ({lack.what}), {detail}"[:DETAIL_CHARACTERS_MAX]
    found = soft.shortage
    if found is None:
        until_ms = soft.now_ms + PAUSE_MS
        soft.shortage = HostShortage(number, detail, lack.mend, soft.now_ms, PAUSE_MS, until_ms)
        return
    found.number, found.detail, found.mend = number, detail, lack.mend
    found.withdrawn += 1
    if found.trial == attempt:
        found.trial = None
        found.pause_ms = min(PAUSE_MAX_MS, 2 * found.pause_ms)
    if found.trial is None:
        found.until_ms = soft.now_ms + found.pause_ms


def begin(soft: SoftState, attempt: str) -> None:
    """An attempt is planned; after a pause the first one is the trial."""
    if soft.shortage is not None and soft.shortage.trial is None:
        soft.shortage.trial = attempt


def withdraw(soft: SoftState, attempt: str) -> None:
    """It came to nothing, and tells nothing."""
    if soft.shortage is not None and soft.shortage.trial == attempt:
        soft.shortage.trial = None


def passed(soft: SoftState, attempt: str) -> None:
    """An attempt has come to its first instruction, or failed by a fault of its own. Others that
    were on their way when the lack was met say nothing of now."""
    if soft.shortage is not None and soft.shortage.trial == attempt:
        soft.shortage = None


def advance(soft: SoftState) -> None:
    """Forget a lack that nothing came to try."""
    found = soft.shortage
    if found is not None and found.trial is None and soft.now_ms >= found.until_ms + UNTRIED_MS:
        soft.shortage = None


def due_ms(soft: SoftState) -> int | None:
    """When one may try again, or `advance` has something to do."""
    found = soft.shortage
    if found is None or found.trial is not None:
        return None
    return found.until_ms + (0 if soft.now_ms < found.until_ms else UNTRIED_MS)


def shortage_words(soft: SoftState) -> str | None:
    """Why nothing starts for a lack that was met; None when something may."""
    found = soft.shortage
    if found is None:
        return None
    if found.trial is not None:
        return f"{found.detail}; {found.trial} tries it now"
    left_ms = found.until_ms - soft.now_ms
    if left_ms <= 0:
        return None
    return f"{found.detail}; one attempt tries it in {(left_ms + 999) // 1000} s"


def disk_words(soft: SoftState) -> str | None:
    """Why nothing starts for want of room on the run's disk."""
    full = disk_full_words(soft.disk)
    if full is not None:
        return f"the disk of the run is full: {full}"
    return ledger_words(soft) if soft.low_space else None


def ledger_words(soft: SoftState) -> str:
    """That the ledger has no room, and where that is no matter of its disk."""
    room = soft.disk
    if room is None or disk_full_words(room) is not None:
        return "the ledger has no room"
    free = f"{room.free_bytes // MIB} MiB of its disk are free"
    return f"the ledger has no room though {free}: a limit on the size of a file (ulimit -f)?"


def alarm(soft: SoftState) -> str | None:
    """One alarm for all that is lacked, with what mends it; None when nothing is."""
    full = disk_words(soft)
    if full is not None:
        lack = "DISK FULL" if disk_full_words(soft.disk) is not None else "NO ROOM"
        return (
            f"{lack}  {full}; nothing starts and no job fails for it; "
            "to mend: free space or inodes under the run's directory"
        )
    found = soft.shortage
    if found is None:
        return None
    words = shortage_words(soft) or f"{found.detail}; the next attempt tries it"
    taken = "attempt was" if found.withdrawn == 1 else "attempts were"
    return (
        f"HOST SHORTAGE  {words}; {found.withdrawn} {taken} taken back at no cost; "
        f"to mend: {found.mend}"
    )


def disk_blocker(words: str, soft: SoftState) -> Blocker:
    """The blocker of a full disk, with its numbers."""
    full = full_disk(soft.disk)
    if full is None:
        return Blocker(code="disk_full", detail=words)
    return Blocker(code="disk_full", detail=words, need=full.need, free=full.free, unit=full.unit)
