"""`--fields`: which facts of each item a list shows, by the names that the JSON document has.

The same for tables, plain text and JSON. Decides nothing about what the facts are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import click

from ..protocol.envelope import Json
from .advice import nearest
from .output import answer
from .settings import CallableT, Settings
from .table import Column, table_lines

LIST_THEM = "help"


def fields_option(known: tuple[str, ...]) -> Callable[[CallableT], CallableT]:
    """Decorator: `--fields a,b,c`, a tuple of `known` names or None; `help` lists them."""

    def read(
        ctx: click.Context, param: click.Parameter, value: str | None
    ) -> tuple[str, ...] | None:
        if value is None:
            return None
        names = [name.strip() for name in value.split(",") if name.strip()]
        if names == [LIST_THEM]:
            answer(*known)
            ctx.exit()
        for name in names:
            if name not in known:
                close = nearest(name, list(known))
                hint = f"; did you mean `{close}`?" if close else ""
                raise click.BadParameter(
                    f"{name[:40]!r} is no field{hint} (`--fields help` lists them)", ctx, param
                )
        if not names:
            raise click.BadParameter("name at least one field", ctx, param)
        return tuple(dict.fromkeys(names))

    return click.option(
        "--fields", callback=read, metavar="F,...", help="Only these facts; `help` lists them."
    )


def picked(fields: Sequence[str] | None, item: Json) -> Json:
    """The chosen facts of an item, in the order asked for; all where none was chosen."""
    return item if fields is None else {name: item[name] for name in fields}


def field_lines(settings: Settings, fields: Sequence[str], items: Sequence[Json]) -> list[str]:
    """A table or plain text of the chosen facts; a fact that is no text is shown as in JSON."""
    columns = [Column(name.upper(), least=6, keep_empty=True, middle=True) for name in fields]
    rows = [[_cell(item[name]) for name in fields] for item in items]
    return table_lines(settings, columns, rows)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
