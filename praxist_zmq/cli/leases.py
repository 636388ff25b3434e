"""`leases`: offers to idle peers, and what became of them."""

from __future__ import annotations

import click

from ..protocol.envelope import Json
from . import output
from .connect import ask, connect
from .documents import LEASE_KEYS, head, pick
from .fields import field_lines, fields_option, picked
from .settings import global_options, settings_of
from .status_words import stats_line
from .table import Column, print_table
from .words import safe, span

ENDED_SHOWN = 20
_COLUMNS = (
    Column("LEASE", least=11),
    Column("PEER", least=8),
    Column("PRIORITY"),
    Column("STATE"),
    Column("LEFT", right=True),
    Column("PROFILES", least=8),
    Column("NOTE", least=8),
)


@click.command("leases")
@click.option("-a", "--all", "everything", is_flag=True, help="Also all ended ones in memory.")
@fields_option(LEASE_KEYS)
@global_options()
@click.pass_context
def command(ctx: click.Context, everything: bool, fields: tuple[str, ...] | None) -> int:
    """List offers to idle peers and what became of them.

    \b
    praxist-zmq leases
    praxist-zmq leases -a --json
    """
    settings = settings_of(ctx)
    with connect(settings) as client:
        reply = ask(client, {"kind": "list_leases"}, settings.timeout_s)
    leases = reply["leases"]
    if not everything:
        live = sum(lease["state"] == "out" for lease in leases)
        leases = leases[: live + ENDED_SHOWN]
    if settings.is_json:
        body = [picked(fields, pick(LEASE_KEYS, lease)) for lease in leases]
        facts = {"leases": body, "idle": reply["idle"], "stats": reply["stats"]}
        output.document({**head("leases"), **facts})
        return 0
    if settings.format == "name":
        output.answer(*(safe(lease["lease_id"]) for lease in leases))
        return 0
    if fields is not None:
        items = [pick(LEASE_KEYS, lease) for lease in leases]
        output.answer(*field_lines(settings, fields, items))
        return 0
    short = settings.format == "table"
    if leases:
        print_table(settings, _COLUMNS, [_row(lease, short=short) for lease in leases])
    if short:
        output.page(settings, [*_waiting(reply["idle"]), stats_line(reply["stats"])])
    return 0


def _row(lease: Json, *, short: bool) -> list[object]:
    name = str(lease["lease_id"])
    return [
        name[:-12] if short else name,
        lease["peer"],
        lease["priority"],
        lease["state"],
        "-" if lease["left_s"] is None else span(lease["left_s"]),
        ", ".join(lease["profiles"]),
        _note(lease),
    ]


def _note(lease: Json) -> str:
    told = [] if lease["cooling_s"] is None else [f"cooling {span(lease['cooling_s'])}"]
    if lease["job"] is not None:
        told.append(f"-> {lease['job']}")
    elif lease["reason"] is not None:
        told.append(str(lease["detail"] or lease["reason"]))
    if lease["release_pending"]:
        told.append("release pending")
    return ", ".join(told)


def _waiting(idle: list[str]) -> list[str]:
    return [f"idle: {' '.join(safe(peer) for peer in idle)}"] if idle else []
