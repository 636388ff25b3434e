"""`freeze`: start nothing more of a generation, or of the whole run; what runs drains."""

from __future__ import annotations

import click

from ..protocol.envelope import Json
from . import output
from .connect import ask, connect
from .documents import GENERATION_KEYS, head, pick
from .generation import NUMBER, REASON_HELP, YES_HELP, confirm, fenced_lines, freeze_question
from .settings import global_options, settings_of


@click.command("freeze")
@click.option("--generation", type=NUMBER, metavar="N", help="This one [the current one].")
@click.option("--all", "everything", is_flag=True, help="All, and the run's admission with them.")
@click.option("--reason", default="it was frozen", metavar="TEXT", help=REASON_HELP)
@click.option("--yes", is_flag=True, help=YES_HELP)
@global_options()
@click.pass_context
def command(
    ctx: click.Context, generation: int | None, everything: bool, reason: str, yes: bool
) -> int:
    """Start nothing more: reject the queue, let what runs go on to its end.

    Unlike `generation close` it writes no CLOSING_SIGNAL. `generation open` ends the freeze.

    \b
    praxist-zmq freeze --generation 3 --yes
    praxist-zmq freeze --all --yes
    """
    if everything and generation is not None:
        raise click.UsageError("--generation or --all, not both", ctx)
    settings = settings_of(ctx)
    with connect(settings) as client:
        number = generation
        if number is None and not everything:
            request: Json = {"kind": "show_generation"}
            number = ask(client, request, settings.timeout_s)["generation"]["generation"]
        what = "all generations" if number is None else f"generation {number}"
        confirm(ctx, yes, freeze_question(number))
        request = {"kind": "freeze_generation", "generation": number, "reason": reason}
        reply = ask(client, request, settings.timeout_s)
    if settings.is_json:
        body = {"all": everything, **{key: reply[key] for key in ("rejected", "draining")}}
        document = pick(GENERATION_KEYS, reply["generation"])
        output.document({**head("freeze"), **document, **body})
    elif settings.format == "name":
        output.answer("all" if number is None else str(number))
    else:
        fence = f"{what}: nothing new is accepted or started"
        if number is None:
            fence += " until a generation is opened"
        output.page(settings, [f"{'fence':<8} {fence}", *fenced_lines(reply)])
    return 0
