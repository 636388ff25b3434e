"""`explain`: why a job waits, or how it ended; the broker's own gates with their numbers."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import PraxistError
from ..protocol.envelope import Json
from . import output
from .advice import nearest_subject
from .connect import Caller, ask, connect
from .documents import BLOCKER_KEYS, head, job_body, pick
from .log_tail import last_lines
from .settings import global_options, settings_of
from .verdict import blocker_text, cancel_reason, ending, is_terminal_state
from .waiting import now_s
from .waiting_page import device_lines, facts_line, gate_lines, option_lines, start_lines
from .words import (
    age,
    between,
    count,
    devices,
    local_time,
    named_devices,
    parse_stamp,
    progress_text,
    queued_at,
    safe,
    span,
)

LOG_LINES = 20


@click.command("explain")
@click.argument("subject", metavar="JOB|profile:N|lease:ID|lease:PEER")
@global_options()
@click.pass_context
def command(ctx: click.Context, subject: str) -> int:
    """Say why a job waits, or how it ended.

    \b
    praxist-zmq explain j-12
    praxist-zmq explain profile:gpu_big
    """
    settings = settings_of(ctx)
    settings.about = subject
    with connect(settings) as client:
        reply = _ask(client, subject, settings.timeout_s)
    if settings.is_json:
        output.document(explain_document(reply))
    elif settings.format == "name":
        output.answer(*(str(blocker["code"]) for blocker in reply["blockers"]))
    else:
        output.page(settings, page(reply, subject))
    return 0


def _ask(client: Caller, subject: str, timeout_s: float) -> Json:
    """The broker's explanation; what it does not know is answered with the nearest it does."""
    try:
        return ask(client, {"kind": "explain_job", "subject": subject}, timeout_s)
    except PraxistError as error:
        if error.code != "unknown_job":
            raise
        error.help = [*nearest_subject(client, subject, timeout_s), *error.help]
        raise


def explain_document(reply: Json) -> Json:
    """The JSON document."""
    return {
        **head("explanation"),
        "job": None if reply["job"] is None else job_body(reply["job"]),
        "verdict": reply["verdict"],
        "position": reply["position"],
        "gates": reply["gates"],
        "blockers": [pick(BLOCKER_KEYS, blocker) for blocker in reply["blockers"]],
        "options": reply["options"],
        "devices": reply.get("devices") or [],
        "would_start": reply.get("would_start") or [],
        "start_estimate": reply.get("start_estimate"),
        "snapshot": reply.get("snapshot") or {},
    }


def page(reply: Json, subject: str) -> list[str]:
    """Verdict, gates, devices, what would start it, what the peer can do, the facts."""
    job = reply["job"]
    ended = job is not None and is_terminal_state(job)
    waits = bool(reply["blockers"])
    lines = _head(job, subject)
    if not (job is not None and _told_by_facts(job, reply["verdict"])):
        lines.append(_verdict(reply))
    if ended:
        lines += _ended(job)
    elif job is not None and job["state"] == "running":
        lines += _running(job)
    lines += gate_lines(reply["gates"])
    lines += device_lines(reply.get("devices") or [])
    told = {gate["detail"] for gate in reply["gates"]}
    rest = [b for b in reply["blockers"] if not any(b["detail"] in text for text in told)]
    lines += ["", "blockers", *(f"  {safe(blocker_text(b))}" for b in rest)] if rest else []
    if job is not None and not ended:
        lines += start_lines(reply.get("would_start") or [], waits=waits)
    return lines + option_lines(reply["options"]) + facts_line(reply.get("snapshot") or {})


def _verdict(reply: Json) -> str:
    """`WAITS: why` with the place in the queue."""
    verdict = named_devices(safe(reply["verdict"]))
    word, colon, rest = verdict.partition(":")
    line = f"{word.upper()}:{rest}" if colon and word == "waits" else verdict
    if not reply["blockers"]:
        return line
    told = count(len(reply["blockers"]), "blocker")
    place = f"place {reply['position']} by class and age, " if reply["position"] else ""
    return f"{line}   ({place}{told})"


def _ended(job: Json) -> list[str]:
    """How and when it went."""
    facts = (
        ("submitted", local_time(job["submitted_at"])),
        ("started", _after(job.get("started_at"), "waited", queued_at(job))),
        ("ended", _after(job.get("ended_at"), "took", job.get("started_at"))),
        ("how", f"{ending(job)}, attempt {job['attempts']}" if job.get("attempt") else None),
        ("failure", job.get("failure_category")),
        (
            "why" if job["state"] in ("cancelled", "rejected") else "last line",
            cancel_reason(job) if job["state"] == "cancelled" else job.get("failure_signature"),
        ),
        ("hint", job.get("failure_hint")),
        ("log", job.get("log_path")),
    )
    lines = ["", *(f"  {name:<10} {safe(value)}" for name, value in facts if value)]
    return lines + _last_lines(job.get("log_path"))


def _told_by_facts(job: Json, verdict: str) -> bool:
    """Whether the head and the facts under it say all of the verdict."""
    return job["state"] in ("completed", "failed") or verdict == job["state"] == "running"


def _running(job: Json) -> list[str]:
    """Where it runs, since when and for how long still."""
    left = job.get("left_s")
    facts = (
        ("where", devices(job["gpu_uuids"]) if job.get("attempt") else None),
        ("started", _after(job.get("started_at"), "waited", queued_at(job))),
        (
            "left",
            f"~{span(left)}"
            if left is not None
            else "not known: no run time was declared or learnt",
        ),
        ("progress", progress_text(job["progress"]) if job.get("progress") else None),
        ("attempt", job.get("attempt")),
        ("log", job.get("log_path")),
    )
    return ["", *(f"  {name:<10} {safe(value)}" for name, value in facts if value)]


def _last_lines(path: str | None) -> list[str]:
    """The end of the log, where it can still be read."""
    if not path:
        return []
    try:
        lines = last_lines(Path(path), LOG_LINES)
    except (OSError, PraxistError) as error:
        return ["", f"log       cannot be read: {safe(error)}"]
    return ["", f"last {count(len(lines), 'line')} of the log", *(f"  {line}" for line in lines)]


def _after(stamp: str | None, word: str, before: str | None) -> str | None:
    """A time with how long it took to come to it."""
    if stamp is None:
        return None
    passed = between(before, stamp)
    told = local_time(stamp)
    return told if passed is None else f"{told}   {word} {span(passed)}"


def _head(job: Json | None, subject: str) -> list[str]:
    if job is None:
        return [safe(subject)]
    began = parse_stamp(queued_at(job))
    since = age(None if began is None else now_s() - began)
    sent = "sent" if queued_at(job) == job["submitted_at"] else "queued again"
    return [
        f"{job['job']}  {safe(job['tag'])}",
        f"{job['state']}, {sent} {since} ago   peer {safe(job['peer'])}   "
        f"profile {safe(job['profile'])}   class {job['work_class']}",
    ]
