"""Global options: one value for a whole call, settable before and after the verb.

Holds what was typed; decides nothing but the output format. Standard library and click only.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from .duration import DURATION

FORMATS = ("table", "plain", "json", "jsonl", "name")
REQUEST_TIMEOUT_S = 10.0

RUN_DIR_HELP = (
    "The run; else PRAXIST_RUN_DIR, else that around this folder, else the only live one."
)

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
    path: tuple[str, ...] = ()
    """The same, and a group's own after it."""
    about: str | None = None
    """The job or jobs that were named, for advice only."""
    run: str | None = None
    """The run that was found, for advice only."""
    inherited: set[str] = field(default_factory=set)
    """Which of these the environment gave: what is typed goes before."""

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
    settings_of(ctx).path = tuple(ctx.command_path.split()[1:])
    if value is None or value is False or param.name is None:
        return
    settings = settings_of(ctx)
    # Three say the form of the answer: one that is typed goes before any variable of them.
    others = _FORMS - {param.name} if param.name in _FORMS else frozenset()
    if ctx.get_parameter_source(param.name) is click.core.ParameterSource.ENVIRONMENT:
        if any(getattr(settings, other) and other not in settings.inherited for other in others):
            return
        settings.inherited.add(param.name)
    else:
        settings.inherited.discard(param.name)
        for other in others & settings.inherited:
            setattr(settings, other, None if other == "output" else False)
    setattr(settings, param.name, value)


_HOME = re.compile(
    r"(--(?:run-dir|cwd|config|host-scope|result-file|file|output|copy)=)(~[^/]*(?:/.*)?)"
)


def expand_home(arguments: Sequence[str]) -> list[str]:
    """`--run-dir=~/x` with the home directory in it: shells leave a tilde after `=` as it is."""
    own = arguments.index("--") if "--" in arguments else len(arguments)
    return [
        match[1] + os.path.expanduser(match[2])
        if at < own and (match := _HOME.fullmatch(word))
        else word
        for at, word in enumerate(arguments)
    ]


_GLOBAL: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "run_dir": (
        ("--run-dir",),
        {"metavar": "DIR", "help": RUN_DIR_HELP},
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
            "help": "Longest wait for one answer of the scheduler [10s]. DUR: 900, 15m, 1h30m, 2d.",
        },
    ),
}
GLOBAL_NAMES = tuple(_GLOBAL)
_FORMS = frozenset({"json", "output", "quiet"})

ENVIRONMENT_PREFIX = "PRAXIST_ZMQ"
TYPED_ONLY = frozenset(
    {
        "yes", "every", "everything", "rerun", "retry_terminal", "allow_duplicate",
        "allow_unsatisfiable", "tag", "run_dir", "watch", "follow",
    }
)  # fmt: skip
"""What is meant for one call, or takes a safeguard away, is never taken from the environment. The
run has a variable of its own."""


def take_environment(
    command: click.Command, prefix: str = ENVIRONMENT_PREFIX, *, verb: bool = True
) -> None:
    """Let options be given by variables: PRAXIST_ZMQ_OPTION for the global ones, in the place of
    those typed before the verb, and PRAXIST_ZMQ_VERB_OPTION for a verb's own. The run has a
    variable of its own, PRAXIST_RUN_DIR, and so have some others."""
    for param in command.params:
        if not isinstance(param, click.Option) or param.name in TYPED_ONLY or param.is_eager:
            continue
        if param.envvar is None and not (verb and param.callback is _store):
            param.envvar = f"{prefix}_{_variable(max(param.opts, key=len))}"
    for name, each in command.commands.items() if isinstance(command, click.Group) else ():
        take_environment(each, f"{prefix}_{_variable(name)}")


def _variable(name: str) -> str:
    return name.lstrip("-").replace("-", "_").upper()


def variables(command: click.Command) -> list[str]:
    """The variables that stand for options of a command, those of its own commands included."""
    found = [str(param.envvar) for param in command.params if param.envvar is not None]
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        found += variables(each)
    return found


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
