"""How a call that failed ends: a few lines on stderr, or one error document on stdout.

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
from .advice import helps
from .output import document, talk
from .settings import Settings
from .words import LINE_COLUMNS, PROGRAM, fitted, safe, wrapped

REJECTING = frozenset(
    {
        "admission_closed",
        "already_running",
        "not_yours",
        "contract_invalid",
        "outcome_unknown",
        "generation_closing",
        "generation_assessment",
        "insufficient_generation_time",
        "generation_unknown",
    }
)


def verdict_word(error: PraxistError) -> str:
    """`rejected` when sending the same again is no use, else `unavailable`."""
    if error.code in REJECTING or error.exit_code in (2, 65):
        return "rejected"
    return "unavailable"


FIRST_WORDS = {
    "usage": "usage",
    "binding_conflict": "conflict",
    "wait_timeout": "timeout",
    "admission_timeout": "withdrawn",
    "interrupted": "detached",
}
"""What is no verdict on a request: nothing was refused, and nothing is away."""


def first_word(error: PraxistError) -> str:
    """The first word of an error's text, where it need not be a verdict."""
    return FIRST_WORDS.get(error.code) or verdict_word(error)


class UsageHelp(click.UsageError):
    """A mistyped command, with advice on the mend."""

    def __init__(
        self, message: str, ctx: click.Context | None, help: list[str], example: str | None = None
    ) -> None:
        super().__init__(message, ctx)
        self.help = help
        self.example = example
        """The command line that was probably meant."""


def error_lines(
    error: PraxistError, settings: Settings, subject: str = "", *, word: str | None = None
) -> list[str]:
    """The text of an error: first word, what, where, and how to mend it."""
    head = f"{word or first_word(error)}  " + (f"{safe(subject)}  " if subject else "")
    first, *rest = safe_lines(_sentence(error))
    lines = [head + first, *(f"  {line}" for line in rest)]
    for line in helps(error, settings):
        lines += wrapped("help", line)
    return lines


def _sentence(error: PraxistError) -> str:
    """Title and detail, without saying the same twice."""
    if not error.detail:
        return error.row.title
    says_it = error.code == "usage" or (
        error.code in ("unknown_job", "no_run") and error.detail.startswith("no ")
    )
    says_it |= error.code == "generation_unknown" and error.detail.endswith("was never opened")
    return error.detail if says_it else f"{error.row.title}: {error.detail}"


def safe_lines(text: str, most: int = 40) -> list[str]:
    """The lines of a text that may hold line feeds of ours, each made safe."""
    return [safe(line) for line in text.split("\n")][:most]


def report_error(error: PraxistError, settings: Settings) -> int:
    """Tell it; the exit status."""
    if settings.is_json:
        error.help = helps(error, settings)
        document(error.document())
    else:
        talk(*error_lines(error, settings))
        talk(*code_lines(error.code, error.exit_code, settings))
    return error.exit_code


def code_lines(code: str, exit_code: int, settings: Settings) -> list[str]:
    """What `-v` adds to an error; nothing without it."""
    if not settings.verbose:
        return []
    again = "may be sent again" if ERRORS[code].retryable else "not worth sending again"
    return [f"  code  {code}, exit {exit_code}, {again}"]


def report_usage(error: click.ClickException, settings: Settings) -> int:
    """Tell how the command was mistyped; exit status 2."""
    row = ERRORS["usage"]
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    advice = error.help if isinstance(error, UsageHelp) else []
    example = error.example if isinstance(error, UsageHelp) else None
    bare = isinstance(error, click.exceptions.NoArgsIsHelpError) or (
        error.format_message() == "Missing command."
    )
    first, *rest = ["a verb is missing"] if bare else click_lines(error.format_message())
    if settings.is_json:
        text = " ".join([first, *(line.strip() for line in rest)])
        pages = [] if ctx is None else [f"{ctx.command_path} --help"]
        tried = [] if example is None else [example]
        document(PraxistError("usage", text, [*advice, *tried, *pages]).document())
        return row.exit_code
    if bare and ctx is not None:
        talk(*click_lines(ctx.get_help()))
        return row.exit_code
    lines = fitted(f"usage  {first}", LINE_COLUMNS)
    lines += [f"         {line.strip()}" for line in rest]
    if ctx is not None:
        lines.append(f"  form  {safe(form_of(ctx))}")
        for line in advice:
            lines += wrapped("help", line)
        if example is not None:
            lines.append(f"  try   {safe(example)}")
        lines.append(f"  help  {safe(ctx.command_path)} --help")
    talk(*lines, *code_lines(row.code, row.exit_code, settings))
    return row.exit_code


def click_lines(text: str) -> list[str]:
    """The lines of one of click's texts: its line feeds and tabs stay, all else is made safe."""
    return safe_lines(text.expandtabs(2), most=200)


def form_of(ctx: click.Context) -> str:
    """How the command is written, on one line; nothing is broken inside a word."""
    return " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])


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
