"""`events`: the run's history in plain words, one line an event; `-f` follows it."""

from __future__ import annotations

import click

from . import output
from .connect import Caller, ask, connect
from .documents import EVENT_KEYS, pick
from .duration import DURATION
from .feed import event_fields
from .settings import Settings, global_options, settings_of
from .verdict import Json
from .waiting import now_s
from .words import clock_time, parse_stamp, safe

PAGE = 1000


@click.command("events")
@click.option("-f", "--follow", is_flag=True, help="Go on with new ones.")
@click.option("--since", type=DURATION, metavar="DUR", help="Only the last DUR.")
@click.option("--job", metavar="JOB", help="Only this job's.")
@global_options()
@click.pass_context
def command(ctx: click.Context, follow: bool, since: float | None, job: str | None) -> int:
    """Print the run's history.

    \b
    praxist-zmq events --since 15m
    praxist-zmq events -f -o jsonl
    """
    settings = settings_of(ctx)
    oldest_s = None if since is None else now_s() - since
    printer = _Printer(settings, oldest_s)
    with connect(settings) as client:
        if follow:
            _follow(client, job, printer)
        else:
            _pages(client, job, printer, settings.timeout_s)
    return 0


def _pages(client: Caller, job: str | None, printer: _Printer, timeout_s: float) -> None:
    after = 0
    while True:
        request = {"kind": "read_events", "after_sequence": after, "limit": PAGE, "job": job}
        reply = ask(client, request, timeout_s)
        for event in reply["events"]:
            printer.tell(event)
            after = max(after, int(event["sequence"]))
        if len(reply["events"]) < PAGE:
            return


def _follow(client: Caller, job: str | None, printer: _Printer) -> None:
    for event in client.events(after_sequence=0, job=job, follow=True):
        printer.tell(event_fields(event))


class _Printer:
    """One line or one JSON line an event."""

    def __init__(self, settings: Settings, oldest_s: float | None) -> None:
        self._settings = settings
        self._oldest_s = oldest_s
        if settings.is_json:
            output.document({"type": "version", "format_version": "1.0", "kind": "events"})

    def tell(self, event: Json) -> None:
        """Print it, unless it is too old."""
        at_s = parse_stamp(event["at"])
        if self._oldest_s is not None and at_s is not None and at_s < self._oldest_s:
            return
        if self._settings.is_json:
            output.document(pick(EVENT_KEYS, event))
        elif self._settings.format == "name":
            output.answer(str(event["sequence"]))
        else:
            output.answer(f"{event['sequence']:>6} {clock_time(at_s)}  {safe(event['text'])}")
