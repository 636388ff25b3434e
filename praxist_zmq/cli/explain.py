"""`explain`: why a job waits, or how it ended; the broker's own gates with their numbers."""

from __future__ import annotations

import click

from ..errors import PraxistError
from ..protocol.envelope import Json
from . import output
from .advice import nearest_subject
from .connect import Caller, ask, connect
from .documents import BLOCKER_KEYS, head, job_body, pick
from .settings import global_options, settings_of
from .verdict import blocker_text, ending_told, is_terminal_state
from .waiting import now_s
from .words import age, count, cut, named_devices, parse_stamp, safe


@click.command("explain")
@click.argument("subject", metavar="JOB|profile:N|lease:ID")
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
        if subject.startswith("lease:"):
            raise PraxistError(
                "unknown_job",
                f"no lease {subject[6:][:80]!r} in this run",
                ["`explain` also takes a job, or profile:NAME"],
            ) from error
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
    }


def page(reply: Json, subject: str) -> list[str]:
    """Verdict, every gate, the blockers, what the peer can do."""
    lines = [*_head(reply["job"], subject), named_devices(safe(reply["verdict"]))]
    if reply["position"]:
        told = count(len(reply["blockers"]), "blocker")
        lines.append(f"place {reply['position']} in the queue, {told}")
    if reply["job"] is not None and is_terminal_state(reply["job"]):
        lines += _ended(reply["job"])
    if reply["gates"]:
        lines += ["", "gates                    state     detail"]
        for gate in reply["gates"]:
            state = "BLOCKED" if gate["state"] == "blocked" else gate["state"]
            detail = named_devices(safe(gate["detail"]))
            lines.append(f"  {cut(safe(gate['name']), 22):<22} {state:<9} {detail}")
    if reply["blockers"]:
        lines += ["", "blockers"]
        lines += [f"  {safe(blocker_text(blocker))}" for blocker in reply["blockers"]]
    if reply["options"]:
        lines.append("")
        for number, option in enumerate(reply["options"]):
            lines.append(f"{'YOU CAN' if number == 0 else '':<8}  {safe(option)}")
    return lines


def _ended(job: Json) -> list[str]:
    """How and when it went."""
    facts = (
        ("submitted", job["submitted_at"]),
        ("started", job.get("started_at")),
        ("ended", job.get("ended_at")),
        ("how", f"{ending_told(job)}, attempt {job['attempts']}" if job.get("attempt") else None),
        ("failure", job.get("failure_category")),
        ("why" if job["state"] == "rejected" else "last line", job.get("failure_signature")),
        ("log", job.get("log_path")),
    )
    return ["", *(f"  {name:<10} {safe(value)}" for name, value in facts if value)]


def _head(job: Json | None, subject: str) -> list[str]:
    if job is None:
        return [safe(subject)]
    began = parse_stamp(job["submitted_at"])
    since = age(None if began is None else now_s() - began)
    return [
        f"{job['job']}  {safe(job['tag'])}",
        f"{job['state']}, sent {since} ago   peer {safe(job['peer'])}   "
        f"profile {safe(job['profile'])}   class {job['work_class']}",
    ]
