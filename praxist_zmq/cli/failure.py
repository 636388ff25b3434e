"""How a call that failed ends: two or three lines on stderr, or one error document on stdout.

Standard library and click only.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from typing import Any

import click

from .. import __version__
from ..errors import ERRORS, PraxistError
from .output import document, talk
from .settings import Settings
from .words import PROGRAM, safe, wrapped

REJECTING = frozenset(
    {"admission_closed", "already_running", "not_yours", "contract_invalid", "outcome_unknown"}
)


def verdict_word(error: PraxistError) -> str:
    """`rejected` when sending the same again is no use, else `unavailable`."""
    if error.code in REJECTING or error.exit_code in (2, 65):
        return "rejected"
    return "unavailable"


def error_lines(error: PraxistError, subject: str = "") -> list[str]:
    """The text of an error: verdict word, what, where, and how to mend it."""
    head = f"{verdict_word(error)}  " + (f"{safe(subject)}  " if subject else "")
    first, *rest = safe_lines(f"{error.row.title}: {error.detail}" if error.detail else "")
    lines = [head + (first or error.row.title), *(f"  {line}" for line in rest)]
    for line in error.help or [error.row.help]:
        lines += wrapped("help", line)
    return lines


def safe_lines(text: str) -> list[str]:
    """The lines of a text that may hold line feeds of ours, each made safe."""
    return [safe(line) for line in text.split("\n")][:40] or [""]


def report_error(error: PraxistError, settings: Settings) -> int:
    """Tell it; the exit status."""
    if settings.is_json:
        document(error.document())
    else:
        talk(*error_lines(error))
        if settings.verbose:
            again = "may be sent again" if error.row.retryable else "not worth sending again"
            talk(f"  code  {error.code}, exit {error.exit_code}, {again}")
    return error.exit_code


def report_usage(error: click.ClickException, settings: Settings) -> int:
    """Tell how the command was mistyped; exit status 2."""
    message = safe(error.format_message())
    row = ERRORS["usage"]
    if settings.is_json:
        document(PraxistError("usage", message).document())
        return row.exit_code
    ctx = getattr(error, "ctx", None)
    lines = [f"usage  {message}"]
    if isinstance(ctx, click.Context):
        form = " ".join(ctx.get_usage().removeprefix("Usage:").split())
        lines += [f"  form  {safe(form)}", f"  help  {safe(ctx.command_path)} --help"]
    talk(*lines)
    return row.exit_code


def report_fault(fault: Exception, arguments: list[str], settings: Settings) -> int:
    """A fault of ours: file the traceback, tell one line; exit status 70.

    The report holds our own part of the command line only, never what follows `--`.
    """
    path = _report_file(fault, arguments)
    where = f"report: {path}" if path else "no report file could be written"
    error = PraxistError("internal", f"{type(fault).__name__}; {where}")
    if settings.is_json:
        document(error.document())
    else:
        talk(f"unavailable  {error.row.title}: {safe(error.detail)}")
    return error.exit_code


def _report_file(fault: Exception, arguments: list[str]) -> str | None:
    try:
        descriptor, path = tempfile.mkstemp(prefix=f"{PROGRAM}-fault-", suffix=".txt")
    except OSError:
        return None
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{PROGRAM} {__version__}, Python {sys.version}\n")
        file.write(f"arguments: {arguments!r}\n\n")
        file.writelines(traceback.format_exception(fault))
    return path


def error_document(error: PraxistError) -> dict[str, Any]:
    """An error inside another document: without the two head keys."""
    body = error.document()
    return {key: value for key, value in body.items() if key not in ("format_version", "kind")}
