"""`status`: the page an operator reads first. Exit 0 healthy, 1 troubled, 3 not running.

When no scheduler answers, the last `status.json` is shown as what was, with health `down`.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import Any

import click

from ..errors import ERRORS, PraxistError
from ..host.paths import RunPaths
from ..protocol.envelope import Json
from . import output
from .blocked import why_short
from .connect import Caller, ask, connect
from .documents import STATUS_KEYS, status_document
from .ended_run import ended_by_stop, how_it_ended
from .generation import deadline_words, mature_words
from .run_selection import find_run
from .settings import Settings, global_options, settings_of
from .small_file import read_small
from .status_words import (
    activity_words,
    device_words,
    limit_words,
    marks_words,
    supply_words,
)
from .waiting import now_s
from .words import count, local_time, parse_stamp, safe, span

EXITS = {"healthy": 0, "troubled": 1, "down": 3}
AWAY = frozenset({"no_scheduler", "no_run", "scheduler_restarting", "no_answer"})
COARSE_WORDS = {
    "concurrency_limit": "run_limit",
    "per_peer_capacity": "peer_cap",
    "accelerator_unknown": "probe_unknown",
    "accelerator_unavailable": "probe_unavailable",
}
"""Coarse words that stand for one blocker code; the others are shown as they are."""
WAITING_LOOKED_AT = 1000
HEADS_SHOWN = 2
ROOM_MIN_BYTES = 16 * 1024 * 1024
"""A broker may need so much to start: the copy of a whole segment of its ledger."""
STATUS_BYTES_MAX = 4 * 1024 * 1024
ALARM_STYLE = "31;1"
_STYLES = {"healthy": "32;1", "troubled": "33;1", "down": "31;1"}


@click.command("status")
@global_options()
@click.pass_context
def command(ctx: click.Context) -> int:
    """Show the state of the run. Exit 0 healthy, 1 troubled, 3 not running.

    \b
    praxist-zmq status
    praxist-zmq status --json
    """
    settings = settings_of(ctx)
    page_wanted = settings.format in ("table", "plain")
    status, more = read_status(settings, more=page_wanted)
    if settings.is_json:
        output.document(status_document(status))
    elif settings.format == "name":
        output.answer(str(status["health"]))
    else:
        output.page(settings, page(status, more, settings))
    return EXITS.get(status["health"], 1)


@dataclass(frozen=True, slots=True)
class More:
    """What the page tells beyond the document; None where it was not asked or not answered."""

    devices: list[Json] | None = None
    waiting: Json | None = None


def read_status(settings: Settings, *, more: bool = False) -> tuple[Json, More]:
    """The status as the broker tells it, else as it was last written; `more` for the page."""
    run = RunPaths.of(find_run(settings.run_dir))
    try:
        with connect(settings) as client:
            status = ask(client, {"kind": "get_status"}, settings.timeout_s)
            return status, _more(client, status, settings.timeout_s) if more else More()
    except PraxistError as error:
        if error.code not in AWAY:
            raise
        return _last_known(run, error), More()


def _more(client: Caller, status: Json, timeout_s: float) -> More:
    devices = None
    try:
        devices = ask(client, {"kind": "get_devices"}, timeout_s)["devices"]
        if not status.get("queue_blocked_reasons"):
            return More(devices)
        request = {"kind": "list_jobs", "states": ["queued"], "limit": WAITING_LOOKED_AT}
        return More(devices, ask(client, request, timeout_s))
    except PraxistError:
        return More(devices)  # the status itself is known, and has the same in coarser words


def _last_known(run: RunPaths, error: PraxistError) -> Json:
    status: dict[str, Any] = dict.fromkeys(STATUS_KEYS)
    status.update(run_id=run.run_id, run_dir=str(run.run_dir), warnings=[], processes=[], jobs={})
    warnings = [f"{error.row.title}: {error.detail}"]
    try:
        content = json.loads(read_small(run.status, STATUS_BYTES_MAX))
        if isinstance(content, dict):
            warnings += filter(None, (ended_by_stop(content),))
            status.update({key: content[key] for key in STATUS_KEYS if key in content})
    except FileNotFoundError:
        warnings.append("this run never had a scheduler")
    except (OSError, ValueError, RecursionError, PraxistError) as fault:
        warnings.append(f"status.json is unreadable: {fault}")
    warnings += _why_away(run)
    warnings += filter(None, (how_it_ended(run),))
    status.update(health="down", warnings=warnings, processes=[])
    return status


def _why_away(run: RunPaths) -> list[str]:
    """What the supervisor left about why it gave up, or what it waits for.

    On a full disk it can leave nothing, so the room is looked at too.
    """
    try:
        free = shutil.disk_usage(run.scheduler).free
        if free < ROOM_MIN_BYTES:
            return [f"the disk of {run.scheduler} has {free / 2**20:.1f} MiB free"]
        left = json.loads(read_small(run.last_failure, STATUS_BYTES_MAX))
        code, detail, at = left["code"], left["detail"], left["at"]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError, PraxistError, KeyError, TypeError) as fault:
        return [f"last_failure.json is unreadable: {fault}"]
    title = ERRORS[code].title if isinstance(code, str) and code in ERRORS else f"{code}"
    return [f"last failure, {local_time(str(at))}: {title}: {detail}"]


def page(status: Json, more: More, settings: Settings) -> list[str]:
    """What keeps the run from getting anywhere; identity and health, facts, warnings."""
    health = str(status["health"])
    head = output.bold(health.upper(), settings, _STYLES.get(health, "1"))
    mark = "   SIMULATED devices" if status.get("simulated") else ""
    alarms = [] if health == "down" else [safe(alarm) for alarm in status.get("alarms") or []]
    lines = [output.bold(alarm, settings, ALARM_STYLE) for alarm in alarms]
    never = health == "down" and status.get("epoch") is None
    kind = "no central scheduler" if never else f"central scheduler   {head}{mark}"
    lines.append(f"* {safe(status['run_id'])}  {kind}")
    facts = {
        "Run": _run(status),
        "Service": _service(status),
        "Jobs": _jobs(status),
        "Evidence": _evidence(status),
        "Limit": limit_words(status),
        "Pressure": _pressure(status),
        "GPUs": _gpus(status, more.devices),
        "Activity": activity_words(status, more.devices),
        "Waiting": _waiting(status, more.waiting),
        "Leases": supply_words(status),
        "As of": _as_of(status),
    }
    for name, text in facts.items():
        lines += [f"   {name:<10} {text}"] if text else []
        if name == "GPUs":
            lines += [f"   {'':<10} {text}" for text in device_words(more.devices)]
    lines += [
        f"   {'' if n else 'Processes':<10} {text}" for n, text in enumerate(_processes(status))
    ]
    warnings = [safe(warning) for warning in status.get("warnings") or []]
    warnings = [warning for warning in warnings if warning not in alarms]
    none = "no other" if alarms else "none"
    lines.append(f"   {'Warnings':<10} {warnings[0] if warnings else none}")
    lines += [f"   {'':<10} {warning}" for warning in warnings[1:]]
    return lines


def _run(status: Json) -> str:
    generation = status.get("generation") or {}
    number = generation.get("number")
    if number is None:
        return safe(status["run_dir"])
    told = [f"generation {number} {safe(generation.get('state') or '')}".rstrip()]
    if generation.get("admission_closed"):
        told.append("admission closed")
    told += filter(None, (deadline_words(generation.get("deadline")),))
    return f"{safe(status['run_dir'])}   {', '.join(told)}"


def _evidence(status: Json) -> str | None:
    """The debt of the current generation, where it has a target."""
    number = str((status.get("generation") or {}).get("number"))
    found = ((status.get("resource_supply") or {}).get("maturity") or {}).get(number)
    if not found or not (found["target"] and found["completed"] + found["inflight_jobs"]):
        return None
    return mature_words(found)


def _service(status: Json) -> str | None:
    if status.get("epoch") is None:
        return None
    size = (status.get("ledger_bytes") or 0) / 1e6
    return f"epoch {status['epoch']}, ledger {size:.1f} MB, sequence {status['sequence']}"


def _jobs(status: Json) -> str:
    jobs = status.get("jobs") or {}
    first = ("running", "queued")
    order = [*first, *sorted(state for state in jobs if jobs[state] and state not in first)]
    told = "  ".join(f"{jobs.get(state, 0)} {safe(state)}" for state in order)
    total = status.get("jobs_total")
    return told + ("" if total is None else f"   ({total} in all)")


def _pressure(status: Json) -> str | None:
    host = status.get("host") or {}
    if not host:
        return None
    told = "  ".join(
        f"{name} " + ("unknown" if host.get(key) is None else f"{host[key]:.0f} %")
        for name, key in (("cpu", "cpu_pct"), ("memory", "memory_pct"), ("io", "io_pct"))
    )
    age_s = host.get("age_s")
    written = parse_stamp(status.get("at"))
    if age_s is not None and status["health"] == "down" and written is not None:
        age_s += max(0.0, now_s() - written)
    return told + marks_words(status) + ("" if age_s is None else f"  ({span(age_s)} old)")


def _gpus(status: Json, devices: list[Json] | None) -> str | None:
    """`2, 0 free`, and the driver's word where it is not plainly `available`."""
    probe = status.get("accelerator_probe") or {}
    if not probe:
        return None
    reason = f": {safe(probe['reason'])}" if probe.get("reason") else ""
    state = f"{safe(probe.get('state') or 'unknown')}{reason}"
    if status["health"] == "down":
        mark = "simulated devices, " if status.get("simulated") else "driver "
        return f"{mark}{state} when last seen"
    if not devices:
        return f"driver {state}"
    free = sum(is_free(device) for device in devices)
    told = f"{len(devices)}, {free} free"
    usable = sum(device["state"] == "available" for device in devices)
    told += f", {len(devices) - usable} not usable" if usable < len(devices) else ""
    return told if state == "available" else f"{told}   driver {state}"


