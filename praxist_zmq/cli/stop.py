"""`stop`: fence the run, reject the queue, end every experiment, end the scheduler.

Works with or without a live scheduler. Without `--yes` nothing is sent but a dry run. Reports what
was left and why, and exits 1 if anything of a run may still do something.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from threading import Thread

import click

from ..errors import PraxistError
from ..host.default_scope import host_scope
from ..host.paths import HostPaths, RunPaths, canonical
from ..protocol.envelope import Json
from . import output
from .duration import DURATION_OR_ZERO
from .run_selection import find_run, live_runs
from .settings import Settings, global_options, settings_of
from .stop_report import document_of, document_of_all, tell
from .stopping import RunStop, StoppingRun
from .words import count, safe


@click.command("stop")
@click.option(
    "--grace",
    type=DURATION_OR_ZERO,
    default=5.0,
    metavar="DUR",
    help="Between TERM and KILL [5s].",
)
@click.option("--all", "every", is_flag=True, help="Every run of this host scope.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@click.option("--yes", is_flag=True, help="Yes, end all experiments of this run.")
@global_options()
@click.pass_context
def command(ctx: click.Context, grace: float, every: bool, dry_run: bool, yes: bool) -> int:
    """End the run with all its experiments.

    \b
    praxist-zmq stop --dry-run
    praxist-zmq stop --yes --grace 30s
    praxist-zmq stop --all --yes

    A run is fenced first: its file ORCHESTRATOR_SHUTDOWN, or its scheduler's word that admission is
    closed. Without either it is left untouched. Exit status 1: something is left.
    """
    if grace > 3600:
        raise click.UsageError("--grace: at most 1h", ctx)
    if not yes and not dry_run:
        what = "every run of this host scope" if every else "the run"
        raise click.UsageError(
            f"this ends every experiment of {what}: say --yes, or --dry-run", ctx
        )
    settings = settings_of(ctx)
    if every and settings.run_dir is not None:
        raise click.UsageError("--all and --run-dir contradict each other", ctx)
    if every:
        return _stop_all(settings, grace, dry_run)
    run = RunPaths.of(find_run(settings.run_dir))
    stopping = StoppingRun(run, settings, grace)
    told = stopping.look() if dry_run else stopping.run()
    if settings.is_json:
        output.document(document_of(told))
    elif not settings.quiet:
        tell(told)
    return told.exit_code


def _stop_all(settings: Settings, grace_s: float, dry_run: bool) -> int:
    """All runs are fenced before the first is ended, and then end side by side: none starts
    anything in the place that another has left. One that cannot be stopped keeps no other from it.
    """
    chosen = _all_runs(settings)
    ours = [StoppingRun(run, settings, grace_s) for run, strange in chosen if strange is None]
    if not dry_run:
        for stopping in ours:
            with suppress(PraxistError):  # told when it is to be ended
                stopping.fence()
    threads = [Thread(target=_stop_one, args=(one, dry_run), daemon=True) for one in ours]
    for thread in threads:
        thread.start()
    ending = zip(ours, threads, strict=True)
    stopped: list[RunStop] = []
    for run, strange in chosen:
        if strange is None:
            stopping, thread = next(ending)
            thread.join()
            told = stopping.told
        else:
            told = RunStop(run.run_id, str(run.run_dir), dry_run, failure=strange)
        stopped.append(told)
        if not settings.is_json and not settings.quiet:
            output.answer(f"run      {safe(told.run_id)}  {safe(told.run_dir)}")
            tell(told)
    failed = any(told.failure for told in stopped)
    exit_code = 1 if failed or any(told.exit_code for told in stopped) else 0
    if settings.is_json:
        output.document(document_of_all(stopped, exit_code))
    elif not settings.quiet:
        done = sum(told.exit_code == 0 and not told.failure for told in stopped)
        words = "could be stopped" if dry_run else "stopped"
        output.answer(f"all      {done} of {count(len(stopped), 'run')} {words}")
    return exit_code


def _known_to_host(settings: Settings) -> list[Json]:
    """Runs that are served or hold something, as `protocol.claims.RunRow` has them."""
    host = HostPaths(host_scope())
    if host.registry_socket.exists():
        from .host import view_host

        try:
            view = view_host(settings)
            return [*view["runs"], *view.get("down", ())]
        except PraxistError as error:
            output.talk(f"warning  the claim registry does not answer: {error}")
    from ..service.host_ledger import runs_that_hold

    try:
        return [run.model_dump() for run in runs_that_hold(host)]
    except PraxistError as error:
        output.talk(f"warning  the claim registry's ledger cannot be read: {error}")
        return []


def _stop_one(stopping: StoppingRun, dry_run: bool) -> None:
    try:
        stopping.look() if dry_run else stopping.run()
    except PraxistError as error:
        stopping.told.dry_run = dry_run
        stopping.told.failure = str(error)
    except BaseException as fault:  # nobody above this thread would hear of it
        stopping.told.failure = f"a fault of ours: {fault!r}"
        raise


def _all_runs(settings: Settings) -> list[tuple[RunPaths, str | None]]:
    """The runs of this host scope, each with the reason why it is not ours to stop, or None.

    As the registry sees them, or its ledger while none answers: those that are served, and those
    that ended with `down` or were killed while their experiments go on. Also those whose `run.json`
    names a scheduler that lives.
    """
    found: dict[Path, str | None] = {}
    for told in _known_to_host(settings):
        strange = None
        if told["uid"] not in (None, os.getuid()):
            strange = f"it belongs to user {told['user']}"
        place = canonical(told["run_dir"]) if told["run_dir"] else Path(told["run_id"])
        found[place] = strange
    for directory in live_runs(host_scope()):
        found.setdefault(canonical(directory), None)
    return [(RunPaths(place), strange) for place, strange in sorted(found.items())]
