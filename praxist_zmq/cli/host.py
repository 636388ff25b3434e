"""`host`: all runs of this host, as the claim registry holds them."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from typing import Any

import click

from ..core.elsewhere import elsewhere_words
from ..errors import PraxistError
from ..host.clock import SystemClock
from ..host.default_scope import host_scope as scope_directory
from ..host.liveness import NamedProcess, liveness
from ..host.paths import HostPaths, canonical
from ..protocol.claims import DeviceElsewhere
from ..protocol.envelope import Json
from ..transport.request import Requester
from . import output
from .documents import head
from .settings import Settings, global_options, settings_of
from .table import Column, print_table
from .words import count, device_name, is_simulated, safe, span

_COLUMNS = (
    Column("RUN", least=10, keep_empty=True, middle=True),
    Column("USER"),
    Column("PID", right=True),
    Column("RUNNING", right=True),
    Column("QUEUED", right=True),
    Column("LIMIT", right=True),
    Column("CLAIMS", right=True),
    Column("GPU SHARE", least=20),
    Column("DIRECTORY", least=12, drop=0, middle=True),
)
_WAITS_FOR = Column("WAITS FOR")
"""On a terminal it is said in words above the table, which is wide enough without it."""
_LEASES = Column("LEASES", right=True)
"""Also."""
WAITING_SHOWN_MAX = 4
LEASES_SHOWN_MAX = 4
SHARED_WITH_NOBODY = "all"


@click.command("host")
@click.option("--host-scope", metavar="DIR", help="Directory that the runs of this host share.")
@global_options()
@click.pass_context
def command(ctx: click.Context, host_scope: str | None) -> int:
    """Show all runs of this host, and who holds what.

    \b
    praxist-zmq host
    praxist-zmq host --json
    praxist-zmq host --host-scope /srv/praxist

    CLAIMS are the allocations that a run holds. GPU SHARE is the declared utilisation of each
    device in percent; `all` is a device that it shares with nobody. A lease is room that a run
    keeps for an offer to an idle peer; any submitted work takes it.
    """
    settings = settings_of(ctx)
    if host_scope is not None:
        os.environ["PRAXIST_ZMQ_HOST_DIR"] = str(canonical(host_scope))
    view = view_host(settings)
    content = host_document(view, SystemClock().mono_ms())
    if settings.is_json:
        output.document(content)
    elif settings.format == "name":
        output.answer(*(safe(run["run_id"]) for run in content["runs"]))
    else:
        _print(settings, view, content)
    return 0


def view_host(settings: Settings) -> Json:
    """The registry's view. Raises `no_scheduler` when none answers."""
    paths = HostPaths(scope_directory())
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


def host_document(view: Json, mono_ms: int) -> Json:
    """The JSON document. `mono_ms`: CLOCK_BOOTTIME now, for ages."""
    names = {run["run_key"]: run["run_id"] for run in view["runs"]}
    rows: list[Json] = view["allocations"]
    return {
        **head("host"),
        "runs": [_run(run, rows, view["wants"]) for run in view["runs"]],
        "down_runs": [_down_run(run, rows) for run in view.get("down", ())],
        "limit": view["limit"] or None,
        "allocations": [_allocation(row) for row in rows],
        "claims": [_claim(row, names, mono_ms) for row in view.get("leases", ())],
        "devices_elsewhere": list(view.get("elsewhere", ())),
    }


def _run(run: Json, rows: list[Json], wants: list[Json]) -> Json:
    own = [row for row in rows if row["run_key"] == run["run_key"]]
    waits = [told["want"] for told in wants if told["run_key"] == run["run_key"]]
    return {
        "run_id": run["run_id"],
        "run_dir": run["run_dir"] or None,
        "user": run["user"],
        "uid": run["uid"],
        "pid": _number(run["broker"]),
        "running": run["running"],
        "queued": run["queued"],
        "limit": run["limit"],
        "claims": len(own),
        "devices": _devices(own),
        "waits_for_slot": any(want["slot"] for want in waits),
        "waits_for_gpu_uuids": [
            uuid for want in waits if want["envelope"] for uuid in want["envelope"]["device_uuids"]
        ],
    }


