"""Which attempt a retry follows, learnt before it is asked for.

So an answer that is lost costs nothing: the same retry again names the same attempt, which is
followed once. Standard library and click only; never imports pydantic or rich.
"""

from __future__ import annotations

import re

import click

from ..errors import PraxistError
from ..protocol.envelope import Json
from ..protocol.job_states import TERMINAL_STATES
from .connect import Caller, ask
from .failure import UsageHelp

ATTEMPT = re.compile(r"(j-[1-9][0-9]{0,11})\.(0|[1-9][0-9]{0,5})")
END_WITHIN_S = 30.0
"""For the launcher to look once more at what was presumed dead."""
LOST = frozenset({"no_answer", "scheduler_restarting"})


def attempt_named(ctx: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """The callback of an option that names an attempt. Raises UsageError."""
    if text is not None and ATTEMPT.fullmatch(text) is None:
        raise UsageHelp(f"--retry-of {text!r} is no attempt", ctx, ["one is named like j-12.1"])
    return text


def split_attempt(text: str) -> tuple[str, str | None]:
    """`j-12.1` is the job `j-12`, of which it names the attempt to be followed; else the job."""
    found = ATTEMPT.fullmatch(text)
    return (text, None) if found is None else (found[1], text)


def last_attempt(
    client: Caller, job: str, timeout_s: float, generation: int | None = None
) -> str | None:
    """The attempt that a retry of a job would follow now; None when it has not ended, is not there,
    or is of another generation than is meant: what to say of that is the scheduler's."""
    try:
        view = ask(client, {"kind": "show_job", "job": job}, timeout_s)["job"]
    except PraxistError as error:
        if error.code in LOST:
            raise
        return None
    if view["state"] not in TERMINAL_STATES or generation not in (None, view["generation"]):
        return None
    return str(view.get("attempt") or f"{view['job']}.0")


def advise_repeat(error: PraxistError, request: Json) -> PraxistError:
    """When the answer to a retry was lost: the repeat that is safe."""
    attempt = request.get("retry_of")
    if attempt is not None and error.code in LOST:
        lost = "--lost " if request.get("lost") else ""
        how = (
            f"praxist-zmq retry {lost}{attempt}"
            if request["kind"] == "retry_job"
            else f"--retry-of {attempt} in the place of --retry-terminal"
        )
        error.help = [f"it may have been taken; this repeat runs it once in any case: {how}"]
    return error


def end_presumed_dead(client: Caller, job: str, timeout_s: float) -> None:
    """Put it on record that nothing lives of a job that is out of sight, and wait for its end.

    Raises the refusal, `wait_timeout`, or that the scheduler did not answer.
    """
    name, _ = split_attempt(job)
    request = {
        "kind": "cancel_jobs",
        "jobs": [name],
        "reason": "presumed dead, to be run again",
        "presume_dead": True,
    }
    (told,) = ask(client, request, timeout_s)["results"]
    if told["outcome"] == "refused":
        raise PraxistError(told["code"], told["detail"])
    ended = {"kind": "watch_job", "job": name, "after_version": 0, "until": "terminal"}
    ask(client, ended, END_WITHIN_S)
