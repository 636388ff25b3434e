"""What to do next, as exact as the call knows it: real names in the place of JOB, DIR and VERB.

Decides nothing about a job. Reads directories of the run at most, asks the scheduler at most for
the tags it knows, and only after something went wrong. Standard library only.
"""

from __future__ import annotations

import difflib
import re
import shlex
from pathlib import Path
from typing import Protocol

from ..errors import PraxistError
from ..host.paths import RunPaths
from ..protocol.envelope import Json
from .settings import Settings
from .words import PROGRAM, cut

TAGS_LOOKED_AT = 2000
_JOB = re.compile(r"^(j-[1-9][0-9]{0,11})(?:\.([1-9][0-9]{0,5}))?$")
_DECLARED = "declared: "
# Verbs that only read, and what they read is on disk too.
_READING = frozenset({"queue", "show", "explain", "logs", "events", "wait"})


class Asked(Protocol):
    """The part of a client that advice needs."""

    def call(self, request: Json, timeout_s: float | None = None) -> Json:
        """The reply to one request."""
        ...


def helps(error: PraxistError, settings: Settings) -> list[str]:
    """The advice on an error, with the names this call knows filled in."""
    lines = error.help or [error.row.help]
    if error.code in ("no_scheduler", "scheduler_restarting", "no_answer"):
        lines = [*lines, *on_disk(settings)]
    known = (("help VERB", "help", settings.verb), ("wait JOB", "wait", settings.about),
             ("cancel JOB", "cancel", settings.about), ("story JOB", "story", settings.about),
             ("--run-dir DIR", "--run-dir", settings.run))  # fmt: skip
    filled = []
    for line in lines:
        for placeholder, words, value in known:
            if value:
                line = line.replace(placeholder, f"{words} {value}")
        filled.append(line.replace(" help VERB", " help"))
    return list(dict.fromkeys(filled))


def on_disk(settings: Settings) -> list[str]:
    """Where a run that nobody serves can still be read."""
    if settings.run is None or settings.verb not in _READING:
        return []
    run = RunPaths.of(settings.run)
    if not run.ledger.is_dir():
        return []
    chosen = f"--run-dir {shlex.quote(settings.run)}"
    job = settings.about or "JOB"
    lines = [f"on disk: {PROGRAM} {chosen} ledger story {job}"]
    newest = newest_log(run, job, None)
    lines.append(f"its log: {newest}" if newest else f"logs: {run.experiment_logs}/JOB.ATTEMPT.log")
    return lines


def newest_log(run: RunPaths, job: str, attempt: int | None) -> Path | None:
    """The log file of an attempt of `j-12` (or of `j-12.1`), the newest unless one is named."""
    match = _JOB.match(job)
    if match is None:
        return None
    name, typed = match.groups()
    wanted = attempt or (int(typed) if typed else None)
    if wanted is not None:
        path = run.attempt_log(f"{name}.{wanted}")
        return path if path.is_file() else None
    numbers = []
    for path in run.experiment_logs.glob(f"{name}.*.log"):
        number = path.name[len(name) + 1 : -len(".log")]
        if number.isascii() and number.isdigit():
            numbers.append(int(number))
    return run.attempt_log(f"{name}.{max(numbers)}") if numbers else None


def no_run_here(run: RunPaths) -> PraxistError:
    """A directory that never had a scheduler."""
    where = shlex.quote(str(run.run_dir))
    return PraxistError(
        "no_run",
        f"{run.run_dir} has no resource_scheduler/",
        [
            "is it the right directory? name another with --run-dir",
            f"operator: `{PROGRAM} up --run-dir {where}` makes it one; "
            "peer: report it, start nothing yourself",
        ],
    )


def nearest(text: str, known: list[str]) -> str | None:
    """The known name that `text` was probably meant to be."""
    found = difflib.get_close_matches(text, known, n=1, cutoff=0.6)
    return found[0] if found else None


def nearest_profile(named: str, told: list[str]) -> list[str]:
    """`did you mean` for a mistyped profile, from the scheduler's list of declared ones.

    Keeps the `profile:` that `named` may begin with.
    """
    before = "profile:" if named.startswith("profile:") else ""
    for line in told:
        if line.startswith(_DECLARED):
            close = nearest(named[len(before) :], line[len(_DECLARED) :].split(", "))
            return [f"did you mean `{before}{close}`?"] if close else []
    return []


def nearest_job(client: Asked, text: str, timeout_s: float) -> list[str]:
    """`did you mean` for something that is no job: a tag, or nearly one. Empty when unsure."""
    if text == "last" or _JOB.match(text):
        return []
    request = {"kind": "list_jobs", "include_terminal": True, "limit": TAGS_LOOKED_AT}
    try:
        jobs = client.call(request, timeout_s=timeout_s).get("jobs") or []
    except PraxistError:
        return []  # the advice is a courtesy; the refusal itself is told
    tags = [str(job["tag"]) for job in jobs]
    wanted = text.removeprefix("tag:")
    close = wanted if wanted in tags else nearest(wanted, tags)
    if close is None or f"tag:{close}" == text:
        return []
    return [f"did you mean `{shlex.quote(f'tag:{cut(close, 200)}')}`?"]


def nearest_subject(client: Asked, text: str, timeout_s: float) -> list[str]:
    """The same for `explain`, which takes profiles too."""
    request = {"kind": "explain_job", "subject": f"profile:{text}"}
    try:
        reply = client.call(request, timeout_s=timeout_s)
    except PraxistError:
        return []  # as above
    if reply.get("kind") == "explanation":
        return [f"did you mean `profile:{text}`?"]
    profiles = nearest_profile(f"profile:{text}", [str(line) for line in reply.get("help") or []])
    return nearest_job(client, text, timeout_s) or profiles
