"""`logs`: a job's log, byte for byte, on stdout; its path on stderr."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..errors import PraxistError
from ..host.paths import RunPaths
from . import output
from .connect import Caller, ask, connect
from .documents import head
from .log_tail import LogFollower, copy_rest, seek_last_lines
from .run_selection import find_run
from .settings import Settings, global_options, settings_of
from .small_file import open_regular
from .verdict import Json, exit_of, is_terminal_state
from .waiting import changes
from .words import safe

LINES = 40


@click.command("logs")
@click.argument("job", metavar="JOB")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends; exit with its code.")
@click.option(
    "-n",
    "--tail",
    "lines",
    type=click.IntRange(0, 1_000_000),
    default=LINES,
    show_default=True,
    metavar="N",
    help="Last N lines.",
)
@click.option("--full", is_flag=True, help="All of it.")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="That attempt [the latest].")
@global_options()
@click.pass_context
def command(
    ctx: click.Context, job: str, follow: bool, lines: int, full: bool, attempt: int | None
) -> int:
    """Print a job's log.

    \b
    praxist-zmq logs j-12 -n 100
    praxist-zmq logs -f last
    """
    settings = settings_of(ctx)
    if follow and settings.is_json:
        raise click.UsageError("-f and --json both want stdout", ctx)
    with connect(settings) as client:
        view: Json = ask(client, {"kind": "show_job", "job": job}, settings.timeout_s)["job"]
        if follow and attempt is None:
            view = _wait_for_log(client, view)
        path = log_path(view, attempt, settings)
        if settings.is_json:
            output.document({**head("logs"), "job": view["job"], "log_path": str(path)})
            return 0
        if not settings.quiet:
            output.talk(f"log   {safe(path)}")
        source = open_log(path, view)
        if not full:
            seek_last_lines(source, lines)
        if not follow:
            copy_rest(source)
            os.close(source)
            return 0
        return _follow(client, view, path, source)


def log_path(view: Json, attempt: int | None, settings: Settings) -> Path:
    """The file of an attempt's log. Raises `unknown_job` when there is none yet."""
    latest = view.get("log_path")
    if attempt is None:
        if latest is None:
            raise PraxistError("unknown_job", f"{view['job']} is {view['state']}: no log yet")
        return Path(latest)
    wanted = f"{view['job']}.{attempt}"
    if latest is not None and view.get("attempt"):
        return Path(latest).with_name(f"{wanted}.log")
    return RunPaths.of(find_run(settings.run_dir)).attempt_log(wanted)


def open_log(path: Path, view: Json) -> int:
    """A descriptor of the log. Raises `path_unusable` or `unsafe_path`."""
    try:
        return open_regular(path)
    except OSError as error:
        raise PraxistError(
            "path_unusable",
            f"log {path}: {error.strerror}",
            [f"{view['job']} is {view['state']}; attempts so far: {view['attempts']}"],
        ) from error


def _wait_for_log(client: Caller, view: Json) -> Json:
    """Follow a queued job: its log begins with its first attempt."""
    if view.get("log_path") or is_terminal_state(view):
        return view
    output.talk(f"{view['job']} is {view['state']}; its log begins when it starts")
    for changed in changes(client, view, None):
        view = changed
        if view.get("log_path") and view.get("started_at"):
            break
    return view


def _follow(client: Caller, view: Json, path: Path, source: int) -> int:
    follower = LogFollower(path, source)
    try:
        for changed in changes(client, view, None):
            view = changed
            if view.get("log_path") and Path(view["log_path"]) != path:
                follower.finish()
                path = Path(view["log_path"])
                output.talk(f"log   {safe(path)}")
                follower = LogFollower(path)
    except KeyboardInterrupt:
        raise PraxistError("interrupted", f"{view['job']} goes on") from None
    finally:
        follower.finish()
    if follower.broken is not None and not isinstance(follower.broken, BrokenPipeError):
        raise PraxistError("path_unusable", f"log {path}: {follower.broken.strerror}")
    return exit_of(view)[0]
