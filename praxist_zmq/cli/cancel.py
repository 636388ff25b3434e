"""`cancel`: withdraw queued jobs; with `--yes` also end running ones."""

from __future__ import annotations

import os

import click

from ..client.submission import cancel_requests
from ..errors import ERRORS
from ..protocol.envelope import Json
from ..protocol.limits import LIST_JOBS_MAX
from . import output
from .advice import nearest_job
from .connect import Caller, ask, connect
from .documents import head
from .settings import global_options, settings_of
from .words import PROGRAM, safe


@click.command("cancel")
@click.argument("jobs", nargs=-1, metavar="[JOB...]")
@click.option("--peer-of", metavar="P", help="All jobs of this peer, in the place of JOB...")
@click.option("--reason", default="cancelled", metavar="TEXT", help="Kept with the job and shown.")
@click.option("--yes", is_flag=True, help="Also end running ones: TERM, grace, KILL.")
@click.option(
    "--presume-dead",
    is_flag=True,
    help="Nothing lives of those that ran in another PID namespace: your word is kept on record.",
)
@click.option(
    "--peer",
    envvar="PRAXIST_PEER_ID",
    metavar="P",
    help="Who asks; else PRAXIST_PEER_ID, else the operator.",
)
@global_options()
@click.pass_context
def command(
    ctx: click.Context,
    jobs: tuple[str, ...],
    peer_of: str | None,
    reason: str,
    yes: bool,
    presume_dead: bool,
    peer: str | None,
) -> int:
    """Withdraw queued jobs; with --yes end running ones.

    \b
    praxist-zmq cancel j-12 --reason "superseded"
    praxist-zmq cancel j-12 j-13 --yes
    praxist-zmq cancel --peer-of gen0_peer3
    """
    settings = settings_of(ctx)
    if bool(jobs) == (peer_of is not None):
        raise click.UsageError("name jobs, or one peer with --peer-of", ctx)
    with connect(settings) as client:
        if peer_of is not None:
            jobs = _jobs_of(client, peer_of, running=yes, timeout_s=settings.timeout_s)
        requests = (
            cancel_requests(
                jobs, peer=peer or None, reason=reason, running=yes, presume_dead=presume_dead
            )
            if jobs
            else ()
        )
        results: list[Json] = [
            result
            for request in requests
            for result in ask(client, request, settings.timeout_s)["results"]
        ]
        advice = {r["job"]: _advice(client, r, settings.timeout_s) for r in results}
    exit_code = exit_of_results(results)
    if not results:
        output.talk(f"nothing of peer {safe(peer_of)} is left to cancel")
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


def _jobs_of(client: Caller, peer: str, *, running: bool, timeout_s: float) -> tuple[str, ...]:
    """The jobs of a peer that have not ended; running ones only where they may be ended."""
    request = {"kind": "list_jobs", "peer": peer, "limit": LIST_JOBS_MAX}
    jobs = ask(client, request, timeout_s)["jobs"]
    return tuple(str(job["job"]) for job in jobs if running or job["state"] != "running")


def _advice(client: Caller, result: Json, timeout_s: float) -> list[str]:
    """How a refused one may be cancelled after all."""
    if result["outcome"] != "refused":
        return []
    if result["code"] == "unknown_job":
        return nearest_job(client, result["job"], timeout_s)
    if result["code"] == "job_runs":
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
