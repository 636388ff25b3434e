"""`gpus`: the devices with what is used, declared and free."""

from __future__ import annotations

import click

from ..protocol.envelope import Json
from . import output
from .connect import ask, connect
from .documents import DEVICE_KEYS, head, pick
from .settings import global_options, settings_of
from .table import Column, print_table
from .words import device_name, is_simulated, safe

MEMORY_SHARE = 0.95  # the part of a device's memory that may be promised
HELD = "held"
_LEGEND = (
    "free: 100 less declared (DECL) and others; memory: of 95 % of the device",
    "held: one job has the device alone, whatever it uses",
)
_COLUMNS = (
    Column("GPU", right=True),
    Column("UUID", least=8, drop=1),
    Column("MODEL", least=8, drop=0),
    Column("STATE"),
    Column("BUSY %", right=True),
    Column("DECL %", right=True, keep_empty=True),
    Column("OTHERS %", right=True),
    Column("FREE %", right=True, keep_empty=True),
    Column("USED GiB", right=True),
    Column("FREE GiB", right=True),
    Column("JOBS", least=8),
    Column("RUNS", least=8, drop=2),
)


@click.command("gpus")
@global_options()
@click.pass_context
def command(ctx: click.Context) -> int:
    """Show the devices and what is free on them.

    \b
    praxist-zmq gpus
    praxist-zmq gpus --json
    """
    settings = settings_of(ctx)
    with connect(settings) as client:
        reply = ask(client, {"kind": "get_devices"}, settings.timeout_s)
    devices = reply["devices"]
    if settings.is_json:
        body = [pick(DEVICE_KEYS, device) for device in devices]
        output.document({**head("gpus"), "devices": body, "simulated": reply["simulated"]})
        return 0
    if settings.format == "name":
        output.answer(*(safe(device["uuid"]) for device in devices))
        return 0
    if reply["simulated"]:
        (output.answer if settings.format == "table" else output.talk)("SIMULATED devices")
    if not devices:
        output.talk("no devices; `praxist-zmq status` says what the driver told")
    short = settings.format == "table"
    print_table(settings, _COLUMNS, [row(device, short=short) for device in devices])
    if short and devices:
        output.page(settings, _LEGEND[:1] if not any(d["exclusive"] for d in devices) else _LEGEND)
    return 0


def row(device: Json, *, short: bool) -> list[object]:
    """The cells of one device; `short` shows the head of its name only.

    A simulated device is named by its number everywhere; its UUID adds nothing for a reader.
    """
    return [
        device["index"],
        _short(device) if short else device["uuid"],
        "SIMULATED" if is_simulated(device["uuid"]) else device["name"],
        device["state"],
        _number(device["utilization_pct"]),
        "alone" if device["exclusive"] else _number(device["declared_utilization_pct"]),
        _number(device["external_utilization_pct"]),
        _free(device),
        _gib(device["memory_used_mib"]),
        HELD if device["exclusive"] else _gib(_free_memory(device)),
        " ".join(device["jobs"]),
        " ".join(device["runs"]),
    ]


def _short(device: Json) -> str:
    uuid: str = device["uuid"]
    return "" if is_simulated(uuid) else device_name(uuid).removeprefix("GPU ")


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _gib(mib: float | None) -> str:
    return "?" if mib is None else f"{mib / 1024:.1f}"


def _free(device: Json) -> str:
    """100 less what is declared and what others use; unknown stays unknown."""
    if device["exclusive"]:
        return HELD
    if device["state"] != "available":
        return "0"
    external = device["external_utilization_pct"]
    if external is None:
        return "?"
    return _number(max(0.0, 100 - device["declared_utilization_pct"] - external))


def _free_memory(device: Json) -> float | None:
    if device["state"] != "available":
        return 0.0
    total, external = device["memory_total_mib"], device["external_memory_mib"]
    if total is None or external is None:
        return None
    return max(0.0, float(MEMORY_SHARE * total - device["declared_memory_mib"] - external))
