"""`queue`: the jobs of the run, running ones first, then in queue order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import click

from ..protocol.envelope import Json
from ..protocol.job_states import TERMINAL_STATES, JobState
from . import output
from .advice import nearest
from .blocked import why_short
from .connect import ask, connect
from .documents import JOB_KEYS, head, job_body
from .duration import DURATION
from .fields import field_lines, fields_option, picked
from .output import terminal_columns
from .settings import Settings, global_options, settings_of
from .submission import WORK_CLASSES
from .table import Column, table_lines, terminal_height
from .verdict import cancel_reason, ending
from .waiting import now_s
from .watch import watch as watch_view
from .watch import watch_option
from .words import (
    PROGRAM,
    age,
    count,
    devices,
    fitted,
    is_simulated,
    parse_stamp,
    progress_text,
    queued_at,
    safe,
)

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


SORTS: dict[str, Callable[[Json], Any]] = {
    "age": lambda job: -(parse_stamp(queued_at(job)) or 0.0),
    "tag": lambda job: job["tag"],
    "peer": lambda job: job["peer"],
    "profile": lambda job: job["profile"],
    "state": lambda job: STATES.index(job["state"]),
}


def _states(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """`--state queued,running`, once or more often. A usage error for what is no state."""
    typed = [part.strip() for value in values for part in value.split(",")]
    for name in typed:
        if name not in STATES:
            close = nearest(name, list(STATES))
            hint = f"; did you mean `{close}`?" if close else "."
            raise click.BadParameter(
                f"{name[:40]!r} is no state{hint} States: {', '.join(STATES)}",
                ctx,
                param,
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
@click.option("--class", "work_class", type=click.Choice(WORK_CLASSES), help="Only this class.")
@click.option(
    "--since", type=DURATION, metavar="DUR", help="Only jobs sent or ended in the last DUR."
)
@click.option(
    "--sort",
    type=click.Choice(tuple(SORTS)),
    help="Order by this instead; age and tag ascend.",
)
@fields_option(JOB_KEYS)
@watch_option
@global_options()
@click.pass_context
def command(
    ctx: click.Context,
    everything: bool,
    states: tuple[str, ...],
    peer: str | None,
    work_class: str | None,
    since: float | None,
    sort: str | None,
    fields: tuple[str, ...] | None,
    watch: float | None,
) -> int:
    """List jobs: running first, then in queue order.

    \b
    praxist-zmq queue
    praxist-zmq queue -w
    praxist-zmq queue --state failed,drained_unknown --json
    praxist-zmq queue -a --since 1h --fields job,tag,state,exit_code

    Queue order is by class (mature, ordinary, scout), then by age. It is not always the order of
    the starts: who has room starts before who has none, and of those that wait only for devices
    the oldest has room kept for it, whatever its class. `explain JOB` tells what would start it.
    """
    settings = settings_of(ctx)
    request = {
        "kind": "list_jobs",
        "states": list(states),
        "peer": peer,
        "include_terminal": everything or bool(set(states) & TERMINAL_STATES),
        "limit": LIST_LIMIT,
    }

    def look() -> list[str]:
        with connect(settings) as client:
            reply = ask(client, request, settings.timeout_s)
        shown = [job for job in reply["jobs"] if _wanted(job, work_class, since)]
        if sort is not None:
            shown.sort(key=SORTS[sort])
        told = {**reply, "jobs": shown, "sent": len(reply["jobs"])}
        return _lines(settings, told, fields, watched=watch is not None)

    if watch is not None:
        return watch_view(settings, watch, look)
    output.answer(*look())
    return 0


def _wanted(job: Json, work_class: str | None, since_s: float | None) -> bool:
    if work_class is not None and job["work_class"] != work_class:
        return False
    last = parse_stamp(job.get("ended_at") or queued_at(job))
    return since_s is None or last is None or now_s() - last <= since_s


def _lines(
    settings: Settings, reply: Json, fields: tuple[str, ...] | None, *, watched: bool
) -> list[str]:
    jobs = reply["jobs"]
    if settings.format == "json":
        return [output.json_line(queue_document(reply, fields))]
    if settings.format == "jsonl":
        items = [{**head("job"), **picked(fields, job_body(job))} for job in jobs]
        return [output.json_line(item) for item in items]
    if settings.format == "name":
        return [str(job["job"]) for job in jobs]
    if fields is not None:
        return field_lines(settings, fields, [job_body(job) for job in jobs])
    if not watched:
        _tell_hidden(reply)
    lines = table_lines(settings, _COLUMNS, [row(job, now_s()) for job in jobs])
    if settings.format != "table":
        return lines
    above, header = fitted(summary(reply), terminal_columns()), lines[0]
    if reply.get("limit_note") and reply["counts"].get("queued"):
        above += fitted(f"limit {safe(reply['limit_note'])}", terminal_columns())
    height = len(lines) + len(above) + FRAME_LINES - 1
    lines = [*above, *lines]
    if not watched and height > terminal_height():
        lines += [header, *above]  # those above have left the screen
    waiting = [job for job in jobs if job["state"] == "queued" and job["blockers"]]
    return lines + ([f"why: {PROGRAM} explain {waiting[0]['job']}"] if waiting else [])


def queue_document(reply: Json, fields: tuple[str, ...] | None = None) -> Json:
    """The JSON document."""
    return {
        **head("queue"),
        "jobs": [picked(fields, job_body(job)) for job in reply["jobs"]],
        "total": reply["total"],
        "concurrency_limit": reply["concurrency_limit"],
        "counts": reply["counts"],
        "limit_range": reply.get("limit_range"),
        "limit_note": reply.get("limit_note"),
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
    since = job.get("started_at") if job["state"] == "running" else queued_at(job)
    if job.get("ended_at"):
        since = job["ended_at"]
    began = parse_stamp(since)
    return [
        job["job"],
        job["state"],
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
    if job["state"] == "cancelled":
        return ": ".join(filter(None, (ending(job), cancel_reason(job))))
    if job["state"] == "rejected":
        return str(job.get("note") or job.get("failure_signature") or job.get("reject_code") or "")
    signature = job.get("failure_signature")
    return ending(job) + (f": {signature}" if signature else "") + note


def _tell_hidden(reply: Json) -> None:
    """That the scheduler has more than it sent."""
    hidden = reply["total"] - reply["sent"]
    if hidden > 0:
        match = "matches" if hidden == 1 else "match"
        output.talk(f"{count(hidden, 'more job')} {match}; narrow it with --peer or --state")
