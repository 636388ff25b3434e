"""The identity of a process: what must match before anything is signalled or adopted."""

from __future__ import annotations

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
