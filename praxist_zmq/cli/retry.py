"""`retry`: try a job that ended badly again, under its stored tag, profile and class."""

from __future__ import annotations

import os

import click

from ..client.submission import wire_command, wire_environment, wire_text
from ..errors import PraxistError
from . import output
from .connect import ask_job, connect
from .documents import submission_document
from .retrying import advise_repeat, last_attempt, split_attempt
from .settings import global_options, settings_of
from .submission import OptionallyAfterDashes, words_after_dashes
from .verdict import exit_of, submitted_lines
from .waiting import now_s


@click.command("retry", cls=OptionallyAfterDashes)
@click.argument("job", metavar="JOB")
@click.option(
    "--peer",
    envvar="PRAXIST_PEER_ID",
    metavar="P",
    help="Must own the job; else PRAXIST_PEER_ID, else its owner.",
)
@click.option("--cwd", metavar="DIR", help="Another working directory [the stored one].")
@global_options()
@click.pass_context
def command(ctx: click.Context, job: str, peer: str | None, cwd: str | None) -> int:
    """Try a job that ended badly again. Without `-- CMD...` the stored command runs.

    It follows the last attempt. An attempt as JOB (j-12.1) names the one to follow: then it is
    followed once, however often this is sent.

    \b
    praxist-zmq retry j-12
    praxist-zmq retry tag:mixup/seed0 -- python train.py --fixed
    """
    settings = settings_of(ctx)
    job, attempt = split_attempt(job)
    words = words_after_dashes(ctx)
    request = {
        "kind": "retry_job",
        "job": job,
        "retry_of": attempt,
        "peer": peer or None,
        "command": wire_command(map(os.fsencode, words)) if words else None,
        "cwd": wire_text(os.fsencode(os.path.abspath(cwd)), "cwd") if cwd else None,
        "environment": wire_environment(None),
    }
    settings.about = job
    with connect(settings) as client:
        request["retry_of"] = attempt or last_attempt(client, job, settings.timeout_s)
        try:
            answer = ask_job(client, request, job, settings.timeout_s)
        except PraxistError as error:
            raise advise_repeat(error, request) from None
    view = answer["job"]
    exit_code = exit_of(view)[0] if view["state"] == "drained_unknown" else 0
    if settings.is_json:
        output.document(
            submission_document(
                "submit",
                verdict=answer["verdict"],
                job=view,
                tag=view["tag"],
                answer=answer,
                retryable=False,
                exit_code=exit_code,
                exit_source="scheduler",
                error=None,
            )
        )
        return exit_code
    output.talk(*submitted_lines(answer, now_s(), waits=False))
    if settings.format == "name":
        output.answer(str(view["job"]))
    return exit_code
