"""`sim`: foreign load and faults on the simulated devices of a live run.

Writes the host scope's simulation file; the samplers read it. Refuses where no live run is
simulated, so that nobody believes to have changed a real device.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from ..errors import PraxistError
from ..host.default_scope import host_scope
from ..host.paths import HostPaths
from ..host.simulation_file import FAULTS, set_fault, set_load
from ..host.simulation_file import clear as clear_file
from ..protocol.envelope import Json
from . import output
from .connect import ask, connect
from .documents import head
from .settings import Settings, global_options, settings_of
from .words import is_simulated, safe

GPU_HELP = "The device, by its number in `gpus`."
_NUMBER = re.compile(r"[0-9a-f]{12}$")


@click.group("sim")
def command() -> None:
    """Set foreign load and faults on simulated devices."""


@command.command("load")
@click.option("--gpu", type=click.IntRange(0, 1023), required=True, metavar="N", help=GPU_HELP)
@click.option(
    "--utilization",
    type=click.FloatRange(0, 100),
    metavar="PCT",
    help="Per cent of the time that others keep it busy; not given, it stays as it was.",
)
@click.option(
    "--memory-gb",
    type=click.FloatRange(0, 1_000_000),
    metavar="G",
    help="GiB that others use of it; not given, it stays as it was.",
)
@global_options()
@click.pass_context
def load(ctx: click.Context, gpu: int, utilization: float | None, memory_gb: float | None) -> int:
    """Put foreign load on a simulated device: what processes of nobody's runs would use of it.

    It is what the scheduler calls external, and stays until `sim clear` or another load. All runs
    of the host scope see it.

    \b
    praxist-zmq sim load --gpu 0 --utilization 60 --memory-gb 20
    praxist-zmq sim load --gpu 0 --utilization 0
    """
    if utilization is None and memory_gb is None:
        raise click.UsageError("give --utilization, --memory-gb, or both", ctx)
    settings = settings_of(ctx)
    path = _simulated(settings, gpu)
    set_load(path, gpu, utilization, memory_gb)
    told = [
        f"utilization {utilization:g} %" if utilization is not None else "",
        f"memory {memory_gb:g} GiB" if memory_gb is not None else "",
    ]
    return _told(settings, f"SIMULATED GPU {gpu}: others use " + ", ".join(filter(None, told)))


@command.command("fail")
@click.option("--gpu", type=click.IntRange(0, 1023), required=True, metavar="N", help=GPU_HELP)
@click.argument("kind", type=click.Choice(FAULTS), metavar="KIND")
@global_options()
@click.pass_context
def fail(ctx: click.Context, gpu: int, kind: str) -> int:
    """Break a simulated device.

    KIND is lost, memory_unsupported, utilization_unsupported, processes_unsupported, mig, hang
    or init.

    \b
    praxist-zmq sim fail --gpu 1 lost
    """
    settings = settings_of(ctx)
    set_fault(_simulated(settings, gpu), gpu, kind)
    return _told(settings, f"SIMULATED GPU {gpu}: {kind}")


@command.command("clear")
@global_options()
@click.pass_context
def clear(ctx: click.Context) -> int:
    """Take all load and faults off the simulated devices."""
    settings = settings_of(ctx)
    clear_file(_simulated(settings, None))
    return _told(settings, "SIMULATED devices: no foreign load, no faults")


def _simulated(settings: Settings, gpu: int | None) -> Path:
    """The simulation file. Raises `no_run` when no live run simulates that device."""
    with connect(settings) as client:
        reply = ask(client, {"kind": "get_devices"}, settings.timeout_s)
    if not reply["simulated"]:
        raise PraxistError(
            "no_run", "this run uses real devices", ["start it with `up --sim gpus=N,memory=GIB`"]
        )
    numbers = _numbers(reply["devices"])
    if gpu is not None and numbers and gpu not in numbers:
        raise PraxistError(
            "usage", f"there is no simulated GPU {gpu}; there are {', '.join(map(str, numbers))}"
        )
    return HostPaths(host_scope()).simulation


def _numbers(devices: list[Json]) -> list[int]:
    found = [_NUMBER.search(d["uuid"]) for d in devices if is_simulated(d["uuid"])]
    return sorted(int(match.group(), 16) for match in found if match)


def _told(settings: Settings, text: str) -> int:
    if settings.is_json:
        output.document({**head("sim"), "detail": text})
    elif not settings.quiet:
        output.answer(safe(text))
    return 0
