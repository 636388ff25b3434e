"""`queue`: the jobs of the run, running ones first, then in queue order."""

from __future__ import annotations

from typing import get_args

import click

from ..protocol.envelope import Json
from ..protocol.job_states import JobState
from . import output
from .advice import nearest
from .blocked import why_short
from .connect import Caller, ask, connect
from .documents import head, job_body
from .settings import Settings, global_options, settings_of
from .table import Column, table_lines, terminal_height
from .verdict import cancellation, ending, ending_told, state_word
from .waiting import now_s
from .words import PROGRAM, age, count, devices, is_simulated, parse_stamp, progress_text, safe

STATES: tuple[str, ...] = get_args(JobState)
LIST_LIMIT = 10_000
FRAME_LINES = 3
"""Around the table: the summary, the line that says `why`, the prompt."""
_COLUMNS = (
    Column("JOB"),
    Column("STATE"),
    Column("CLASS", drop=2),
    Column("PEER", least=6, drop=3, middle=True),
    Column("PROFILE", least=8, drop=1, middle=True),
    Column("AGE", right=True),
    Column("LEFT", right=True, drop=4),
    Column("TAG", least=20, keep_empty=True, middle=True),
    Column("WHERE / WHY", least=20, keep_empty=True),
)


def _states(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """`--state queued,running`, once or more often. A usage error for what is no state."""
    typed = [part.strip() for value in values for part in value.split(",")]
    for name in typed:
        if name not in STATES:
            close = nearest(name, list(STATES))
            hint = f"; did you mean `{close}`?" if close else "."
            raise click.BadParameter(
                f"{name[:40]!r} is no state{hint} States: {', '.join(STATES)}", ctx, param
            )
    return tuple(dict.fromkeys(typed))


@click.command("queue")
@click.option("-a", "--all", "everything", is_flag=True, help="Also jobs that have ended.")
@click.option(
    "--state",
    "states",
    multiple=True,
    callback=_states,
    metavar="S[,S...]",
    help=f"Only these states: {', '.join(STATES)}.",
)
@click.option("--peer", metavar="P", help="Only this peer's.")
@global_options()
@click.pass_context
def command(ctx: click.Context, everything: bool, states: tuple[str, ...], peer: str | None) -> int:
    """List jobs: running first, then in queue order.

    \b
    praxist-zmq queue
    praxist-zmq queue --state failed,drained_unknown --json
    """
    settings = settings_of(ctx)
    request = {
        "kind": "list_jobs",
        "states": list(states),
        "peer": peer,
        "include_terminal": everything or bool(set(states) & set(STATES[3:])),
        "limit": LIST_LIMIT,
    }
    with connect(settings) as client:
        reply = ask(client, request, settings.timeout_s)
        _print(settings, client, reply)
    return 0


def _print(settings: Settings, client: Caller, reply: Json) -> None:
    jobs = reply["jobs"]
    if settings.format == "json":
        output.document(queue_document(reply))
    elif settings.format == "jsonl":
        for job in jobs:
            output.document({**head("job"), **job_body(job)})
    elif settings.format == "name":
        output.answer(*(str(job["job"]) for job in jobs))
    else:
        lines = table_lines(settings, _COLUMNS, [row(job, now_s()) for job in jobs])
        if settings.format == "table":
            output.answer(summary(reply))
        output.answer(*lines)
        if settings.format == "table" and len(lines) + FRAME_LINES > terminal_height():
            output.answer(lines[0], summary(reply))  # those above have left the screen
        _footer(settings, reply)


def queue_document(reply: Json) -> Json:
    """The JSON document."""
    return {
        **head("queue"),
        "jobs": [job_body(job) for job in reply["jobs"]],
        "total": reply["total"],
        "concurrency_limit": reply["concurrency_limit"],
        "counts": reply["counts"],
        "limit_range": reply.get("limit_range"),
    }


def summary(reply: Json) -> str:
    """The line above the table."""
    counts = reply["counts"]
    ahead = "  ".join(f"{counts.get(state, 0)} {state}" for state in ("running", "queued"))
    rest = "  ".join(
        f"{counts[state]} {state}"
        for state in STATES
        if state not in ("running", "queued") and counts.get(state)
    )
    jobs = reply["jobs"]
    name = safe(jobs[0]["run_id"]) + "   " if jobs else ""
    simulated = any(is_simulated(uuid) for job in jobs for uuid in job["gpu_uuids"])
    mark = "   SIMULATED devices" if simulated else ""
    low, high = reply.get("limit_range") or (None, None)
    moves = "" if low is None or low == high else f", range {low}-{high}"
    limit = f"(limit {reply['concurrency_limit']}{moves})"
    return f"{name}{ahead}  {limit}" + (f"   {rest}" if rest else "") + mark


def row(job: Json, now: float) -> list[object]:
    """The cells of one job."""
    since = job.get("started_at") if job["state"] == "running" else job["submitted_at"]
    if job.get("ended_at"):
        since = job["ended_at"]
    began = parse_stamp(since)
    return [
        job["job"],
        state_word(job),
        job["work_class"],
        job["peer"],
        job["profile"],
        age(None if began is None else now - began),
        left(job),
        job["tag"],
        where_or_why(job),
    ]


def left(job: Json) -> str:
    """What is left of the run time, by what such jobs took; `?` unknown, `-` when it does not
    run."""
    if job["state"] != "running":
        return "-"
    return "?" if job.get("left_s") is None else "~" + age(job["left_s"])


def where_or_why(job: Json) -> str:
    """Where it runs, why it waits, or how it ended."""
    note = f"  {job['note']}" if job.get("note") else ""
    if job["state"] == "running":
        told = f"  {progress_text(job['progress'])}" if job.get("progress") else ""
        return devices(job["gpu_uuids"]) + told + note
    if job["state"] in ("queued", "waiting_for_credentials"):
        return why_short(job["blockers"]) + note
    if state_word(job) == "cancelled" and not job.get("attempt"):
        why = job.get("failure_signature")
        return "before it started" + (f": {why}" if why not in (None, "", "cancelled") else "")
    if job["state"] == "rejected":
        return str(job.get("note") or job.get("failure_signature") or job.get("reject_code") or "")
    if cancellation(job):
        return ending_told(job)
    signature = job.get("failure_signature")
    return ending(job) + (f": {signature}" if signature else "") + note


def _footer(settings: Settings, reply: Json) -> None:
    hidden = reply["total"] - len(reply["jobs"])
    if hidden > 0:
        match = "matches" if hidden == 1 else "match"
        output.talk(f"{count(hidden, 'more job')} {match}; narrow it with --peer or --state")
    waiting = [job for job in reply["jobs"] if job["state"] == "queued" and job["blockers"]]
    if waiting and settings.format == "table":
        output.answer(f"why: {PROGRAM} explain {waiting[0]['job']}")