def _down_run(run: Json, rows: list[Json]) -> Json:
    """A run that no scheduler serves; its experiments go on and hold what they held."""
    own = [row for row in rows if row["run_key"] == run["run_key"]]
    return {
        "run_id": run["run_id"],
        "run_dir": run["run_dir"] or None,
        "user": run["user"],
        "uid": run["uid"],
        "claims": len(own),
        "devices": _devices(own),
    }


def _devices(rows: list[Json]) -> list[Json]:
    """What the rows hold together of each of their devices, in the order of their names."""
    found: dict[str, Json] = {}
    for row in rows:
        envelope = row["envelope"]
        demand = (envelope["utilization_pct"], envelope["memory_mib"])
        for device in envelope["device_uuids"]:
            entry = found.setdefault(
                device,
                {
                    "uuid": device,
                    "allocations": 0,
                    "exclusive": False,
                    "declared_utilization_pct": 0.0,
                    "declared_memory_mib": 0,
                },
            )
            entry["allocations"] += 1
            entry["exclusive"] |= envelope["exclusive"] or None in demand
            for key, figure in zip(
                ("declared_utilization_pct", "declared_memory_mib"), demand, strict=True
            ):
                known = entry[key] is not None and figure is not None
                entry[key] = entry[key] + figure if known else None
    return [found[uuid] for uuid in sorted(found)]


def _number(process: Json) -> int | None:
    """Its number, where that means this process: None for one of another PID namespace."""
    named = NamedProcess.of(process)
    return None if liveness(named) == "unknown" else named.pid


def _allocation(row: Json) -> Json:
    bound = row["bound"]
    return {
        "run_key": row["run_key"],
        "attempt": row["attempt"],
        **row["envelope"],
        "pid": _number(bound) if bound else None,
        "overcommitted": row.get("overcommitted", False),
    }


def _shared_lines(rows: list[Json], names: dict[str, str]) -> list[str]:
    """Devices on which one ran already when others held them: the registry had lost its row."""
    devices = {u for row in rows if row["overcommitted"] for u in row["device_uuids"]}
    lines = []
    for device in sorted(devices):
        there = [row for row in rows if device in row["device_uuids"]]
        if len(there) > 1:
            named = (f"{row['attempt']} of {_name(row['run_key'], names)}" for row in there)
            lines.append(f"{device_name(device)} is promised twice: {' and '.join(sorted(named))}")
    return lines


def _name(run_key: str, names: dict[str, str]) -> str:
    return safe(names.get(run_key) or run_key[:8])


def _claim(row: Json, names: dict[str, str], mono_ms: int) -> Json:
    """A lease: a hold that no job needs yet."""
    return {
        "run_key": row["run_key"],
        "run_id": names.get(row["run_key"]),
        "lease_id": row["lease_id"],
        **row["envelope"],
        "age_seconds": max(0, mono_ms - row["claimed_mono_ms"]) / 1000,
    }


def _print(settings: Settings, view: Json, content: Json) -> None:
    rows = [_cells(run) for run in content["runs"]]
    if settings.format == "table":
        output.answer(*_head_lines(view, content))
        print_table(settings, _COLUMNS, rows)
        return
    keys = [run["run_key"] for run in view["runs"]]
    held = Counter(claim["run_key"] for claim in content["claims"])
    told = [
        [*row, _waits_for(run) or "-", held[key]]
        for row, run, key in zip(rows, content["runs"], keys, strict=True)
    ]
    told += [[*_down_cells(run), "-", 0] for run in content["down_runs"]]
    print_table(settings, (*_COLUMNS, _WAITS_FOR, _LEASES), told)


