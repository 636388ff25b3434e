"""`stop`: fence the run, reject the queue, end every experiment, end the scheduler.

Without `--yes` nothing is sent but a dry run. Reports what was left, and exits 1 if any was.
"""

from __future__ import annotations

import os

import click

from ..host.paths import RunPaths
from ..host.spawn import wait_ended
from ..protocol.envelope import Json
from ..service.owner import Owner, find_owner
from . import output
from .connect import Caller, ask, connect
from .documents import head
from .duration import DURATION_OR_ZERO
from .run_selection import find_run
from .settings import Settings, global_options, settings_of
from .waiting import mono_s
from .words import count, cut, safe, span

AFTER_GRACE_S = 30.0
NAMES_SHOWN = 20


@click.command("stop")
@click.option(
    "--grace",
    type=DURATION_OR_ZERO,
    default=5.0,
    metavar="DUR",
    help="Between TERM and KILL [5s].",
)
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@click.option("--yes", is_flag=True, help="Yes, end all experiments of this run.")
@global_options()
@click.pass_context
def command(ctx: click.Context, grace: float, dry_run: bool, yes: bool) -> int:
    """End the run with all its experiments.

    \b
    praxist-zmq stop --dry-run
    praxist-zmq stop --yes --grace 30s
    """
    if grace > 3600:
        raise click.UsageError("--grace: at most 1h", ctx)
    if not yes and not dry_run:
        raise click.UsageError(
            "this ends every experiment of the run: say --yes, or --dry-run", ctx
        )
    settings = settings_of(ctx)
    owner = None if dry_run else find_owner(RunPaths.of(find_run(settings.run_dir)))
    began_s = mono_s()
    try:
        with connect(settings) as client:
            request = {"kind": "stop_run", "grace_seconds": grace, "dry_run": dry_run}
            reply = ask(client, request, settings.timeout_s)
            _tell(settings, reply)
            left = [] if owner is None else _wait(settings, client, owner, grace)
    finally:
        if owner is not None:
            os.close(owner.pidfd)
    return _end(settings, reply, left, mono_s() - began_s)


def _wait(settings: Settings, client: Caller, owner: Owner, grace_s: float) -> list[str]:
    """Wait for the scheduler's end, which follows the last experiment's; what is left by then."""
    if wait_ended(owner.pidfd, grace_s + AFTER_GRACE_S):
        return []
    request = {"kind": "list_jobs", "states": ["running"], "limit": 1000}
    jobs = ask(client, request, settings.timeout_s)["jobs"]
    return [str(job["job"]) for job in jobs] + [f"scheduler (pid {owner.identity.pid})"]


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return " ".join(safe(cut(name, 40)) for name in names[:NAMES_SHOWN]) + more


def _tell(settings: Settings, reply: Json) -> None:
    if settings.is_json or settings.quiet:
        return
    rejected, ending = reply["rejected"], reply["ending"]
    if reply["dry_run"]:
        output.answer("fence    would be set: nothing new would be accepted or started")
        output.answer(
            f"queue    would reject {count(len(rejected), 'job')}  {_names(rejected)}".rstrip()
        )
        output.answer(f"running  would end {count(len(ending), 'job')}  {_names(ending)}".rstrip())
        return
    output.answer("fence    set: nothing new is accepted or started")
    output.answer(f"queue    {count(len(rejected), 'job')} rejected  {_names(rejected)}".rstrip())
    if ending:
        output.answer(f"running  {count(len(ending), 'job')} told to end  {_names(ending)}")


def _end(settings: Settings, reply: Json, left: list[str], took_s: float) -> int:
    exit_code = 1 if left else 0
    if settings.is_json:
        body = {key: reply[key] for key in ("dry_run", "rejected", "ending")}
        output.document({**head("stop"), **body, "left": left, "exit_code": exit_code})
        return exit_code
    if not reply["dry_run"]:
        ended = len(set(reply["ending"]) - set(left))
        if reply["ending"]:
            output.answer(f"running  {ended} of {len(reply['ending'])} gone")
        if left:
            output.answer(f"left     {_names(left)}: still alive; see `praxist-zmq show JOB`")
        else:
            output.answer(
                f"stopped  nothing of this run is left, the scheduler too, {span(took_s)}"
            )
    return exit_code
