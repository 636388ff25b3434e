"""What became of the units, and the summary of their failures that is always kept.

Decides the signature by which errors count as identical, and the evaluator's exit status. The
summary is written beside itself and renamed, so a reader never meets half of it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from .unit import TEMPORARY

Status = Literal["succeeded", "scientific", "error", "timeout", "interrupted"]
SUMMARY_NAME = "unit_failures.json"
TAIL_BYTES = 4_096
SIGNATURE_CHARACTERS_MAX = 300
_HEX = re.compile(r"\b0x[0-9a-fA-F]+\b")
_DEVICE = re.compile(r"\b(?:GPU|MIG)-[0-9A-Za-z./-]+")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class UnitAttempt:
    """One try of a unit. Times are RFC 3339, UTC; `seconds` is its duration."""

    unit: str
    attempt: int
    status: Status
    exit_code: int | None
    signal: int | None
    signature: str | None
    tail: str
    device: str | None
    started_at: str
    ended_at: str
    seconds: float
    log: str
    left: tuple[int, ...] = ()
    """Processes of it that could not be ended."""


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """One unit: its last status (`not_run`: it never started), its tries, its result."""

    key: str
    status: Status | Literal["not_run"]
    attempts: tuple[UnitAttempt, ...]
    result: Any = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """All units, in the order they were given in, whatever order they ended in.

    `aggregate` is what the caller's function made of all results; None when a unit has none.
    `failed_fast` is the signature that stopped the rest. `unused_devices` were given to the
    attempt and had no unit: such a profile claims more devices than it uses.
    """

    units: tuple[UnitOutcome, ...]
    aggregate: Any
    failed_fast: str | None
    unused_devices: tuple[str, ...]
    summary: Path

    @property
    def results(self) -> dict[str, Any]:
        """The results of those that succeeded, in the order of the units."""
        return {unit.key: unit.result for unit in self.units if unit.status == "succeeded"}

    @property
    def complete(self) -> bool:
        """Whether every unit succeeded."""
        return all(unit.status == "succeeded" for unit in self.units)

    @property
    def exit_code(self) -> int:
        """For the evaluator: 0; 75 when nothing but passing faults stand in the way; else 1.

        The scheduler tries an attempt that ends with 75 again by itself, so 75 needs every unit
        that has no result to have ended with 75 itself, or to have been left out because of it.
        """
        if self.complete:
            return 0
        open_units = [unit for unit in self.units if unit.status != "succeeded"]
        last = [unit.attempts[-1].exit_code for unit in open_units if unit.attempts]
        return TEMPORARY if last and set(last) == {TEMPORARY} else 1


@dataclass(slots=True)
class Summary:
    """The summary's file, written anew at each failure and at the end."""

    path: Path
    total: int
    attempt: str | None
    succeeded: int = 0
    failed_fast: str | None = None
    stopped_by: str | None = None
    not_run: tuple[str, ...] = ()
    unused_devices: tuple[str, ...] = ()
    finished: bool = False
    failures: list[UnitAttempt] = field(default_factory=list)

    def write(self) -> None:
        """Replace the file, in its directory made again where a unit's program removed it. Raises
        OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = {"format_version": "1.0", "kind": "unit_failures", **asdict(self)}
        del content["path"]
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.write("\n")
        os.replace(beside, self.path)


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """A file that a unit's program left, or put something else in the place of: opening a FIFO
    would wait for ever. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no plain file", os.fspath(path))
    return os.fdopen(descriptor, "rb")


def tail_of(log: Path) -> str:
    """The end of a log, at most 4 KiB, as text; nothing when the unit's program took it away."""
    try:
        with open_plain(log) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def signature_of(how: str, tail: str, key: str, devices: Iterable[str]) -> str:
    """How it ended and its last line, without what differs between equal errors.

    >>> signature_of("exit 1", "boot\\nValueError: fold 3 of /tmp/x7\\n", "fold 3", [])
    'exit 1: ValueError: UNIT of /tmp/xN'
    """
    lines = [line for line in tail.splitlines() if line.strip()]
    text = lines[-1] if lines else "(no output)"
    for device in devices:
        text = text.replace(device, "DEVICE")
    text = _DEVICE.sub("DEVICE", text).replace(key, "UNIT")
    text = _NUMBER.sub("N", _HEX.sub("ADDRESS", text))
    return f"{how}: {' '.join(text.split())}"[:SIGNATURE_CHARACTERS_MAX]
