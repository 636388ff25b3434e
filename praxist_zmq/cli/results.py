"""`results`: publish evidence of a generation, and list what is published."""

from __future__ import annotations

import os
from typing import Any

import click

from ..protocol.envelope import Json
from . import output
from .connect import ask, connect
from .documents import RESULT_KEYS, head, pick
from .generation import NUMBER, evidence_words
from .settings import global_options, settings_of
from .table import Column, print_table
from .words import local_time, safe, wrapped

_COLUMNS = (
    Column("TAG", least=16, keep_empty=True, middle=True),
    Column("PEER", least=6),
    Column("MATURE"),
    Column("SOURCE", drop=0),
    Column("PUBLISHED", drop=1),
)


@click.group("results")
def command() -> None:
    """Publish and list the evidence of a generation."""


@command.command("publish")
@click.option("--tag", required=True, metavar="T", help="Tag of the experiment.")
@click.option("--peer", metavar="P", help="Whose [PRAXIST_PEER_ID, else the peer of its job].")
@click.option("--mature", is_flag=True, help="It is close-grade.")
@click.option("--generation", type=NUMBER, metavar="N", help="Of this one [the current one].")
@global_options()
@click.pass_context
def publish(
    ctx: click.Context, tag: str, peer: str | None, mature: bool, generation: int | None
) -> int:
    """Tell the scheduler that a result is published. The same again changes nothing.

    \b
    praxist-zmq results publish --tag mixup/seed0 --mature
    """
    settings = settings_of(ctx)
    request: Json = {
        "kind": "publish_result",
        "tag": tag,
        "peer": peer or os.environ.get("PRAXIST_PEER_ID") or None,
        "mature": mature,
        "generation": generation,
    }
    with connect(settings) as client:
        reply = ask(client, request, settings.timeout_s)
    result: Json = reply["result"]
    if settings.is_json:
        facts = {"new": reply["new"], "notes": list(reply.get("notes") or [])}
        output.document({**head("result"), **facts, **pick(RESULT_KEYS, result)})
    elif settings.format == "name":
        output.answer(safe(result["tag"]))
    else:
        word = "published" if reply["new"] else "known"
        grade = "mature" if result["mature"] else "not mature"
        who = f", of {safe(result['peer'])}" if result["peer"] else ""
        number = result["generation"]
        output.answer(f"{word}  {safe(result['tag'])}  {grade}{who}, in generation {number}")
        for note in reply.get("notes") or []:
            output.talk(*wrapped("note", note))
    return 0


@command.command("list")
@click.option("--generation", type=NUMBER, metavar="N", help="Of this one [the current one].")
@global_options()
@click.pass_context
def list_all(ctx: click.Context, generation: int | None) -> int:
    """List what is published, oldest first; of more than 10,000 the newest.

    \b
    praxist-zmq results list
    praxist-zmq results list --generation 3 --json
    """
    settings = settings_of(ctx)
    with connect(settings) as client:
        request: Json = {"kind": "list_results", "generation": generation}
        reply = ask(client, request, settings.timeout_s)
    results: list[Json] = reply["results"]
    if settings.is_json:
        listed = [pick(RESULT_KEYS, result) for result in results]
        told = {"total": reply["total"], "maturity": reply["maturity"]}
        output.document({**head("results"), "results": listed, **told})
    elif settings.format == "name":
        output.answer(*(safe(result["tag"]) for result in results))
    else:
        print_table(settings, _COLUMNS, [_cells(result) for result in results])
        output.talk(evidence_words(reply["total"], reply["maturity"]))
        if reply["total"] > len(results):
            output.talk(f"the newest {len(results)} are listed")
    return 0


def _cells(result: Json) -> list[Any]:
    grade = "yes" if result["mature"] else "no"
    return [
        result["tag"], result["peer"] or "-", grade, result["source"],
        local_time(result["published_at"]),
    ]  # fmt: skip
