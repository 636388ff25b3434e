"""The class of a failure, from the facts of its end; its telling line and a hint, from its log.

What a program wrote never decides the class: a test that is named "permission denied" may pass, and
a program that was killed may have talked of memory. Words are a hint beside the facts. Derived
telemetry: it never alters retries, ranking or results. Source: the original system's failure
categories.
"""

from __future__ import annotations

import errno
import re

from ..protocol.events import FailureCategory
from .repaint import as_seen, without_bar

SIGNATURE_CHARACTERS_MAX = 320
HINT_CHARACTERS_MAX = 320
SHELL_SIGNAL_BASE = 128

_OWN_FAULTS = frozenset((4, 5, 6, 7, 8, 11, 13, 31))
"""ILL TRAP ABRT BUS FPE SEGV PIPE SYS: a program brings these on itself."""
_LIMITS = frozenset((24, 25))
"""XCPU XFSZ."""

_ERROR = re.compile(
    r"\w*(Error|Exception|Interrupt|Exit)\b\s*(:|\(|$)"
    r"|^\W*(?i:(\S+: )?(fatal|error|panic|critical|abort|aborted|killed|terminated)\b)"
    r"|(?i:\berror\b\s*[:=]|\[(error|fatal|critical)\])"
    r"|(?i:segmentation fault|bus error|core dumped|out of memory|no space left|disk quota exceeded"
    r"|cannot allocate|no such file|not found\b|no module named|permission denied"
    r"|operation not permitted|access denied|connection (refused|reset)|timed out"
    r"|\b(cannot|can't|could not|couldn't|unable to|failed)\b)"
)
_NO_ERROR = re.compile(r"(?i)\b(0|no|without|zero) (errors?|failures?|failed)\b|\bpassed\b")
_CHATTER = re.compile(r"^\s*wandb:(?! (ERROR|Error))")
"""What a tool says at every end, also of what failed."""

_HINTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("resource", ("out of memory", "outofmemory", "cannot allocate memory", "memoryerror",
                  "no space left on device", "disk quota exceeded", "oom-kill",
                  "resource temporarily unavailable")),
    ("permission", ("permission denied", "permissionerror", "operation not permitted",
                    "access denied")),
    ("environment", ("modulenotfounderror", "importerror", "no module named", "command not found",
                     "no such file or directory", "filenotfounderror", "shared object file",
                     "undefined symbol", "version `")),
    ("interrupted", ("keyboardinterrupt", "terminated", "killed")),
)  # fmt: skip


def telling_line(log_tail: str) -> str | None:
    """The last line that looks like an error, else the last; cut, control characters replaced."""
    lines = _lines(log_tail)
    last = next((line for line in lines if not _CHATTER.match(line)), None)
    return next((line for line in lines if _is_error(line)), last)


def _lines(log_tail: str) -> list[str]:
    """The lines that say something, the last one first; a progress bar says nothing."""
    found = (
        "".join(letter if letter.isprintable() else "?" for letter in without_bar(line).strip())
        for line in reversed(as_seen(log_tail).splitlines())
    )
    return [line[:SIGNATURE_CHARACTERS_MAX] for line in found if line]


def _is_error(line: str) -> bool:
    return (
        _ERROR.search(line) is not None
        and _NO_ERROR.search(line) is None
        and _CHATTER.match(line) is None
    )


def category(
    outcome: str | None, exit_code: int | None, signal: int | None, number: int | None
) -> FailureCategory:
    """The class, by how the attempt ended. `number`: the errno of a failed exec."""
    if outcome == "exec_failed":
        return "permission" if number in (errno.EACCES, errno.EPERM) else "environment"
    if signal is not None:
        if signal in _LIMITS:
            return "resource"
        return "experiment" if signal in _OWN_FAULTS else "interrupted"
    return "experiment" if outcome == "exited" and exit_code is not None else "unclassified"


def hint(log_tail: str, exit_code: int | None, seen: str) -> str | None:
    """What may be behind a failure: what was `seen` at its end, what its error line speaks of."""
    found = [seen] if seen else []
    line = next((line.lower() for line in _lines(log_tail) if _is_error(line)), "")
    for name, marks in _HINTS:
        words = next((mark for mark in marks if mark in line), None)
        if words is not None:
            found.append(f"its log speaks of {words!r} ({name})")
            break
    if exit_code is not None and SHELL_SIGNAL_BASE < exit_code <= SHELL_SIGNAL_BASE + 64:
        number = exit_code - SHELL_SIGNAL_BASE
        found.append(f"exit {exit_code} is how a shell tells a death by signal {number}")
    return "; ".join(found)[:HINT_CHARACTERS_MAX] or None
