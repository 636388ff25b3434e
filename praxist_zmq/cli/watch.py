"""A view that is drawn again and again: on a terminal in its own screen, elsewhere line after line.

Whatever ends it, the terminal is as it was before: the cursor is back, and nothing of the view is
left between what was there. It reads no key; Ctrl-C and SIGTERM end it, with 130.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from ..errors import PraxistError
from ..host.signal_pipe import SignalPipe
from .output import answer, terminal_columns
from .settings import Settings, is_terminal
from .table import terminal_height
from .words import cut, fitted

INTERRUPTED = 130
AGENT_VARIABLES = ("VSCODE_AGENT", "CLAUDECODE", "AI_AGENT")
"""Who sets one of these reads text, and no screen."""
AWAY = frozenset({"no_scheduler", "scheduler_restarting", "no_answer"})
_OPEN, _CLOSE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _TO_LINE_END, _TO_SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"

watch_option = click.option(
    "-w",
    "--watch",
    is_flag=False,
    flag_value=2.0,
    default=None,
    type=click.FloatRange(0.2, 3600),
    metavar="[SEC]",
    help="Draw it again every SEC seconds [2], until Ctrl-C (exit 130).",
)


def watch(settings: Settings, interval_s: float, look: Callable[[], list[str]]) -> int:
    """Show what `look` returns until a signal ends it; the exit status.

    On a terminal an absent scheduler is told and waited for. Raises what `look` raises otherwise.
    """
    redraws = settings.format == "table" and is_terminal(sys.stdout) and not _agent()
    signals = SignalPipe()
    poll = select.poll()
    poll.register(signals, select.POLLIN)
    try:
        with _screen() if redraws else _plain() as show:
            while True:
                show(_looked(look) if redraws else look())
                poll.poll(interval_s * 1000)
                if "end" in signals.drain():
                    return INTERRUPTED
    finally:
        signals.close()


def _agent() -> bool:
    return any(os.environ.get(name) for name in AGENT_VARIABLES)


def _looked(look: Callable[[], list[str]]) -> list[str]:
    try:
        return look()
    except PraxistError as error:
        if error.code not in AWAY:
            raise
        return fitted(f"unavailable  {error}", terminal_columns())


@contextmanager
def _plain() -> Iterator[Callable[[list[str]], None]]:
    yield lambda lines: answer(*lines)


@contextmanager
def _screen() -> Iterator[Callable[[list[str]], None]]:
    """The terminal's other screen, for as long as the view is shown."""
    sys.stdout.write(_OPEN)
    try:
        yield _draw
    finally:
        sys.stdout.write(_CLOSE)
        sys.stdout.flush()


def _draw(lines: list[str]) -> None:
    columns, height = terminal_columns(), terminal_height()
    # Rows with colour are fitted already; their marks would be counted as letters.
    lines = [
        part for line in lines for part in ([line] if "\x1b" in line else fitted(line, columns))
    ]
    shown = lines[: height - 1]
    if len(lines) > height - 1:
        shown[-1] = cut(f"and {len(lines) - height + 2} more lines", columns)
    answer(_HOME + (_TO_LINE_END + "\n").join(shown) + _TO_SCREEN_END)
