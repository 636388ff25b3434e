"""Whether the process that a file names still lives, told without the protocol's models.

The same rule as `host.identity` (boot id, pid namespace, pid and start ticks must all match, and
unknown never matches), for the client, which must start fast. Source: proc(5). Standard library
only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from ..errors import PraxistError


@dataclass(frozen=True, slots=True)
class NamedProcess:
    """A process as a file names it."""

    boot_id: str
    pid_namespace: int
    pid: int
    start_ticks: int

    @classmethod
    def of(cls, value: object) -> NamedProcess:
        """From JSON. Raises `path_unusable` when the form is wrong."""
        if not isinstance(value, dict):
            raise PraxistError("path_unusable", "a process must be an object")
        boot_id, numbers = value.get("boot_id"), []
        for name in ("pid_namespace", "pid", "start_ticks"):
            number = value.get(name)
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise PraxistError("path_unusable", f"a process's {name} must be a number")
            numbers.append(number)
        if not isinstance(boot_id, str) or len(boot_id) > 64:
            raise PraxistError("path_unusable", "a process's boot_id must be a short string")
        return cls(boot_id, *numbers)


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def boot_id() -> str:
    """This boot's id."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def own_namespace() -> int:
    """Inode of our pid namespace."""
    return os.stat("/proc/self/ns/pid").st_ino


def liveness(process: NamedProcess) -> Literal["alive", "gone", "unknown"]:
    """`gone` is proved; `unknown` is a process of another pid namespace of this boot."""
    if process.boot_id != boot_id():
        return "gone"
    if process.pid_namespace != own_namespace():
        return "unknown"
    return "alive" if start_ticks(process.pid) == process.start_ticks else "gone"
