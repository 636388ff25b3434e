"""`binding check`: whether children land on the devices that their masks name."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from ..binding import ASSIGNED
from ..errors import PraxistError
from ..host.clock import SystemClock
from ..service.binding_check import CheckReport, check
from . import output
from .documents import head
from .settings import Settings, global_options, settings_of
from .table import Column, print_table
from .words import count, is_simulated, safe, wrapped

TIMEOUT_S = 30.0
_COLUMNS = (
    Column("VERDICT"),
    Column("GPU", right=True),
    Column("UUID", least=12, middle=True),
    Column("PID", right=True),
)
_PLAIN_COLUMNS = (*_COLUMNS, Column("DETAIL"))


@click.group("binding")
def command() -> None:
    """Check that a task's processes get the devices they are given."""


@command.command("check")
@click.option(
    "--uuid", "uuids", multiple=True, metavar="U", help="A device; repeatable [the assigned ones]."
)
@global_options(told={"timeout": "Longest time for the whole check [30s]."})
@click.pass_context
def check_binding(ctx: click.Context, uuids: tuple[str, ...]) -> int:
    """Start a child on each device and ask the driver where it is.

    Inside an experiment: the assigned devices. Elsewhere: those named. Each child opens a CUDA
    context under exactly one UUID, and NVML says on which device its pid is. Ends with 0 when all
    are verified, 1 on a conflict or a failure, 69 without an NVIDIA driver, 79 when not all were
    observed, 124 over time.

    \b
    praxist-zmq binding check
    praxist-zmq binding check --uuid GPU-1b3f6a52-9c0e-4a57-8d8e-0f4c2b7a9e11 --timeout 10s
    """
    settings = settings_of(ctx)
    _refuse_simulated(uuids or tuple(os.environ.get(ASSIGNED, "").split(",")))
    timeout_s = TIMEOUT_S if settings.timeout is None else settings.timeout
    report = check(uuids, os.environ, int(timeout_s * 1000), SystemClock())
    _tell(settings, report)
    return report.exit_code


def _refuse_simulated(uuids: tuple[str, ...]) -> None:
    if any(is_simulated(uuid) for uuid in uuids):
        raise PraxistError(
            "no_driver", "the devices are SIMULATED: no driver can open a context on them"
        )


def _tell(settings: Settings, report: CheckReport) -> None:
    if settings.is_json:
        found = asdict(report)
        verdict = {"verdict": report.verdict, "exit_code": report.exit_code}
        output.document({**head("binding_check"), **verdict, **found})
        return
    if settings.format == "name":
        verified = [device.uuid for device in report.devices if device.verdict == "verified"]
        output.answer(*(safe(uuid) for uuid in verified))
        return
    rows = [(d.verdict, d.index, d.uuid, d.pid, d.detail) for d in report.devices]
    if not rows:
        output.talk(*report.notes)
        return
    if settings.format == "table":
        columns = output.terminal_columns()
        print_table(settings, _COLUMNS, [row[:4] for row in rows])
        for device in report.devices:
            if device.detail:
                output.answer(*wrapped("why", f"{device.uuid}: {device.detail}", columns))
    else:
        print_table(settings, _PLAIN_COLUMNS, rows)
    done = sum(device.verdict == "verified" for device in report.devices)
    output.talk(f"{report.verdict}  {done} of {count(len(report.devices), 'device')} verified")
    output.talk(*(f"  note  {note}" for note in report.notes))
