"""`events`: the run's history in plain words, one line an event; `-f` follows it."""

from __future__ import annotations

from collections import deque
from fnmatch import fnmatchcase

import click

from ..protocol.envelope import Json
from . import output
from .advice import nearest
from .connect import Caller, ask, ask_job, connect
from .documents import EVENT_KEYS, pick
from .duration import DURATION
from .feed import event_fields
from .settings import Settings, global_options, settings_of
from .waiting import now_s
from .words import local_time, named_devices, parse_stamp, safe

PAGE = 1000


def _types(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Each must be like one type of event at least. Else a usage error with the nearest."""
    if values:
        from ..protocol.events import KINDS

        for value in values:
            if not any(fnmatchcase(kind, value) for kind in KINDS):
                close = nearest(value, list(KINDS))
                hint = f"; did you mean `{close}`?" if close else "; types: docs/events.md"
                raise click.BadParameter(f"{safe(value)[:40]!r} is no type{hint}", ctx, param)
    return values


@click.command("events")
@click.option("-f", "--follow", is_flag=True, help="Go on with new ones.")
@click.option("--since", type=DURATION, metavar="DUR", help="Only the last DUR.")
@click.option("--job", metavar="JOB", help="Only this job's.")
@click.option(
    "--type",
    "types",
    multiple=True,
    callback=_types,
    metavar="T",
    help="Only this type, or those like it: job_finished, 'lease_*'.",
)
@click.option(
    "-n",
    "--tail",
    "lines",
    type=click.IntRange(0, 1_000_000),
    metavar="N",
    help="Only the last N; with -f, then the new ones.",
)
@global_options(
    told={"json": "JSON Lines on stdout: a line that names the format, then an event a line."}
)
@click.pass_context
def command(
    ctx: click.Context,
    follow: bool,
    since: float | None,
    job: str | None,
    types: tuple[str, ...],
    lines: int | None,
) -> int:
    """Print the run's history.

    \b
    praxist-zmq events --since 15m
    praxist-zmq events -n 20 -f --json
    praxist-zmq events --type job_finished --since 1h
    """
    settings = settings_of(ctx)
    oldest_s = None if since is None else now_s() - since
    printer = _Printer(settings, oldest_s, types)
    settings.about = job
    with connect(settings) as client:
        after = 0
        if not follow or lines is not None:
            after = _pages(client, job, printer, lines, settings.timeout_s)
        if follow:
            for event in client.events(after_sequence=after, job=job, follow=True):
                printer.tell(event_fields(event))
    return 0


def _pages(
    client: Caller, job: str | None, printer: _Printer, lines: int | None, timeout_s: float
) -> int:
    """Print what there is, or its last lines; the sequence of the last event."""
    after = 0
    last: deque[Json] = deque(maxlen=lines)
    while True:
        request = {"kind": "read_events", "after_sequence": after, "limit": PAGE, "job": job}
        reply = (
            ask(client, request, timeout_s)
            if job is None
            else ask_job(client, request, job, timeout_s)
        )
        for event in reply["events"]:
            after = max(after, int(event["sequence"]))
            if lines is None:
                printer.tell(event)
            elif printer.wants(event):
                last.append(event)
        if len(reply["events"]) < PAGE:
            break
    for event in last:
        printer.tell(event)
    return after


class _Printer:
    """One line or one JSON line an event."""

    def __init__(self, settings: Settings, oldest_s: float | None, types: tuple[str, ...]) -> None:
        self._settings = settings
        self._oldest_s = oldest_s
        self._types = types
        if settings.is_json:
            output.document({"type": "version", "format_version": "1.0", "kind": "events"})

    def wants(self, event: Json) -> bool:
        """Whether it is young enough, and of a type asked for."""
        if self._types and not any(fnmatchcase(str(event["type"]), one) for one in self._types):
            return False
        at_s = parse_stamp(event["at"])
        return self._oldest_s is None or at_s is None or at_s >= self._oldest_s

    def tell(self, event: Json) -> None:
        """Print it, if it is wanted."""
        if not self.wants(event):
            return
        at_s = parse_stamp(event["at"])
        if self._settings.is_json:
            output.document(pick(EVENT_KEYS, event))
        elif self._settings.format == "name":
            output.answer(str(event["sequence"]))
        else:
            text = named_devices(safe(event["text"]))
            output.answer(f"{event['sequence']:>6} {local_time(at_s)}  {text}")
