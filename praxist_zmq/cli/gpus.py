"""`gpus`: the devices with what is used, declared and free."""

from __future__ import annotations

import re

import click

from ..protocol.envelope import Json
from . import output
from .connect import ask, connect
from .documents import DEVICE_KEYS, head, pick
from .fields import field_lines, fields_option, picked
from .settings import global_options, settings_of
from .table import Column, print_table
from .words import device_name, is_simulated, run_words, safe

HELD = "held"
ELSEWHERE = "elsewhere"
_EXTERNAL = re.compile(r"pid (?P<pid>\d+)(?:.*?, user (?P<user>[^,]+))?")
_LEGEND = (
    "NOW to FREE in % of compute; free = 100 - external - the larger of declared and own observed; "
    "memory against 95 % of the device",
    "held: one job has the device alone, whatever it uses",
)
_COLUMNS = (
    Column("GPU", right=True),
    Column("UUID", least=8, drop=1),
    Column("MODEL", least=8, drop=0),
    Column("STATE"),
    Column("NOW", right=True),
    Column("DECLARED", right=True, keep_empty=True),
    Column("EXTERNAL", right=True),
    Column("FREE", right=True, keep_empty=True),
    Column("MEM USED", right=True),
    Column("MEM FREE", right=True),
    Column("JOBS", least=10),
    Column("RUNS", least=8, drop=2, middle=True),
)


@click.command("gpus")
@fields_option(DEVICE_KEYS)
@global_options()
@click.pass_context
def command(ctx: click.Context, fields: tuple[str, ...] | None) -> int:
    """Show the devices and what is free on them.

    \b
    praxist-zmq gpus
    praxist-zmq gpus --fields index,free_memory_mib,jobs --json

    NOW, DECLARED, EXTERNAL and FREE are percent of the compute of a device.
    """
    settings = settings_of(ctx)
    with connect(settings) as client:
        reply = ask(client, {"kind": "get_devices"}, settings.timeout_s)
    devices = reply["devices"]
    if settings.is_json:
        body = [picked(fields, pick(DEVICE_KEYS, device)) for device in devices]
        output.document({**head("gpus"), "devices": body, "simulated": reply["simulated"]})
        return 0
    if settings.format == "name":
        output.answer(*(safe(device["uuid"]) for device in devices))
        return 0
    if reply["simulated"]:
        (output.answer if settings.format == "table" else output.talk)("SIMULATED devices")
    if not devices:
        output.talk(
            "no devices; `praxist-zmq status` says what the driver told; "
            "`praxist-zmq up --sim gpus=2,memory=80` simulates some"
        )
    if fields is not None:
        items = [pick(DEVICE_KEYS, device) for device in devices]
        output.answer(*field_lines(settings, fields, items))
        return 0
    short = settings.format == "table"
    print_table(settings, _COLUMNS, [row(device, short=short) for device in devices])
    told = [safe(d["reason"]) for d in devices if d["state"] == "available" and d.get("reason")]
    told += [
        f"GPU {device['index']} is {safe(device['held_elsewhere'])}"
        for device in devices
        if device.get("held_elsewhere")
    ]
    if short and told:
        output.page(settings, told)
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
        _state(device, short=short),
        _number(device["utilization_pct"]),
        "alone" if device["exclusive"] else _number(device["declared_utilization_pct"]),
        _number(device["external_utilization_pct"]),
        _free(device),
        _gib(device["memory_used_mib"]),
        _free_memory(device),
        _jobs(device),
        ", ".join([*_own_run(device), *map(run_words, device["other_runs"])]),
    ]


def _state(device: Json, *, short: bool) -> str:
    """The driver's word; of a device that another host scope holds, that."""
    state: str = device["state"]
    if device.get("held_elsewhere"):
        return ELSEWHERE
    return "" if short and state == "available" else state


def _short(device: Json) -> str:
    uuid: str = device["uuid"]
    return "" if is_simulated(uuid) else device_name(uuid).removeprefix("GPU ")


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _gib(mib: float | None) -> str:
    return "?" if mib is None else f"{mib / 1024:.1f} GiB"


def _free(device: Json) -> str:
    """What the broker counts as free; unknown stays unknown."""
    if device["state"] != "available":
        return "?"
    if device["exclusive"] or device.get("held_elsewhere"):
        return HELD
    return _number(device.get("free_utilization_pct"))


def _free_memory(device: Json) -> str:
    if device["state"] != "available":
        return "?"
    if device["exclusive"] or device.get("held_elsewhere"):
        return HELD
    return _gib(device.get("free_memory_mib"))


def _jobs(device: Json) -> str:
    """`j-118 j-121 +dana/88211`: our jobs, then the processes of others."""
    strangers = (_stranger(words) for words in device.get("external") or [])
    return " ".join([*device["jobs"], *(f"+{name}" for name in strangers)])


def _own_run(device: Json) -> list[str]:
    """This run's name, where it holds the device too."""
    others = {run["run_id"] for run in device["other_runs"]}
    return [name for name in device["runs"] if device["jobs"] and name not in others]


def _stranger(words: str) -> str:
    """`dana/88211` of `pid 88211 python, user dana, 38 %`."""
    match = _EXTERNAL.match(words)
    if match is None:
        return words.removeprefix("and ").replace(" ", "")
    user = match["user"]
    return f"{user}/{match['pid']}" if user else f"pid/{match['pid']}"
