"""`praxist-zmq ledger`: look at a ledger, tell a job's story, save what is good into a copy.

Works on files alone, with or without a scheduler, and never changes a ledger. Values of
environment variables are never printed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import BaseModel

from ..errors import ERRORS, PraxistError
from ..host.paths import RunPaths
from ..ledger import segment, verify
from ..protocol import codec, text
from ..protocol.events import JobQueued, MixedText
from ..protocol.ids import job_of
from ..service.ledger_history import history_faults, lacking_attempts
from .output import answer
from .words import count, local_time, safe

NAMED_MAX = 20
"""Attempts that a repair names."""
F = TypeVar("F", bound=Callable[..., Any])
_QUIET = frozenset({"kind", "at_ms", "job", "job_id", "identity", "environment_id"})
_QUIET_DIGESTS = frozenset({"request_digest", "request_index"})
_LAST_MS = 253_402_200_000_000  # a day before the year 10000, which no time zone prints
_OUTCOME_CODES = {
    "damaged": "ledger_damaged",
    "newer": "ledger_newer",
    "unreadable": "path_unusable",
}


def _options(function: F) -> F:
    function = click.option("--json", "as_json", is_flag=True, help="One JSON document.")(function)
    return click.option(
        "--run-dir", type=click.Path(path_type=Path), help="The run whose ledger it is."
    )(function)


def _inherited(context: click.Context, name: str, own: Any) -> Any:
    """An option given here, or before any verb further left."""
    at: click.Context | None = context
    while not own and at is not None:
        own = at.params.get(name)
        at = at.parent
    return own


def _directory(context: click.Context, run_dir: Path | None, named: Path | None = None) -> Path:
    """The ledger directory that is meant: named itself, or that of a run."""
    place = named or _inherited(context, "run_dir", run_dir) or os.environ.get("PRAXIST_RUN_DIR")
    if place is None:
        raise PraxistError("no_run", "no run was named")
    run = RunPaths.of(place)
    if not run.ledger.is_dir() and run.run_dir.is_dir():
        return run.run_dir
    return run.ledger


@click.group("ledger")
@_options
def command(run_dir: Path | None, as_json: bool) -> None:
    """Look at a ledger offline. Never changes it."""


@command.command("verify")
@click.argument("place", metavar="[DIR|RUN]", required=False, type=click.Path(path_type=Path))
@_options
@click.pass_context
def verify_command(
    context: click.Context, place: Path | None, run_dir: Path | None, as_json: bool
) -> None:
    """Read every record and say what a start would say; exit 74 on damage.

    What the records tell is judged too: a broken promise is listed, and is exit 70.
    """
    directory = _directory(context, run_dir, place)
    report = verify.verify(directory)
    damaged = report.outcome in _OUTCOME_CODES
    faults = [] if damaged else history_faults(directory)
    if _inherited(context, "as_json", as_json):
        _print_json("ledger_verify", {**_document(report), "history": faults})
    else:
        _print_report(report)
        for fault in faults:
            _tell(f"history: {fault}")
    if damaged:
        context.exit(ERRORS[_OUTCOME_CODES[report.outcome]].exit_code)
    if faults:
        context.exit(ERRORS["internal"].exit_code)


@command.command("repair")
@click.argument("place", metavar="[DIR|RUN]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--copy",
    "target",
    required=True,
    metavar="TARGET",
    type=click.Path(path_type=Path),
    help="A directory to make; the repaired ledger goes there.",
)
@_options
@click.pass_context
def repair_command(
    context: click.Context, place: Path | None, target: Path, run_dir: Path | None, as_json: bool
) -> None:
    """Write all good records up to the first damage into a new directory."""
    directory = _directory(context, run_dir, place)
    report = verify.repair_copy(directory, target)
    # A ledger that is named itself lies in its run, or is a copy that lies anywhere.
    run = RunPaths.of(directory.parent.parent)
    lacking = lacking_attempts(run, target) if run.ledger == directory.resolve() else []
    if _inherited(context, "as_json", as_json):
        _print_json("ledger_repair", {**_document(report), "attempts_lacking": lacking})
        return
    _print_report(report)
    _tell(
        f"{target}: {count(report.written_records, 'record')} written, "
        f"up to {report.written_until}; {count(report.left_out_records, 'later one')} left out"
    )
    if lacking:
        more = f" and {len(lacking) - NAMED_MAX} more" if len(lacking) > NAMED_MAX else ""
        _tell(
            f"on disk, and not in the copy: {', '.join(lacking[:NAMED_MAX])}{more}; a start with "
            "the copy looks what became of each, and runs none of them again by itself"
        )


@command.command("story")
@click.argument("job")
@_options
@click.pass_context
def story_command(context: click.Context, job: str, run_dir: Path | None, as_json: bool) -> None:
    """Print all events of JOB: `j-12`, a prefix of its long id, or `tag:TEXT`."""
    directory = _directory(context, run_dir)
    wanted: set[str] = set()
    told = []
    fault: PraxistError | None = None
    try:
        for sequence, event in _events(directory):
            if isinstance(event, JobQueued) and _is_meant(event, job):
                wanted.add(event.job)
            owner = _job_of(event)
            if owner is not None and (owner in wanted or owner == job):
                told.append((sequence, event))
    except PraxistError as error:
        if not told:
            raise
        fault = error
    if not told:
        raise PraxistError("unknown_job", f"{directory} holds no event of {job!r}")
    if len(wanted) > 1 and not job.startswith("tag:"):
        raise PraxistError("ambiguous_job", f"{job!r} could be {', '.join(sorted(wanted))}")
    if _inherited(context, "as_json", as_json):
        items = [{"sequence": sequence, **_fields(event)} for sequence, event in told]
        _print_json("ledger_story", {"job": job, "events": items})
    else:
        for sequence, event in told:
            _tell(_line(sequence, event))
    if fault is not None:
        raise fault


def _is_meant(event: JobQueued, job: str) -> bool:
    if job.startswith("tag:"):
        return event.tag == job[4:]
    return event.job == job or (len(job) >= 4 and event.job_id.startswith(job))


def _events(directory: Path) -> Iterator[tuple[int, Any]]:
    """Every event that decodes; one that does not must not hide the rest."""
    numbers = segment.numbers(directory) if directory.is_dir() else []
    decode = codec.decode_event
    if numbers:
        with segment.SegmentReader(segment.path_of(directory, numbers[0])) as reader:
            if reader.header.program == "registry":
                decode = codec.decode_claim_event
    for sequence, payload in verify.stories(directory):
        try:
            yield sequence, decode(payload)
        except PraxistError as error:
            click.echo(safe(f"record {sequence} does not decode: {error.detail}"), err=True)


def _job_of(event: Any) -> str | None:
    attempt = getattr(event, "attempt", None)
    job = getattr(event, "job", None)
    return job or (job_of(attempt) if attempt else None)


def _plain(value: Any) -> Any:
    """A value as people read it; a secret is only its variable's name."""
    if isinstance(value, text.RawBytes):
        return text.display(value)
    if isinstance(value, MixedText):
        return "".join(p if isinstance(p, str) else f"${p.variable}" for p in value.parts)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return value


