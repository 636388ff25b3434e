"""`launch`: submit, say the verdict within a second, wait, exit with the job's own code."""

from __future__ import annotations

from typing import Any

import click

from .duration import DURATION
from .launching import Launching, WaitOptions
from .legacy_options import LegacyOptions, legacy_options
from .settings import global_options
from .submission import AfterDashes, SubmissionOptions, submission_options


@click.command("launch", cls=AfterDashes)
@submission_options
@click.option(
    "--admission-timeout",
    "--wait-timeout",
    "admission_timeout",
    type=DURATION,
    metavar="DUR",
    help="Withdraw the job if it has not started by then (exit 75).",
)
@click.option(
    "--max-wait", type=DURATION, metavar="DUR", help="Stop waiting then; the job lives (exit 124)."
)
@click.option("--follow", is_flag=True, help="Copy the job's log to stdout as it grows.")
@legacy_options
@global_options(
    told={"timeout": "Longest wait for one answer of the scheduler [10s]; the job's: --max-wait."}
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    admission_timeout: float | None,
    max_wait: float | None,
    follow: bool,
    config: str | None,
    allow_duplicate: bool,
    max_active: int | None,
    poll: float,
    **typed: Any,
) -> int:
    """Submit an experiment, wait for it, exit with its code.

    Ctrl-C or a killed tool call detaches; the job goes on.

    Called from inside a running attempt of the run, it runs the command as a plain child there.

    \b
    praxist-zmq launch --peer p1 --tag mixup/seed0 -- python train.py --seed 0
    praxist-zmq launch --peer p1 --tag mixup/seed0 --max-wait 9m -- python train.py
    """
    waiting = WaitOptions(admission_timeout, max_wait, follow)
    legacy = LegacyOptions(config, allow_duplicate, max_active, poll)
    return Launching(ctx, SubmissionOptions(**typed), waiting, legacy).run()
