"""`config`: the contract, without a scheduler: write one, check it, see and explain its values.

Only `config show` without a FILE asks a run. Changes nothing but the file that `-o` names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from ..errors import PraxistError
from ..service.policy_schema import SCHEMA_FILE, task_schema
from ..service.policy_template import TemplateSize, template
from . import output
from .config_check import check_command
from .config_show import explain_command, show_command
from .settings import Settings, global_options, settings_of
from .words import safe

_FILE_MODE = 0o666


@click.group("config")
def command() -> None:
    """Write, check and explain the contract."""


@command.command("init")
@click.option("--minimal", is_flag=True, help="Only what a contract should say.")
@click.option("--full", is_flag=True, help="Every key with its meaning and its default.")
@click.option(
    "-o", "--output", "file", type=click.Path(path_type=Path), metavar="FILE", help="Where to."
)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@global_options(without=("output",))
@click.pass_context
def init(ctx: click.Context, minimal: bool, full: bool, file: Path | None, force: bool) -> int:
    """Write a commented contract to begin with.

    \b
    praxist-zmq config init -o task.yaml
    praxist-zmq config init --full
    """
    if minimal and full:
        raise click.UsageError("--minimal and --full exclude each other", ctx)
    size: TemplateSize = "minimal" if minimal else "full" if full else "usual"
    text = template(size)
    settings = settings_of(ctx)
    if file is None:
        output.answer(text.removesuffix("\n"))
        return 0
    write_new(file, text, force=force)
    _say_written(settings, file, f"praxist-zmq config check {safe(file)}")
    if not (file.parent / SCHEMA_FILE).exists() and not settings.quiet:
        place = file.parent / SCHEMA_FILE
        output.talk(f"  next  praxist-zmq config schema -o {safe(place)}   (for editors)")
    return 0


@command.command("schema")
@click.option(
    "-o", "--output", "file", type=click.Path(path_type=Path), metavar="FILE", help="Where to."
)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@global_options(without=("output",))
@click.pass_context
def schema(ctx: click.Context, file: Path | None, force: bool) -> int:
    """Write the JSON Schema of a task file, for editors.

    \b
    praxist-zmq config schema -o praxist-task.schema.json
    """
    text = json.dumps(task_schema(), indent=2)
    if file is None:
        output.answer(text)
        return 0
    write_new(file, text + "\n", force=force)
    _say_written(settings_of(ctx), file, None)
    return 0


def write_new(file: Path, text: str, *, force: bool) -> None:
    """Write a file that is not there yet; with `force` also over one that is.

    Raises `usage` when it is there, `path_unusable` when it cannot be written.
    """
    how = os.O_TRUNC if force else os.O_EXCL
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | how
    try:
        with open(os.open(file, flags, _FILE_MODE), "w", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        help = ["--force overwrites it", "leave out -o to see the text"]
        raise PraxistError("usage", f"{file} exists", help) from None
    except OSError as error:
        raise PraxistError("path_unusable", f"{file}: {error.strerror or error}") from None


def _say_written(settings: Settings, file: Path, then: str | None) -> None:
    if settings.quiet:
        return
    output.talk(f"written  {safe(file)}")
    if then is not None:
        output.talk(f"  next  {then}")


command.add_command(check_command)
command.add_command(show_command)
command.add_command(explain_command)