def _fields(event: Any) -> dict[str, Any]:
    hidden = {"variables"}
    return {name: _plain(value) for name, value in event if name not in hidden}


def _line(sequence: int, event: Any) -> str:
    when = local_time(min(event.at_ms, _LAST_MS) / 1000)
    told = [
        f"{name}={json.dumps(value, ensure_ascii=False)}"
        for name, value in _fields(event).items()
        if name not in _QUIET | _QUIET_DIGESTS and value not in (None, "", [])
    ]
    return f"{sequence:>8}  {when}  {event.kind:<22}  {' '.join(told)}".rstrip()


def _document(report: verify.Report) -> dict[str, Any]:
    return {
        "directory": str(report.directory),
        "outcome": report.outcome,
        "detail": report.detail,
        "program": report.program,
        "run_id": report.run_id,
        "segments": [
            {
                "path": str(found.path),
                "outcome": found.outcome,
                "records": found.records,
                "first_sequence": found.first_sequence,
                "last_sequence": found.last_sequence,
                "offset": found.offset,
                "detail": found.detail,
            }
            for found in report.segments
        ],
        "snapshots": [
            {
                "path": str(found.path),
                "sequence": found.sequence,
                "outcome": found.outcome,
                "detail": found.detail,
            }
            for found in report.snapshots
        ],
        "target": str(report.target) if report.target else None,
        "written_records": report.written_records,
        "written_until": report.written_until,
        "left_out_records": report.left_out_records,
    }


def _tell(line: str) -> None:
    """A line of a page: what a ledger holds was chosen by others, and may not steer a terminal."""
    answer(safe(line))


def _print_json(kind: str, fields: dict[str, Any]) -> None:
    answer(json.dumps({"format_version": "1.0", "kind": kind, **fields}))


def _print_report(report: verify.Report) -> None:
    for shot in report.snapshots:
        _tell(f"{shot.path.name}  {shot.outcome}  {shot.detail}".rstrip())
    for found in report.segments:
        span = f"{found.first_sequence}..{found.last_sequence}" if found.records else "-"
        place = f"offset {found.offset}: " if found.offset is not None else ""
        _tell(
            f"{found.path.name}  {found.outcome}  {count(found.records, 'record')} {span}  "
            f"{place}{found.detail}".rstrip()
        )
    whose = f"{report.program} ledger of {report.run_id}" if report.program else "ledger"
    _tell(f"{whose}: {report.outcome}{': ' if report.detail else ''}{report.detail}")