def _head_lines(view: Json, content: Json) -> list[str]:
    rows: list[Json] = content["allocations"]
    simulated = any(is_simulated(uuid) for row in rows for uuid in row["device_uuids"])
    mark = "   SIMULATED devices" if simulated else ""
    limit = content["limit"]
    slots = f"slots {len(rows)}/{limit}" if limit else count(len(rows), "allocation")
    lines = [f"{count(len(content['runs']), 'run')}   {slots}{mark}"]
    lines += [_down_line(run) for run in content["down_runs"]]
    every = (*view["runs"], *view.get("down", ()))
    lines += _shared_lines(rows, {run["run_key"]: run["run_id"] for run in every})
    known = {run["run_key"] for run in every}
    left = [row for row in rows if row["run_key"] not in known]
    if left:
        runs = len({row["run_key"] for row in left})
        lines.append(
            f"{count(len(left), 'allocation')} of {count(runs, 'run')} without a scheduler"
        )
    waiting = [(run["run_id"], wait) for run in content["runs"] if (wait := _waits_for(run))]
    lines += [f"{safe(name)} waits for {wait}" for name, wait in waiting[:WAITING_SHOWN_MAX]]
    if len(waiting) > WAITING_SHOWN_MAX:
        lines.append(f"{count(len(waiting) - WAITING_SHOWN_MAX, 'more run')} wait")
    lines += [_elsewhere_line(other) for other in content["devices_elsewhere"]]
    claims: list[Json] = content["claims"]
    lines += [_lease_line(claim) for claim in claims[:LEASES_SHOWN_MAX]]
    if len(claims) > LEASES_SHOWN_MAX:
        lines.append(count(len(claims) - LEASES_SHOWN_MAX, "more lease"))
    return lines


def _elsewhere_line(other: Json) -> str:
    """A device that belongs to another host scope now."""
    return safe(f"{device_name(other['uuid'])} is {elsewhere_words(DeviceElsewhere(**other))}")


def _down_line(run: Json) -> str:
    held = "  ".join(_share(entry) for entry in run["devices"])
    where = f"   {safe(run['run_dir'])}" if run["run_dir"] else ""
    share = f"   GPU share {held}" if held else ""
    return f"{safe(run['run_id'])} is down, {count(run['claims'], 'allocation')} held{share}{where}"


def _lease_line(claim: Json) -> str:
    names = sorted(device_name(uuid).removeprefix("GPU ") for uuid in claim["device_uuids"])
    room = f"GPU {','.join(names)}" if names else "a slot"
    name = safe(claim["run_id"] or claim["run_key"][:8])
    return f"{name} holds {room} for {safe(claim['lease_id'])}, {span(claim['age_seconds'])} old"


def _cells(run: Json) -> list[Any]:
    return [
        run["run_id"],
        run["user"],
        "other PID namespace" if run["pid"] is None else run["pid"],
        run["running"],
        run["queued"],
        run["limit"],
        run["claims"],
        "  ".join(_share(entry) for entry in run["devices"]) or "-",
        run["run_dir"] or "-",
    ]


def _down_cells(run: Json) -> list[Any]:
    """A run that no scheduler serves, as a row: nobody knows what it runs and what waits."""
    share = "  ".join(_share(entry) for entry in run["devices"]) or "-"
    where = run["run_dir"] or "-"
    return [run["run_id"], run["user"], "down", "-", "-", "-", run["claims"], share, where]


def _share(entry: Json) -> str:
    name = device_name(entry["uuid"]).removeprefix("GPU ")
    share = entry["declared_utilization_pct"]
    return f"{name}: {SHARED_WITH_NOBODY if entry['exclusive'] or share is None else f'{share:g}'}"


def _waits_for(run: Json) -> str:
    names = sorted(device_name(uuid).removeprefix("GPU ") for uuid in run["waits_for_gpu_uuids"])
    found = ["a slot"] if run["waits_for_slot"] else []
    if names:
        found.append(f"GPU {','.join(names)}")
    return " and ".join(found)
