"""The identity of a process: what must match before anything is signalled or adopted; and what can
be seen of the processes of an attempt, for `core.proof` to judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from .base import Frozen


class ProcessIdentity(Frozen):
    """(boot id, pid namespace, pid, start ticks). Two identities with an unknown part never match.

    Start ticks are field 22 of /proc/PID/stat (proc(5)): monotonic, so a step of the wall clock
    does not change them.
    """

    boot_id: str = Field(description="/proc/sys/kernel/random/boot_id", max_length=64)
    pid_namespace: int = Field(ge=0, description="Inode of /proc/PID/ns/pid")
    pid: int = Field(gt=0, description="Process id in that namespace")
    start_ticks: int = Field(gt=0, description="Clock ticks after boot at which it started")


@dataclass(frozen=True, slots=True)
class Sighting:
    """What can be seen from here of an attempt that was bound to a shim. Facts, no verdict."""

    same_boot: bool
    """Whether the shim belongs to the boot of now."""
    namespace: Literal["own", "dead", "other"]
    """The shim's pid namespace: ours; proved to hold no process any more; or neither."""
    shim_alive: bool = False
    """Known only in our own namespace."""
    lock: Literal["held", "free", "unknown"] = "unknown"
    """The lock on the attempt's log. Held: whoever holds it lives, whatever its namespace."""
    found: int | None = None
    """Processes that a search of our namespace found; None when none was made."""
    empty_looks: int = 0
    """Searches in a row, a moment apart, that found nothing."""
    presumed_dead: bool = False
    """Whether an operator has said so, on record."""
