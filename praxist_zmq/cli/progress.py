"""`progress`: an experiment tells how far it has come.

Never fails an experiment because the scheduler is away: experiments outlive it, and a status 75
that leaked out of a script would have the attempt tried again.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict

import click

from ..errors import ERRORS, PraxistError
from ..units.telling import ProgressTold, tell_progress
from ..units.unit import UnitsError
from . import output
from .documents import head
from .settings import Settings, global_options, settings_of
from .words import progress_text, safe

_STEPS = re.compile(r"([0-9]{1,15})/([0-9]{1,15})")


@click.command("progress")
@click.argument("steps", metavar="DONE/TOTAL")
@click.argument("text", default="", metavar="[TEXT]")
@global_options(told={"timeout": "Longest time to wait for the scheduler [1s]."})
@click.pass_context
def command(ctx: click.Context, steps: str, text: str) -> int:
    """Tell, inside a job, that DONE of TOTAL steps are done; `show` and `queue` show it.

    It never goes back: a smaller DONE than one told before is passed over. TEXT is one line of at
    most 1 KiB. Ends with 0 also while the scheduler is away, so that it never fails an experiment.

    \b
    praxist-zmq progress 3/6 "fold 3 done"
    """
    settings = settings_of(ctx)
    match = _STEPS.fullmatch(steps)
    if match is None:
        raise PraxistError("usage", f"{steps[:40]!r} is not DONE/TOTAL, such as 3/6")
    environ = dict(os.environ)
    if settings.run_dir is not None:
        environ["PRAXIST_RUN_DIR"] = settings.run_dir
    timeout_s = 1.0 if settings.timeout is None else settings.timeout
    try:
        done, total = (int(number) for number in match.groups())
        told = tell_progress(done, total, text, environ=environ, timeout_s=timeout_s)
    except UnitsError as error:
        raise PraxistError("usage", str(error)) from None
    if told.reception == "outside":
        raise PraxistError(
            "usage",
            "progress is told from inside a job: PRAXIST_EXPERIMENT_ATTEMPT_ID is absent",
            ["the scheduler sets it for what `launch` and `submit` run"],
        )
    if told.reception == "refused":
        row = ERRORS.get(str(told.code), ERRORS["protocol_mismatch"])
        if not row.retryable:
            raise PraxistError(row.code, told.detail)
    _tell(settings, told)
    return 0


def _tell(settings: Settings, told: ProgressTold) -> None:
    if settings.is_json:
        output.document({**head("progress"), **asdict(told)})
    elif told.reception in ("unreachable", "refused"):
        output.talk(f"not told: {safe(told.detail)}")
    elif told.reception == "passed_over" and told.shown:
        output.talk(f"passed over: {safe(progress_text(told.shown))} was told before")
