"""`show`: one job, everything that is known of it but its command and environment."""

from __future__ import annotations

import click

from ..protocol.envelope import Json
from . import output
from .connect import ask_job, connect
from .documents import job_document
from .settings import global_options, settings_of
from .verdict import blocker_text, cancel_reason, ending, is_terminal_state
from .words import between, count, devices, local_time, progress_text, safe, span


@click.command("show")
@click.argument("job", metavar="JOB")
@global_options()
@click.pass_context
def command(ctx: click.Context, job: str) -> int:
    """Show one job.

    \b
    praxist-zmq show j-12
    praxist-zmq show tag:mixup/seed0 --json
    """
    settings = settings_of(ctx)
    settings.about = job
    with connect(settings) as client:
        request = {"kind": "show_job", "job": job}
        view = ask_job(client, request, job, settings.timeout_s)["job"]
    if settings.is_json:
        output.document(job_document(view))
    elif settings.format == "name":
        output.answer(str(view["job"]))
    else:
        output.page(settings, page(view))
    return 0


def page(job: Json) -> list[str]:
    """The page of one job; facts that do not apply are left out."""
    facts: list[tuple[str, object]] = [
        ("Tag", job["tag"]),
        ("State", _state(job)),
        ("Run", f"{job['run_id']}  generation {job['generation']}"),
        ("Peer", job["peer"]),
        ("Profile", f"{job['profile']}  class {job['work_class']}"),
        ("Lease", job.get("lease_id")),
        ("Where", devices(job["gpu_uuids"]) if job.get("attempt") else None),
        ("Attempt", f"{job['attempt']} of {job['attempts']}" if job.get("attempt") else None),
        ("Process", f"pid {job['pid']}, group {job['pgid']}" if job.get("pid") else None),
        ("Submitted", local_time(job["submitted_at"])),
        ("Started", _time(job, "started_at")),
        ("Ended", _time(job, "ended_at")),
        ("Took", _took(job)),
        ("Expected", span(job["eta_seconds"]) if job.get("eta_seconds") else None),
        ("Left", f"~{span(job['left_s'])}" if job.get("left_s") is not None else None),
        ("Progress", _progress(job)),
        ("Failure", job.get("failure_category")),
        ("Hint", job.get("failure_hint")),
        ("Why" if job["state"] in ("cancelled", "rejected") else "Last line", _why(job)),
        ("Log", job.get("log_path")),
        ("Binding", job.get("binding_status")),
        ("Activity", _activity(job.get("resource_activity"))),
        ("Depends on", " ".join(job.get("depends_on") or []) or None),
        ("Note", job.get("note")),
        ("Long id", job["job_id"]),
    ]
    lines = [f"{job['job']}"]
    lines += [f"  {name:<10} {safe(value)}" for name, value in facts if value not in (None, "")]
    lines += [f"  {'Waits for':<10} {safe(blocker_text(b))}" for b in job.get("blockers") or []]
    return lines


def _state(job: Json) -> str:
    if job["state"] == "rejected":
        return f"rejected, {job.get('reject_code') or 'it will not run'}"
    return f"{job['state']}, {ending(job)}" if is_terminal_state(job) else str(job["state"])


def _why(job: Json) -> str | None:
    """The line that tells why; not where it only says `cancelled` again."""
    return cancel_reason(job) if job["state"] == "cancelled" else job.get("failure_signature")


def _activity(seen: Json | None) -> str | None:
    """What the driver sees it do."""
    if seen is None:
        return None
    told = [str(seen["state"]).replace("_", " ")]
    if seen.get("gpu_processes"):
        told.append(count(seen["gpu_processes"], "process", "processes"))
    if seen.get("gpu_memory_mb"):
        told.append(f"{seen['gpu_memory_mb'] / 1024:.1f} GiB")
    if seen.get("gpu_utilization_pct"):
        told.append(f"{seen['gpu_utilization_pct']:.0f} %")
    if seen["attribution"] in ("partial", "unavailable"):
        told.append(f"attribution {seen['attribution']}")
    return ", ".join(told)


def _time(job: Json, name: str) -> str | None:
    return local_time(job[name]) if job.get(name) else None


def _progress(job: Json) -> str | None:
    found = job.get("progress")
    return None if not found else f"{progress_text(found)}  at {local_time(found['at'])}"


def _took(job: Json) -> str | None:
    took = between(job.get("started_at"), job.get("ended_at"))
    return None if took is None else span(took)
