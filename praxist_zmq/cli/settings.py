"""Global options: one value for a whole call, settable before and after the verb.

Holds what was typed; decides nothing but the output format. Standard library and click only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from .duration import DURATION

FORMATS = ("table", "plain", "json", "jsonl", "name")
REQUEST_TIMEOUT_S = 10.0

CallableT = TypeVar("CallableT", bound=Callable[..., Any])


@dataclass(slots=True)
class Settings:
    """What holds for every verb. Times are seconds."""

    run_dir: str | None = None
    json: bool = False
    output: str | None = None
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"
    timeout: float | None = None
    verb: str | None = None
    """The verb that was typed, for advice only."""
    about: str | None = None
    """The job or jobs that were named, for advice only."""
    run: str | None = None
    """The run that was found, for advice only."""

    @property
    def timeout_s(self) -> float:
        """How long one question may stay unanswered."""
        return REQUEST_TIMEOUT_S if self.timeout is None else self.timeout

    @property
    def format(self) -> str:
        """One of `FORMATS`: what was asked for, else by whether stdout is a terminal."""
        if self.output:
            return self.output
        if self.json:
            return "json"
        if self.quiet:
            return "name"
        return "table" if is_terminal(sys.stdout) else "plain"

    @property
    def is_json(self) -> bool:
        """Whether answers are documents."""
        return self.format in ("json", "jsonl")

    @property
    def colored(self) -> bool:
        """`--color`, then NO_COLOR, then FORCE_COLOR, then whether stdout is a terminal."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        return bool(os.environ.get("FORCE_COLOR")) or is_terminal(sys.stdout)


def is_terminal(stream: Any) -> bool:
    """Whether a stream is open and a terminal."""
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:
        return False


def settings_of(ctx: click.Context) -> Settings:
    """The settings of this call."""
    root = ctx.find_root()
    if not isinstance(root.obj, Settings):
        root.obj = Settings()
    settings: Settings = root.obj
    return settings


def _store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and value is not False and param.name is not None:
        setattr(settings_of(ctx), param.name, value)


_GLOBAL: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "run_dir": (
        ("--run-dir",),
        {"metavar": "DIR", "help": "The run's directory; else PRAXIST_RUN_DIR, else found."},
    ),
    "json": (("--json",), {"is_flag": True, "help": "One JSON document on stdout."}),
    "output": (
        ("-o", "--output"),
        {"type": click.Choice(FORMATS), "help": "Form of the answer on stdout."},
    ),
    "quiet": (("-q", "--quiet"), {"is_flag": True, "help": "Ids only; little talk on stderr."}),
    "verbose": (
        ("-v", "--verbose"),
        {"is_flag": True, "help": "Also say error codes and exit codes."},
    ),
    "color": (
        ("--color",),
        {"type": click.Choice(("auto", "always", "never")), "help": "Colour on stdout."},
    ),
    "timeout": (
        ("--timeout",),
        {
            "type": DURATION,
            "metavar": "DUR",
            "help": "Longest wait for one answer of the scheduler [10s].",
        },
    ),
}
GLOBAL_NAMES = tuple(_GLOBAL)


def global_options(
    *, without: tuple[str, ...] = (), told: dict[str, str] | None = None
) -> Callable[[CallableT], CallableT]:
    """Decorator: the global options, less those that the verb gives another meaning.

    `told` gives an option another help text where the verb's own says more.
    """

    def decorate(function: CallableT) -> CallableT:
        for name in reversed(GLOBAL_NAMES):
            if name in without:
                continue
            declarations, attributes = _GLOBAL[name]
            attributes = {"default": None, **attributes}
            if told is not None and name in told:
                attributes["help"] = told[name]
            if attributes.get("is_flag"):
                attributes["default"] = False
            option = click.option(
                name, *declarations, expose_value=False, callback=_store, **attributes
            )
            function = option(function)
        return function

    return decorate
