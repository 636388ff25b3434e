"""`up`: start the scheduler of a run, in the foreground or detached.

Reads the options and says how it went; everything else is `service.run_start`'s work.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import click

from ..errors import PraxistError
from ..host import stdio
from ..host.paths import RunPaths, canonical
from ..service.child_config import SimulatedDevices
from ..service.detached import start_detached
from ..service.run_start import RunRequest, serve_run
from .duration import DURATION
from .output import talk
from .settings import Settings, global_options, settings_of
from .words import safe

_SIM_PART = re.compile(r"^(gpus|memory)=([0-9]{1,6}(?:\.[0-9]{1,3})?)$", re.ASCII)
_DEFAULT_MEMORY_GIB = 80.0


def _parse_sim(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> SimulatedDevices | None:
    """`gpus=4,memory=80`: devices, and GiB of each. A usage error for anything else."""
    if value is None:
        return None
    found: dict[str, float] = {}
    for part in value.split(","):
        match = _SIM_PART.match(part.strip())
        if match is None:
            raise click.BadParameter(f"{part[:40]!r} is neither gpus=N nor memory=GIB", ctx, param)
        if match[1] in found:
            raise click.BadParameter(f"{match[1]} is given twice", ctx, param)
        found[match[1]] = float(match[2])
    gpus, memory = found.get("gpus"), found.get("memory", _DEFAULT_MEMORY_GIB)
    if gpus is None or not gpus.is_integer() or gpus > 1024:
        raise click.BadParameter("gpus must be a whole number from 0 to 1024", ctx, param)
    if not 0 < memory <= 100_000:
        raise click.BadParameter("memory must be more than 0, at most 100000 GiB", ctx, param)
    return SimulatedDevices(gpus=int(gpus), memory_gib=memory)


def _run_of(settings: Settings) -> RunPaths:
    """`up` never guesses among live runs: --run-dir, else PRAXIST_RUN_DIR."""
    named = settings.run_dir or os.environ.get("PRAXIST_RUN_DIR")
    if not named:
        raise PraxistError(
            "no_run",
            "no run was named; `up` never guesses one",
            ["give --run-dir DIR, or set PRAXIST_RUN_DIR"],
        )
    if "\x00" in named:
        raise PraxistError("usage", "the run directory holds a NUL byte")
    return RunPaths.of(named)


def _say_ready(facts: dict[str, Any], settings: Settings) -> None:
    """One line on stdout; a stdout that nobody reads any more is no reason to end."""
    for warning in facts["warnings"]:
        stdio.say(f"warning  {safe(warning)}", 2)
    if settings.is_json:
        keys = ("run_id", "run_dir", "pid", "endpoint", "simulated", "warnings")
        content = {"format_version": "1.0", "kind": "up", "state": "ready"}
        stdio.say(json.dumps({**content, **{key: facts[key] for key in keys}}))
        return
    simulated = "  SIMULATED" if facts["simulated"] else ""
    stdio.say(
        f"ready {safe(facts['run_id'])} pid {facts['pid']} "
        f"endpoint {safe(facts['endpoint'])}{simulated}"
    )


@click.command("up")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="The contract.")
@click.option("--sim", callback=_parse_sim, metavar="gpus=N,memory=GIB", help="Simulated devices.")
@click.option("--detach", is_flag=True, help="Return once it is ready.")
@click.option("--generation", type=click.IntRange(0, 1_000_000), metavar="N", help="Generation.")
@click.option(
    "--cohort-size", type=click.IntRange(1, 1_000_000), metavar="N", help="Peers of the generation."
)
@click.option("--deadline", type=DURATION, metavar="DUR", help="Time the generation has.")
@click.option("--host-scope", metavar="DIR", help="Directory that the runs of this host share.")
@global_options()
@click.pass_context
def command(
    ctx: click.Context,
    config: Path | None,
    sim: SimulatedDevices | None,
    detach: bool,
    generation: int | None,
    cohort_size: int | None,
    deadline: float | None,
    host_scope: str | None,
) -> int:
    """Start the scheduler of a run, or resume it.

    \b
    praxist-zmq --run-dir runs/a up --detach
    praxist-zmq --run-dir runs/a up --sim gpus=4,memory=80
    """
    stdio.ensure_open()
    settings = settings_of(ctx)
    if host_scope is not None:
        os.environ["PRAXIST_ZMQ_HOST_DIR"] = str(canonical(host_scope))
    request = RunRequest(
        run=_run_of(settings),
        contract=canonical(config) if config is not None else None,
        sim=sim,
        generation=generation,
        cohort_size=cohort_size,
        deadline_seconds=deadline,
    )
    if detach:
        _say_ready(start_detached(lambda announce: serve_run(request, announce)), settings)
        return 0
    serve_run(request, lambda facts: _say_ready(facts, settings))
    if not settings.is_json:
        talk("down  experiments that still run go on; `praxist-zmq up` adopts them")
    return 0
