"""`down`: end the scheduler of a run; its experiments go on and the next `up` adopts them.

Signals nobody but the process that is proved to hold the run's owner lock, through a pidfd.
"""

from __future__ import annotations

import os

import click

from ..errors import PraxistError
from ..host.clock import SystemClock
from ..host.paths import RunPaths
from ..host.spawn import ask_to_end_by, wait_ended
from ..service.owner import find_owner
from .connect import Caller, ask, connect
from .duration import DURATION
from .output import answer, document
from .run_selection import find_run
from .settings import Settings, global_options, settings_of
from .words import count, safe

END_BOUND_S = 60.0
"""The supervisor gives each of its four processes 10 s before it kills them."""
ASK_BOUND_S = 3.0
WATCH_S = 60.0
LISTED_MAX = 20


class _Patience:
    """What is left of `--timeout`."""

    def __init__(self, seconds: float | None) -> None:
        self._clock = SystemClock()
        self._ends_ms = None if seconds is None else self._clock.mono_ms() + int(seconds * 1000)

    def left_s(self, most: float) -> float:
        """Seconds left, at most `most`; 0 when none are."""
        if self._ends_ms is None:
            return most
        return min(most, max(self._ends_ms - self._clock.mono_ms(), 0) / 1000)


def _running(client: Caller, timeout_s: float) -> list[str]:
    request = {"kind": "list_jobs", "states": ["running"], "limit": 1000}
    return [str(job["job"]) for job in ask(client, request, timeout_s)["jobs"]]


def _still_running(settings: Settings) -> list[str] | None:
    """The jobs that go on, by name; None when the broker does not answer."""
    try:
        with connect(settings) as client:
            return _running(client, ASK_BOUND_S)
    except PraxistError:
        return None


def _drain(settings: Settings, patience: _Patience) -> None:
    """Hold admission, then wait until no job runs. Raises `wait_timeout`."""
    with connect(settings) as client:
        ask(client, {"kind": "hold_admission"}, settings.timeout_s)
        while jobs := _running(client, settings.timeout_s):
            left = patience.left_s(WATCH_S)
            if left <= 0:
                ask(client, {"kind": "hold_admission", "held": False}, settings.timeout_s)
                raise PraxistError(
                    "wait_timeout",
                    f"{count(len(jobs), 'experiment')} still running; "
                    "the scheduler goes on and admits again",
                    ["run `down --drain` again, or `down` without waiting for them"],
                )
            watched = {"kind": "watch_job", "job": jobs[0], "until": "terminal"}
            try:
                ask(client, watched, left)
            except PraxistError as error:
                if error.code not in ("no_answer", "wait_timeout"):
                    raise


@click.command("down")
@click.option("--drain", is_flag=True, help="First wait until no experiment runs.")
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DUR",
    help="Give up then, and leave the scheduler up (exit 124).",
)
@global_options(without=("timeout",))
@click.pass_context
def command(ctx: click.Context, drain: bool, timeout: float | None) -> int:
    """End the scheduler's processes; experiments go on.

    \b
    praxist-zmq down
    praxist-zmq down --drain --timeout 1h
    """
    settings = settings_of(ctx)
    run = RunPaths.of(find_run(settings.run_dir))
    patience = _Patience(timeout)
    owner = find_owner(run)
    if owner is None:
        _tell(run, settings, was_running=False, jobs=[])
        return 0
    try:
        if owner.is_stop:
            detail = f"process {owner.identity.pid} is a `stop` that ends {run.run_dir}"
            raise PraxistError("already_running", detail, ["it leaves no scheduler of the run"])
        if drain:
            _drain(settings, patience)
        jobs = _still_running(settings)
        ask_to_end_by(owner.pidfd)
        if not wait_ended(owner.pidfd, patience.left_s(END_BOUND_S)):
            raise PraxistError(
                "wait_timeout",
                f"the supervisor, process {owner.identity.pid}, was told to end and has not yet",
                ["`praxist-zmq status` says when it is down"],
            )
    finally:
        os.close(owner.pidfd)
    _tell(run, settings, was_running=True, jobs=jobs)
    return 0


def _tell(run: RunPaths, settings: Settings, was_running: bool, jobs: list[str] | None) -> None:
    if settings.is_json:
        document(
            {
                "format_version": "1.0",
                "kind": "down",
                "run_id": run.run_id,
                "run_dir": str(run.run_dir),
                "was_running": was_running,
                "running_jobs": jobs,
            }
        )
        return
    name = safe(run.run_id)
    if not was_running:
        answer(f"down {name}  nothing was running")
    elif jobs is None:
        answer(f"down {name}  the broker did not answer; experiments that run go on")
    elif not jobs:
        answer(f"down {name}  no experiment runs")
    else:
        more = f" and {len(jobs) - LISTED_MAX} more" if len(jobs) > LISTED_MAX else ""
        shown = " ".join(safe(job) for job in jobs[:LISTED_MAX])
        noun = count(len(jobs), "experiment goes", "experiments go")
        answer(f"down {name}  {noun} on: {shown}{more}")
