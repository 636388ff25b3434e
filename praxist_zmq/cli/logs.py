"""`logs`: a job's log on stdout, its path on stderr; from the disk when nothing serves the run."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..errors import PraxistError
from ..host.paths import RunPaths
from ..protocol.envelope import Json
from . import output
from .advice import newest_log
from .connect import Caller, ask_job, connect
from .documents import head
from .log_tail import (
    TAIL_BYTES_MAX,
    LogFollower,
    Sink,
    copy_rest,
    read_last_lines,
    stdout_sink,
)
from .run_selection import find_run
from .settings import Settings, global_options, settings_of
from .small_file import open_foreign
from .verdict import exit_of, is_terminal_state
from .waiting import changes
from .words import PROGRAM, safe

LINES = 40
AWAY = frozenset({"no_scheduler", "scheduler_restarting", "no_answer"})


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
    help="Last N lines, at most 1 MiB; of a line painted over, as it was last.",
)
@click.option("--full", is_flag=True, help="All of it; in a pipe byte for byte.")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="That attempt [the latest].")
@global_options(told={"json": "One JSON document: the path and the lines, at most 1 MiB of them."})
@click.pass_context
def command(
    ctx: click.Context, job: str, follow: bool, lines: int, full: bool, attempt: int | None
) -> int:
    """Print a job's log: as it is in a pipe, control characters escaped on a terminal.

    When no scheduler answers, a job named by its number (j-12) is read from the disk.

    \b
    praxist-zmq logs j-12 -n 100
    praxist-zmq logs -f last
    """
    settings = settings_of(ctx)
    if follow and settings.is_json:
        raise click.UsageError("-f and --json both want stdout", ctx)
    settings.about = job
    wanted = None if full else lines
    try:
        with connect(settings) as client:
            request = {"kind": "show_job", "job": job}
            view: Json = ask_job(client, request, job, settings.timeout_s)["job"]
            if follow and attempt is None:
                view = _wait_for_log(client, view)
            path = log_path(view, attempt, settings)
            source = open_log(path, view)
            if not follow:
                return _print(settings, view["job"], path, source, wanted)
            sink = stdout_sink()
            _begin(settings, path, source, wanted, sink)
            return _follow(client, view, path, source, sink)
    except PraxistError as error:
        if error.code not in AWAY or follow:
            raise
        found = newest_log(RunPaths.of(find_run(settings.run_dir)), job, attempt)
        if found is None:
            raise
        output.talk(f"note  {error.row.title}: this is what is on disk")
        return _print(settings, job, found, _opened(found, []), wanted)


def _print(settings: Settings, job: str, path: Path, source: int, lines: int | None) -> int:
    """Print a log, or its last lines, as it is now."""
    try:
        if settings.is_json:
            text, cut_off = _last_text(source, lines)
            facts = {"job": job, "log_path": str(path), "text": text, "truncated": cut_off}
            output.document({**head("logs"), **facts})
            return 0
        sink = stdout_sink()
        _begin(settings, path, source, lines, sink)
        copy_rest(source, sink)
    finally:
        os.close(source)
    return 0


def _begin(settings: Settings, path: Path, source: int, lines: int | None, sink: Sink) -> None:
    """The log's name and its last lines; after that the descriptor is where the rest begins."""
    if not settings.quiet:
        output.talk(f"log   {safe(path)}")
    if lines is None:
        return
    content, cut_off = read_last_lines(source, lines)
    if cut_off:
        output.talk(
            f"note  only the last {len(content):,} bytes of these lines are shown; all of them: "
            f"--full, or the file {safe(path)}"
        )
    sink.write(content)


def _last_text(source: int, lines: int | None) -> tuple[str, bool]:
    """The last lines as text, no more than `TAIL_BYTES_MAX` of them; whether that cut any off."""
    if lines is not None:
        content, cut_off = read_last_lines(source, lines)
    else:
        at = max(0, os.fstat(source).st_size - TAIL_BYTES_MAX)
        content, cut_off = os.pread(source, TAIL_BYTES_MAX, at), at > 0
    return content.decode("utf-8", "backslashreplace"), cut_off


def log_path(view: Json, attempt: int | None, settings: Settings) -> Path:
    """The file of an attempt's log. Raises `unknown_job` when there is none yet."""
    latest = view.get("log_path")
    if attempt is None:
        if latest is None:
            yet = "it never ran" if is_terminal_state(view) else "its log begins when it starts"
            raise PraxistError(
                "unknown_job",
                f"no log of {view['job']}: it is {view['state']}, {yet}",
                [f"{PROGRAM} explain {view['job']}"],
            )
        return Path(latest)
    wanted = f"{view['job']}.{attempt}"
    if latest is not None and view.get("attempt"):
        return Path(latest).with_name(f"{wanted}.log")
    return RunPaths.of(find_run(settings.run_dir)).attempt_log(wanted)


def open_log(path: Path, view: Json) -> int:
    """A descriptor of the log. Raises `path_unusable` or `unsafe_path`."""
    return _opened(path, [f"{view['job']} is {view['state']}; attempts so far: {view['attempts']}"])


def _opened(path: Path, help: list[str]) -> int:
    try:
        return open_foreign(path)
    except OSError as error:
        raise PraxistError("path_unusable", f"log {path}: {error.strerror}", help) from error


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


def _follow(client: Caller, view: Json, path: Path, source: int, sink: Sink) -> int:
    follower = LogFollower(path, source, sink)
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
