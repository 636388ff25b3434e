"""`cancel`: withdraw queued jobs; with `--yes` also end running ones."""

from __future__ import annotations

import os

import click

from ..errors import ERRORS
from ..protocol.envelope import Json
from . import output
from .advice import nearest_job
from .connect import Caller, ask, connect
from .documents import head
from .settings import global_options, settings_of
from .words import PROGRAM, safe


@click.command("cancel")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("--reason", default="cancelled", metavar="TEXT", help="Kept with the job and shown.")
@click.option("--yes", is_flag=True, help="Also end running ones: TERM, grace, KILL.")
@click.option(
    "--peer",
    envvar="PRAXIST_PEER_ID",
    metavar="P",
    help="Who asks; else PRAXIST_PEER_ID, else the operator.",
)
@global_options()
@click.pass_context
def command(
    ctx: click.Context, jobs: tuple[str, ...], reason: str, yes: bool, peer: str | None
) -> int:
    """Withdraw queued jobs; with --yes end running ones.

    \b
    praxist-zmq cancel j-12 --reason "superseded"
    praxist-zmq cancel j-12 j-13 --yes
    """
    settings = settings_of(ctx)
    request = {
        "kind": "cancel_jobs",
        "jobs": list(jobs),
        "peer": peer or None,
        "reason": reason,
        "running": yes,
    }
    with connect(settings) as client:
        results: list[Json] = ask(client, request, settings.timeout_s)["results"]
        advice = {r["job"]: _advice(client, r, settings.timeout_s) for r in results}
    exit_code = exit_of_results(results)
    if settings.is_json:
        output.document({**head("cancel"), "results": results, "exit_code": exit_code})
        return exit_code
    for result in results:
        if result["outcome"] == "refused":
            output.talk(f"refused {safe(result['job'])}: {safe(result['detail'])}")
            output.talk(*(f"  help  {safe(line)}" for line in advice[result["job"]]))
        elif settings.format == "name":
            output.answer(safe(result["job"]))
        else:
            why = "" if result["detail"] in ("", "cancelled") else f": {safe(result['detail'])}"
            output.answer(f"{result['outcome']} {safe(result['job'])}{why}")
    return exit_code


def _advice(client: Caller, result: Json, timeout_s: float) -> list[str]:
    """How a refused one may be cancelled after all."""
    if result["outcome"] != "refused":
        return []
    if result["code"] == "unknown_job":
        return nearest_job(client, result["job"], timeout_s)
    if result["code"] == "not_cancellable" and "running" in result["detail"]:
        return [f"`{PROGRAM} cancel {result['job']} --yes` ends it: TERM, 5 s, KILL"]
    return []


def exit_of_results(results: list[Json]) -> int:
    """0 when all went; one refused job's own code; 1 when only some of several went."""
    refused = [result for result in results if result["outcome"] == "refused"]
    if not refused:
        return 0
    if len(results) > 1:
        return 1
    row = ERRORS.get(str(refused[0].get("code")))
    return row.exit_code if row is not None else os.EX_DATAERR
