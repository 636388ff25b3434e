"""`host`: all runs of this host, as the claim registry holds them."""

from __future__ import annotations

import json
import uuid
from typing import Any

import click

from ..errors import PraxistError
from ..host.clock import SystemClock
from ..host.paths import HostPaths, host_scope
from ..protocol.envelope import Json
from ..transport.request import Requester
from . import output
from .documents import head
from .settings import Settings, global_options, settings_of
from .table import Column, print_table
from .words import count, device_name, is_simulated, safe

_COLUMNS = (
    Column("RUN", least=10, keep_empty=True, middle=True),
    Column("USER"),
    Column("PID", right=True),
    Column("RUNNING", right=True),
    Column("QUEUED", right=True),
    Column("LIMIT", right=True),
    Column("CLAIMS", right=True),
    Column("GPUS", least=6),
    Column("DIRECTORY", least=12, drop=0, middle=True),
)


@click.command("host")
@global_options()
@click.pass_context
def command(ctx: click.Context) -> int:
    """Show all runs of this host.

    \b
    praxist-zmq host
    praxist-zmq host --json
    """
    settings = settings_of(ctx)
    view = view_host(settings)
    content = host_document(view)
    if settings.is_json:
        output.document(content)
    elif settings.format == "name":
        output.answer(*(safe(run["run_id"]) for run in content["runs"]))
    else:
        _print(settings, view, content)
    return 0


def view_host(settings: Settings) -> Json:
    """The registry's view. Raises `no_scheduler` when none answers."""
    paths = HostPaths(host_scope())
    if not paths.registry_socket.exists():
        raise PraxistError(
            "no_scheduler",
            f"no claim registry serves {paths.directory}: no run is live on this host scope",
            ["`praxist-zmq up --run-dir DIR` starts a run and, with it, the registry"],
        )
    reply = ask_registry(paths, {"kind": "view_host"}, settings.timeout_s)
    if reply.get("kind") != "host_view":
        raise PraxistError("protocol_mismatch", f"the registry answered {reply.get('kind')!r}")
    return reply


def ask_registry(paths: HostPaths, request: Json, timeout_s: float) -> Json:
    """One question to the registry, with the envelope around it."""
    request_id = uuid.uuid4().hex
    body = json.dumps({"request_id": request_id, "request": request}).encode()
    requester = Requester(paths.registry_socket, SystemClock().mono_ms, pings=False)
    try:
        reply: Json = requester.request(body, request_id, timeout_s)
    finally:
        requester.close()
    return reply


def host_document(view: Json) -> Json:
    """The JSON document."""
    rows: list[Json] = view["allocations"]
    return {
        **head("host"),
        "runs": [_run(run, rows) for run in view["runs"]],
        "limit": None,
        "allocations": [_allocation(row) for row in rows],
        "claims": [],
    }


def _run(run: Json, rows: list[Json]) -> Json:
    return {
        "run_id": run["run_id"],
        "run_dir": run["run_dir"],
        "user": run["user"],
        "pid": run["broker"]["pid"],
        "running": run["running"],
        "queued": run["queued"],
        "limit": run["limit"],
        "claims": sum(row["run_key"] == run["run_key"] for row in rows),
    }


def _allocation(row: Json) -> Json:
    bound = row["bound"]
    return {
        "run_key": row["run_key"],
        "attempt": row["attempt"],
        **row["envelope"],
        "pid": bound["pid"] if bound else None,
    }


def _print(settings: Settings, view: Json, content: Json) -> None:
    held: dict[str, list[str]] = {}
    for row in view["allocations"]:
        held.setdefault(row["run_key"], []).extend(row["envelope"]["device_uuids"])
    simulated = any(is_simulated(uuid) for uuids in held.values() for uuid in uuids)
    if settings.format == "table":
        mark = "   SIMULATED devices" if simulated else ""
        output.answer(
            f"{count(len(content['runs']), 'run')}, "
            f"{count(len(content['allocations']), 'allocation')}{mark}"
        )
    print_table(
        settings,
        _COLUMNS,
        [
            _cells(run, held.get(raw["run_key"], []))
            for run, raw in zip(content["runs"], view["runs"], strict=True)
        ],
    )


def _cells(run: Json, uuids: list[str]) -> list[Any]:
    names = sorted({device_name(uuid).removeprefix("GPU ") for uuid in uuids})
    return [
        run["run_id"],
        run["user"],
        run["pid"],
        run["running"],
        run["queued"],
        run["limit"],
        run["claims"],
        ",".join(names) or "-",
        run["run_dir"],
    ]
