"""`config check`: every mistake of a contract at once, and whether its profiles can run here.

Reads one file, and with `--host` the devices once. Changes nothing.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import click

from ..core.elsewhere import elsewhere_words
from ..host.default_scope import host_scope
from ..host.device_names import held_elsewhere
from ..protocol.reports import HostSampled
from ..service.child_config import SimulatedDevices
from ..service.device_choice import DeviceRequest
from ..service.host_check import ProfileVerdict, judge, read_host
from ..service.policy_file import PolicyCheck, check_file, not_served
from ..service.policy_findings import SECTION, Finding, Place
from . import contract_report as report
from . import output
from .documents import head
from .settings import Settings, global_options, is_terminal, settings_of
from .up import parse_sim
from .words import count, safe

EXIT_INVALID = 78
EXIT_STRICT = 1
PIPE_COLUMNS = 120
FORMS = ("full", "concise", "json", "github")


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--host", is_flag=True, help="Also say whether each profile can ever run here.")
@click.option(
    "--sim",
    callback=parse_sim,
    metavar="gpus=N,memory=GIB",
    help="With --host: simulated devices in the place of this host's.",
)
@click.option("-o", "--output", "form", type=click.Choice(FORMS), help="Form of the findings.")
@click.option("--strict", is_flag=True, help="Exit with 1 when there are warnings.")
@global_options(without=("output",))
@click.pass_context
def check_command(
    ctx: click.Context,
    file: Path,
    host: bool,
    sim: DeviceRequest,
    form: str | None,
    strict: bool,
) -> int:
    """Check a contract: every mistake with its line.

    Exit status 0 when it is valid, 78 when it is not, 1 for warnings under --strict.

    \b
    praxist-zmq config check task.yaml
    praxist-zmq config check task.yaml --host
    praxist-zmq config check task.yaml --host --sim gpus=4,memory=80
    praxist-zmq config check task.yaml -o github --strict
    """
    settings = settings_of(ctx)
    if sim is not None and not host:
        raise click.UsageError("--sim says which devices --host looks at; add --host", ctx)
    form = form or ("json" if settings.is_json else "full")
    check = check_file(file)
    if check.policy is not None and check.policy.mode != "central":
        check = _with(check, warnings=[not_served(check)])
    sample, verdicts, elsewhere = None, [], []
    if host and check.policy is not None:
        sample = read_host(sim if isinstance(sim, SimulatedDevices) else None)
        verdicts = judge(check.policy.profiles, sample)
        elsewhere = _elsewhere(sample)
        check = _judged(check, verdicts, sample)
    _print(settings, form, str(file), check, sample, verdicts, elsewhere)
    if check.errors:
        return EXIT_INVALID
    return EXIT_STRICT if strict and check.warnings else 0


def _with(
    check: PolicyCheck, errors: list[Finding] | None = None, warnings: list[Finding] | None = None
) -> PolicyCheck:
    """The check with more findings, in the order of the text."""
    return dataclasses.replace(
        check,
        errors=sorted([*check.errors, *(errors or [])], key=Finding.order),
        warnings=sorted([*check.warnings, *(warnings or [])], key=Finding.order),
    )


def _judged(check: PolicyCheck, verdicts: list[ProfileVerdict], sample: HostSampled) -> PolicyCheck:
    """The check with what the host says of each profile."""
    assert check.policy is not None
    where = "simulated host" if sample.simulated else "host"
    errors, warnings = [], []
    for verdict in verdicts:
        key = f"profiles.{verdict.profile}"
        place = check.places.get(key, Place())
        full_key = ".".join((*SECTION, key))
        if verdict.can_run is None:
            message = f"not known whether it can run on this {where}: {verdict.reason}"
            warnings.append(Finding("PZ132", place, full_key, message))
        elif not verdict.can_run and verdict.profile == check.policy.default_profile:
            message = f"the default profile can never run on this {where}: {verdict.reason}"
            errors.append(Finding("PZ130", place, full_key, message))
        elif not verdict.can_run:
            message = f"can never run on this {where}: {verdict.reason}"
            warnings.append(Finding("PZ131", place, full_key, message))
    return _with(check, errors, warnings)


def _print(
    settings: Settings,
    form: str,
    name: str,
    check: PolicyCheck,
    sample: HostSampled | None,
    verdicts: list[ProfileVerdict],
    elsewhere: list[str],
) -> None:
    found = report.told(check)
    if form == "json":
        output.document(_document(name, check, sample, verdicts, elsewhere))
    elif form == "github":
        output.answer(*report.github(name, found))
    elif form == "concise":
        output.answer(*report.concise(name, found))
    else:
        columns = output.terminal_columns() if is_terminal(sys.stdout) else PIPE_COLUMNS
        output.answer(*report.full(name, check, found, columns, settings))
        if sample is not None and not settings.quiet:
            output.page(settings, [*_host_lines(sample, verdicts, elsewhere), ""])
        if found or not settings.quiet:
            output.page(settings, [report.summary(name, check)])


def _elsewhere(sample: HostSampled) -> list[str]:
    """The devices of the sample that other host scopes than ours hold now, in words."""
    held = {other.uuid: other for other in held_elsewhere(host_scope())}
    return [
        f"GPU {device.index} is {elsewhere_words(held[device.uuid])}"
        for device in sample.devices
        if device.uuid in held
    ]


def _host_lines(
    sample: HostSampled, verdicts: list[ProfileVerdict], elsewhere: list[str]
) -> list[str]:
    """The devices, one line for each that is another scope's now, and one line a profile."""
    mark = "SIMULATED " if sample.simulated else ""
    lines = [f"host  {count(len(sample.devices), f'{mark}GPU')}"]
    if sample.probe_state != "available":
        lines[0] += f"; {sample.probe_state}: {safe(sample.probe_reason or 'no reason given')}"
    lines += [f"  {safe(words)}" for words in elsewhere]
    width = max(len(safe(verdict.profile)) for verdict in verdicts)
    words = {True: "can run", False: "can never run", None: "not known"}
    for verdict in verdicts:
        reason = f": {safe(verdict.reason)}" if verdict.reason else ""
        lines.append(f"  {safe(verdict.profile):<{width}}  {words[verdict.can_run]}{reason}")
    return lines


def _document(
    name: str,
    check: PolicyCheck,
    sample: HostSampled | None,
    verdicts: list[ProfileVerdict],
    elsewhere: list[str],
) -> dict[str, object]:
    host: dict[str, object] | None = None
    if sample is not None:
        host = {
            "devices": len(sample.devices),
            "simulated": sample.simulated,
            "state": sample.probe_state,
            "reason": sample.probe_reason,
            "held_elsewhere": elsewhere,
            "profiles": [dataclasses.asdict(verdict) for verdict in verdicts],
        }
    return {
        **head("config_check"),
        "file": name,
        "valid": not check.errors,
        "errors": len(check.errors),
        "warnings": len(check.warnings),
        "findings": report.documents(report.told(check)),
        "host": host,
    }
