"""`retry`: try a job that ended badly again, under its stored tag, profile and class."""

from __future__ import annotations

import os

import click

from ..client.submission import wire_command, wire_environment, working_directory
from ..errors import PraxistError
from ..protocol.envelope import Json
from ..protocol.limits import LIST_JOBS_MAX
from . import output
from .connect import Caller, ask, ask_job, connect
from .documents import head, submission_document
from .retrying import LOST, advise_repeat, end_presumed_dead, last_attempt, split_attempt
from .settings import Settings, global_options, settings_of
from .submission import OptionallyAfterDashes, words_after_dashes
from .verdict import exit_of, submitted_lines
from .waiting import now_s
from .words import safe


@click.command("retry", cls=OptionallyAfterDashes)
@click.argument("job", metavar="[JOB]", required=False)
@click.option(
    "--lost",
    is_flag=True,
    help="Also one that ran and whose end is not known (drained_unknown); without JOB all of them.",
)
@click.option(
    "--presume-dead",
    is_flag=True,
    help="Nothing lives of a JOB that ran in another PID namespace: your word is kept on record.",
)
@click.option(
    "--peer",
    envvar="PRAXIST_PEER_ID",
    metavar="P",
    help="Must own the job; else PRAXIST_PEER_ID, else its owner.",
)
@click.option("--cwd", metavar="DIR", help="Another working directory [the stored one].")
@global_options()
@click.pass_context
def command(
    ctx: click.Context,
    job: str | None,
    lost: bool,
    presume_dead: bool,
    peer: str | None,
    cwd: str | None,
) -> int:
    """Try a job that ended badly again. Without `-- CMD...` the stored command runs.

    It follows the last attempt. An attempt as JOB (j-12.1) names the one to follow: then it is
    followed once, however often this is sent.

    \b
    praxist-zmq retry j-12
    praxist-zmq retry tag:mixup/seed0 -- python train.py --fixed
    praxist-zmq retry --lost
    """
    settings = settings_of(ctx)
    words = words_after_dashes(ctx)
    if job is None and (not lost or presume_dead or words):
        raise click.UsageError("name a job; without one, --lost alone means all lost ones", ctx)
    request: Json = {
        "kind": "retry_job",
        "lost": lost,
        "peer": peer or None,
        "command": wire_command(map(os.fsencode, words)) if words else None,
        "cwd": working_directory(os.fsencode(cwd), "--cwd") if cwd else None,
        "environment": wire_environment(None),
    }
    with connect(settings) as client:
        if job is None:
            return _retry_all_lost(client, request, settings)
        if presume_dead:
            end_presumed_dead(client, job, settings.timeout_s)
        answer = _retry(client, request, job, settings)
    exit_code = _exit_code(answer)
    if settings.is_json:
        output.document(_document(answer))
    else:
        _tell(answer, settings)
    return exit_code


def _retry(client: Caller, request: Json, job: str, settings: Settings) -> Json:
    """The scheduler's answer. Raises a refusal, or that the answer was lost."""
    settings.about = job
    name, attempt = split_attempt(job)
    attempt = attempt or last_attempt(client, name, settings.timeout_s)
    wanted = {**request, "job": name, "retry_of": attempt}
    try:
        return ask_job(client, wanted, name, settings.timeout_s)
    except PraxistError as error:
        raise advise_repeat(error, wanted) from None


def _retry_all_lost(client: Caller, request: Json, settings: Settings) -> int:
    """Each on its own; 1 when one of them was refused."""
    ask_for = {
        "kind": "list_jobs", "states": ["drained_unknown"], "peer": request["peer"],
        "limit": LIST_JOBS_MAX,
    }  # fmt: skip
    documents, refused = [], 0
    for view in ask(client, ask_for, settings.timeout_s)["jobs"]:
        try:
            answer = _retry(client, request, str(view["job"]), settings)
        except PraxistError as error:
            if error.code in LOST:
                raise
            refused += 1
            output.talk(f"refused {safe(str(view['job']))}: {safe(error.detail)}")
            continue
        documents.append(_document(answer))
        if not settings.is_json:
            _tell(answer, settings)
    if settings.is_json:
        code = 1 if refused else 0
        output.document({**head("retry_lost"), "results": documents, "exit_code": code})
    elif not documents and not refused:
        output.talk("no job is lost: of each that ran it is known how it ended")
    return 1 if refused else 0


def _exit_code(answer: Json) -> int:
    view = answer["job"]
    return exit_of(view)[0] if view["state"] == "drained_unknown" else 0


def _document(answer: Json) -> Json:
    return submission_document(
        "submit",
        verdict=answer["verdict"],
        job=answer["job"],
        tag=answer["job"]["tag"],
        answer=answer,
        retryable=False,
        exit_code=_exit_code(answer),
        exit_source="scheduler",
        error=None,
    )


def _tell(answer: Json, settings: Settings) -> None:
    output.talk(*submitted_lines(answer, now_s(), waits=False))
    if settings.format == "name":
        output.answer(str(answer["job"]["job"]))
