"""Tables: for a terminal fitted to its width, in a pipe tab-separated and uncut.

Columns that are empty in every row are left out on a terminal. Cells are made safe here, and are
never read as markup.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from .output import answer, terminal_columns
from .settings import Settings
from .words import cells, cut, cut_middle, safe

STATE_STYLES = {
    "running": "green",
    "queued": "yellow",
    "waiting_for_credentials": "yellow",
    "failed": "red",
    "cancelled": "red",
    "rejected": "red",
    "drained_unknown": "magenta",
    "lost": "red",
    "unknown": "magenta",
    "unavailable": "red",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    `least` is the width it may be cut to (None: never cut); columns with a `drop` number are left
    out, lowest first, when the terminal is too narrow for all. `middle`: cut in the middle, where
    the end is what tells one from another.
    """

    title: str
    right: bool = False
    least: int | None = None
    drop: int | None = None
    keep_empty: bool = False
    middle: bool = False


def terminal_height() -> int:
    """Lines of the terminal, or LINES, or 24."""
    return max(shutil.get_terminal_size((80, 24)).lines, 4)


def print_table(
    settings: Settings, columns: Sequence[Column], rows: Sequence[Sequence[object]]
) -> None:
    """Print rows in the form asked for (`table` or `plain`)."""
    answer(*table_lines(settings, columns, rows))


def table_lines(
    settings: Settings, columns: Sequence[Column], rows: Sequence[Sequence[object]]
) -> list[str]:
    """Rows in the form asked for (`table` or `plain`); the first line is the header."""
    texts = [["" if cell is None else safe(cell) for cell in row] for row in rows]
    if settings.format == "table":
        return render(columns, texts, terminal_columns(), colored=settings.colored)
    return ["\t".join(column.title for column in columns), *("\t".join(row) for row in texts)]


def render(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, *, colored: bool
) -> list[str]:
    """The lines of a terminal table, at most `width` columns wide. Cells must be safe."""
    shown = [
        index
        for index, column in enumerate(columns)
        if column.keep_empty or not rows or any(row[index] not in ("", "-") for row in rows)
    ]
    widths = _fit(columns, rows, shown, width)
    chosen = [columns[index] for index in widths]
    cut_rows = [
        [(cut_middle if columns[i].middle else cut)(row[i], widths[i]) for i in widths]
        for row in rows
    ]
    return _draw(chosen, list(widths.values()), cut_rows, width, colored)


def _fit(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], shown: list[int], width: int
) -> dict[int, int]:
    """Widths by column index: natural, then cut, then columns dropped."""
    natural = {i: max([cells(columns[i].title), *(cells(row[i]) for row in rows)]) for i in shown}
    while True:
        room = width - 2 * len(natural)  # a space on each side of each column
        least = {i: min(natural[i], columns[i].least or natural[i], natural[i]) for i in natural}
        droppable = [i for i in natural if columns[i].drop is not None]
        if sum(least.values()) <= room or not droppable:
            return _shrink(natural, least, room)
        del natural[min(droppable, key=lambda i: columns[i].drop or 0)]


def _shrink(natural: dict[int, int], least: dict[int, int], room: int) -> dict[int, int]:
    widths = dict(natural)
    while sum(widths.values()) > room:
        widest = max(widths, key=lambda i: widths[i] - least[i])
        if widths[widest] <= least[widest]:
            break
        widths[widest] -= 1
    return widths


def _draw(
    columns: list[Column],
    widths: list[int],
    rows: list[list[str]],
    width: int,
    colored: bool,
) -> list[str]:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), pad_edge=True, show_edge=False, header_style="bold")
    for column, size in zip(columns, widths, strict=True):
        table.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="crop",
            width=size,
        )
    for row in rows:
        table.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in row))
    console = Console(
        width=max(width, sum(widths) + 2 * len(widths)),
        force_terminal=colored,
        no_color=not colored,
        color_system="standard" if colored else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as capture:
        console.print(table, end="")
    return [line.rstrip() for line in capture.get().splitlines()]
