"""`submit`: put an experiment in the queue and return once that is on disk."""

from __future__ import annotations

from typing import Any

import click

from .settings import global_options
from .submission import AfterDashes, SubmissionOptions, submission_options
from .submitting import Submitting


@click.command("submit", cls=AfterDashes)
@submission_options
@global_options()
@click.pass_context
def command(ctx: click.Context, /, **typed: Any) -> int:
    """Submit an experiment and return once it is on disk.

    \b
    praxist-zmq submit --peer p1 --tag mixup/seed0 -- python train.py --seed 0
    praxist-zmq submit --peer p1 --tag mixup/seed0 --dry-run -- python train.py
    """
    return Submitting("submit", ctx, SubmissionOptions(**typed)).run()
