"""`up`: start the scheduler of a run, in the foreground or detached.

Reads the options and says how it went; everything else is `service.run_start`'s work.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any, Literal

import click

from ..errors import PraxistError
from ..host import stdio
from ..host.paths import RunPaths, canonical
from ..service.child_config import PEER_CAP_MAX, ResultsCommand, SimulatedDevices
from ..service.detached import start_detached
from ..service.device_choice import REAL, DeviceRequest
from ..service.results_choice import NO_READER, ReaderRequest
from ..service.run_start import RunRequest, serve_run
from .duration import DURATION
from .output import talk
from .settings import Settings, global_options, settings_of
from .words import safe

_SIM_PART = re.compile(r"^(gpus|memory)=([0-9]{1,6}(?:\.[0-9]{1,3})?)$", re.ASCII)
_NUMBER = re.compile(r"^[0-9]{1,7}$", re.ASCII)
_MEMORY_GIB_MAX = 1_024
_DEFAULT_MEMORY_GIB = 80.0
PEER_CAP_VARIABLE = "PRAXIST_MAX_PARALLEL_RUNS_PER_PEER"
READY_HEAD = {"format_version": "1.0", "kind": "up", "state": "ready"}
READY_KEYS = (
    "run_id",
    "run_dir",
    "pid",
    "endpoint",
    "simulated",
    "devices",
    "contract",
    "warnings",
)


def parse_sim(ctx: click.Context, param: click.Parameter, value: str | None) -> DeviceRequest:
    """`gpus=4,memory=80`: devices, and GiB of each; `none`: real ones. Else a usage error."""
    if value is None:
        return None
    if value.strip() == REAL:
        return REAL
    found: dict[str, float] = {}
    for part in value.split(","):
        match = _SIM_PART.match(part.strip())
        if match is None:
            raise click.BadParameter(
                f"{part[:40]!r} is neither gpus=N nor memory=GIB nor none", ctx, param
            )
        if match[1] in found:
            raise click.BadParameter(f"{match[1]} is given twice", ctx, param)
        found[match[1]] = float(match[2])
    gpus, memory = found.get("gpus"), found.get("memory", _DEFAULT_MEMORY_GIB)
    if gpus is None or not gpus.is_integer() or gpus > 1024:
        raise click.BadParameter("gpus must be a whole number from 0 to 1024", ctx, param)
    if not 0 < memory <= _MEMORY_GIB_MAX:
        text = f"memory must be more than 0, at most {_MEMORY_GIB_MAX} GiB"
        text += f"; write {memory / 1024:g} for {memory:g} MiB" if memory else ""
        raise click.BadParameter(text, ctx, param)
    return SimulatedDevices(gpus=int(gpus), memory_gib=memory)


def _parse_cap(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> int | Literal["none"] | None:
    """A whole number of at least 1, or `none`. Else a usage error."""
    if value is None:
        return None
    text = value.strip()
    if text == "none":
        return "none"
    if not _NUMBER.match(text) or not 1 <= int(text) <= PEER_CAP_MAX:
        told = ctx.get_parameter_source(str(param.name)) is click.core.ParameterSource.ENVIRONMENT
        text = f"{PEER_CAP_VARIABLE}=" if told else ""
        text += f"{value[:40]!r} is neither a whole number from 1 to {PEER_CAP_MAX} nor none"
        raise click.BadParameter(text, ctx, param)
    return int(text)


def _parse_reader(ctx: click.Context, param: click.Parameter, value: str | None) -> ReaderRequest:
    """The words of a command, as a shell would split them, or `none`. Else a usage error."""
    if value is None or value.strip() == NO_READER:
        return None if value is None else NO_READER
    try:
        words = tuple(shlex.split(value))
        return ResultsCommand(command=words, cwd=os.getcwd())
    except ValueError as error:
        why = "it has no words" if not value.strip() else str(error)[:200]
        raise click.BadParameter(f"{value[:40]!r} is no command: {why}", ctx, param) from None


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
        stdio.say(json.dumps({**READY_HEAD, **{key: facts[key] for key in READY_KEYS}}))
        return
    if not settings.quiet:
        stdio.say(_contract_line(facts["contract"]), 2)
        if facts["devices"]["remembered"]:
            stdio.say(_devices_line(facts["devices"]["simulated"]), 2)
    simulated = "  SIMULATED" if facts["simulated"] else ""
    stdio.say(
        f"ready {safe(facts['run_id'])} pid {facts['pid']} "
        f"endpoint {safe(facts['endpoint'])}{simulated}"
    )


def _contract_line(contract: dict[str, Any]) -> str:
    """Which contract is in force, and what it allows."""
    cap = contract["max_parallel_runs_per_peer"]
    return _contract_words(contract) + ("" if cap is None else f", {cap} of one peer")


def _contract_words(contract: dict[str, Any]) -> str:
    if contract["source"] == "default":
        return (
            "contract  none was given: one CPU profile `default`, one experiment at a time, "
            "GPUs unused; see conf/contract.example.yaml"
        )
    names, count = contract["profiles"], contract["profiles_count"]
    more = f" and {count - len(names)} more" if count > len(names) else ""
    noun = "profile" if count == 1 else "profiles"
    where = "kept from an earlier start" if contract["file"] is None else safe(contract["file"])
    return (
        f"contract  {where}: {noun} {safe(' '.join(names))}{more}, "
        f"at most {contract['max_concurrent_experiments']} at once"
    )


def _devices_line(simulated: dict[str, Any]) -> str:
    """That the devices are simulated although nobody said so now."""
    count, memory = simulated["gpus"], simulated["memory_gib"]
    noun = "GPU" if count == 1 else "GPUs"
    return (
        f"devices  {count} simulated {noun} of {memory:g} GiB, as at the last start; "
        "`--sim none` goes back to real ones"
    )


@click.command("up")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The contract; without it the run keeps the one it has.",
)
@click.option(
    "--sim",
    callback=parse_sim,
    metavar="gpus=N,memory=GIB|none",
    help="Simulated devices, or `none` for real ones; without it as at the last start.",
)
@click.option("--detach", is_flag=True, help="Return once it is ready.")
@click.option(
    "--generation",
    type=click.IntRange(0, 1_000_000),
    metavar="N",
    help="Open it; run one that had ended again.",
)
@click.option(
    "--cohort-size",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Peers of the generation.",
)
@click.option("--deadline", type=DURATION, metavar="DUR", help="Time the generation has.")
@click.option(
    "--max-per-peer",
    callback=_parse_cap,
    envvar=PEER_CAP_VARIABLE,
    metavar="N|none",
    help="Running jobs of one peer; without it as at the last start.",
)
@click.option(
    "--results-command",
    callback=_parse_reader,
    metavar="CMD|none",
    help="Prints the task's published results; without it as at the last start.",
)
@click.option(
    "--allow-unsatisfiable",
    is_flag=True,
    help="Start although the default profile can never run on this host.",
)
@click.option(
    "--accept-lost-records",
    is_flag=True,
    help="Start although the ledger is missing or older than it was; what it lacks may run again.",
)
@click.option("--host-scope", metavar="DIR", help="Directory that the runs of this host share.")
@global_options()
@click.pass_context
def command(
    ctx: click.Context,
    config: Path | None,
    sim: DeviceRequest,
    detach: bool,
    generation: int | None,
    cohort_size: int | None,
    deadline: float | None,
    max_per_peer: int | Literal["none"] | None,
    results_command: ReaderRequest,
    allow_unsatisfiable: bool,
    accept_lost_records: bool,
    host_scope: str | None,
) -> int:
    """Start the scheduler of a run, or resume it.

    \b
    praxist-zmq --run-dir runs/a up --detach --config task.yaml
    praxist-zmq --run-dir runs/a up --detach
    praxist-zmq --run-dir runs/b up --config task.yaml --sim gpus=4,memory=80

    The second goes on with the contract and the devices of the first. A run that was never given
    a contract has one CPU profile, `default`, runs one experiment at a time, and uses no GPU.
    PRAXIST_MAX_PARALLEL_RUNS_PER_PEER stands for --max-per-peer where that is not given.

    A default profile that can never run on this host is refused: no experiment would ever start.
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
        max_per_peer=max_per_peer,
        results=results_command,
        allow_unsatisfiable=allow_unsatisfiable,
        accept_lost_records=accept_lost_records,
    )
    if detach:
        _say_ready(start_detached(lambda announce: serve_run(request, announce)), settings)
        return 0
    stopped = serve_run(request, lambda facts: _say_ready(facts, settings))
    if settings.is_json:
        return 0
    if stopped:
        talk("stopped  the run's experiments were ended; `praxist-zmq up` opens it again")
    else:
        talk("down  experiments that still run go on; `praxist-zmq up` adopts them")
    return 0