def is_free(device: Json) -> bool:
    """Whether no run holds the device, and it can be used."""
    return device["state"] == "available" and not (
        device["exclusive"] or device["jobs"] or device["runs"]
    )


def _waiting(status: Json, queued: Json | None) -> str | None:
    """Waiting jobs by the first thing that blocks each; the first two with their numbers."""
    found: dict[str, int] = {}
    if queued is None:
        for word, number in (status.get("queue_blocked_reasons") or {}).items():
            word = COARSE_WORDS.get(word, word)
            found[word] = found.get(word, 0) + number
    else:
        for job in queued["jobs"]:
            if job["state"] != "queued":
                continue
            word = job["blockers"][0]["code"] if job["blockers"] else "starting"
            found[word] = found.get(word, 0) + 1
    told = "  ".join(f"{number} {safe(word)}" for word, number in found.items())
    if queued is not None:
        heads = [job for job in queued["jobs"] if job["state"] == "queued" and job["blockers"]]
        named = [f"{job['job']} {why_short(job['blockers'])}" for job in heads[:HEADS_SHOWN]]
        # Where each is named with its reasons, to count them by the first says it twice.
        told = "   ".join(named if len(named) == sum(found.values()) else [told, *named])
    if queued is not None and queued["total"] > len(queued["jobs"]):
        told += f"   (of the first {len(queued['jobs'])})"
    return told or None


def _processes(status: Json) -> list[str]:
    """One line a process."""
    told = []
    for process in status.get("processes") or []:
        again = f", {count(process['restarts'], 'restart')}" if process["restarts"] else ""
        name = safe(process["name"])
        told.append(f"{name:<10} pid {process['pid']}, up {span(process['up_s'])}{again}")
    return told


def _as_of(status: Json) -> str | None:
    if status["health"] != "down" or not status.get("at"):
        return None
    written = parse_stamp(status["at"])
    old = "" if written is None else f", {span(now_s() - written)} ago"
    return f"{local_time(written)}{old} (last known; nothing answers now)"
