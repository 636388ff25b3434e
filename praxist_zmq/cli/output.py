"""Where words go: the answer to stdout, the talk to stderr; either may be closed.

A closed stderr must not end a wait: the talk is then dropped. A closed stdout ends the call
quietly, as a pipe's reader expects. Standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from .settings import Settings, is_terminal
from .words import fitted

COLUMNS_MIN = 40
CONTINUED = " " * 8
"""What `words.wrapped` begins a continuation with."""
TO_COPY = ("  try ", "  next ", "  log ")
"""Lines that people copy: the terminal breaks them, so that they stay one line."""

_answer_lost = False


def document(content: dict[str, Any]) -> None:
    """One JSON document, one line, on stdout."""
    answer(json_line(content))


def json_line(content: dict[str, Any]) -> str:
    """A JSON document on one line."""
    return json.dumps(content, ensure_ascii=True, separators=(",", ":"), default=str)


def answer(*lines: str) -> None:
    """Lines of the answer. The caller has made every foreign text safe."""
    if sys.stdout is None or not lines:
        return
    text = "\n".join(lines) + "\n"
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        lose_answer(error)


def lose_answer(error: OSError) -> None:
    """The place of the answer takes none: a full disk, a terminal that is gone. Told in one line;
    the wait goes on, and what it is for."""
    global _answer_lost
    silence_stdout()
    if not _answer_lost:
        _answer_lost = True
        talk(f"unavailable  the answer could not be written: {error.strerror or error}")


def answer_lost() -> bool:
    """Whether it was."""
    return _answer_lost


def terminal_columns() -> int:
    """Columns of the terminal, or COLUMNS, or 80."""
    return max(shutil.get_terminal_size((80, 24)).columns, COLUMNS_MIN)


def page(settings: Settings, lines: Iterable[str]) -> None:
    """A page of the answer: on a terminal broken at spaces, in a pipe as it is."""
    if settings.format != "table":
        answer(*lines)
        return
    columns = terminal_columns()
    answer(*(part for line in lines for part in fitted(line, columns)))


def talk(*lines: str) -> None:
    """Lines for whoever watches, fitted to a terminal. Losing them loses nothing."""
    if sys.stderr is None or not lines:
        return
    if is_terminal(sys.stderr):
        lines = _to_screen(lines, terminal_columns())
    text = "\n".join(lines) + "\n"
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    try:
        sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
    except (OSError, ValueError):
        # The reader is gone, or its disk is full. The wait, and the exit code with it, is what the
        # caller needs.
        _silence_stderr()


def _to_screen(lines: Iterable[str], columns: int) -> tuple[str, ...]:
    """Lines broken for a screen: what was broken for a wider one is first put together again."""
    whole: list[str] = []
    for line in lines:
        if whole and line.startswith(CONTINUED) and not line.startswith(CONTINUED + " "):
            whole[-1] += " " + line.strip()
        else:
            whole.append(line)
    return tuple(
        part
        for line in whole
        for part in ([line] if line.startswith(TO_COPY) else fitted(line, columns))
    )


def _silence_stderr() -> None:
    _to_nowhere(2)
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (lives with the process)


def silence_stdout() -> None:
    """After a broken pipe: nothing more is written, also not at interpreter exit."""
    _to_nowhere(1)


def _to_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def bold(text: str, settings: Settings, style: str = "1") -> str:
    """`text` in an ANSI style where colour is on; the style never carries meaning alone."""
    return f"\x1b[{style}m{text}\x1b[0m" if settings.colored else text


def watched_by_person() -> bool:
    """Whether stderr is a terminal, so that no heartbeat is needed."""
    return is_terminal(sys.stderr)
