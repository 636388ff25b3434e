"""The kind of a failure and its telling line, from the end of a log.

Derived telemetry: it never alters retries, ranking or results. Source: the original system's
failure categories.
"""

from __future__ import annotations

from ..protocol.events import FailureCategory

SIGNATURE_CHARACTERS_MAX = 320

_MARKS: tuple[tuple[FailureCategory, tuple[str, ...]], ...] = (
    ("resource", ("out of memory", "outofmemory", "cannot allocate memory", "memoryerror",
                  "no space left on device", "cuda_error_out_of_memory", "oom-kill",
                  "resource temporarily unavailable")),
    ("permission", ("permission denied", "permissionerror", "operation not permitted",
                    "access denied")),
    ("environment", ("modulenotfounderror", "importerror", "no module named", "command not found",
                     "no such file or directory", "filenotfounderror", "shared object file",
                     "undefined symbol", "version `")),
    ("interrupted", ("keyboardinterrupt", "terminated", "killed")),
)  # fmt: skip


def signature(log_tail: str) -> str | None:
    """The last line that says something, cut to 320 characters; control characters replaced."""
    for line in reversed(log_tail.splitlines()):
        text = "".join(c if c.isprintable() else "?" for c in line.strip())
        if text:
            return text[:SIGNATURE_CHARACTERS_MAX]
    return None


def category(log_tail: str, signal: int | None) -> FailureCategory:
    """The kind of failure, as far as words in the log tell."""
    text = log_tail.lower()
    for name, marks in _MARKS:
        if name == "interrupted":
            continue
        if any(mark in text for mark in marks):
            return name
    if signal is not None:
        return "interrupted"
    if any(mark in text for mark in dict(_MARKS)["interrupted"]):
        return "interrupted"
    return "experiment" if text.strip() else "unclassified"
