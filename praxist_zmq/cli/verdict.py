"""The lines of `launch`, `submit` and `wait`: what happened to a job, in words.

Pure: a job's view as the broker sends it, and the time now, become lines of at most 100 columns
(paths are never cut). Standard library only.
"""

from __future__ import annotations

from ..errors import ERRORS, PraxistError
from ..protocol.envelope import Json
from ..protocol.job_states import TERMINAL_STATES
from .failure import error_lines, verdict_word
from .settings import Settings
from .words import (
    LINE_COLUMNS,
    PROGRAM,
    between,
    cells,
    count,
    cut,
    cut_middle,
    devices,
    named_devices,
    parse_stamp,
    queued_at,
    safe,
    span,
    wrapped,
)

BLOCKERS_SHOWN = 6
EXIT_CLOSED = 69
"""Absent or closed: a later generation or the operator may help, a change of the request not."""
SCHEDULERS_CODES = frozenset(row.exit_code for row in ERRORS.values() if row.exit_code >= 64)
UNKNOWN_HELP = "look at the log and the results; it is not run again under this tag"


def is_terminal_state(job: Json) -> bool:
    """Whether the job has ended."""
    return job["state"] in TERMINAL_STATES


def exit_of(job: Json) -> tuple[int, str]:
    """The exit status an ended job gives its waiter, and whose it is (`job`, `scheduler`)."""
    state = job["state"]
    if state == "completed":
        return int(job.get("exit_code") or 0), "job"
    if state == "failed":
        if job.get("signal"):
            return 128 + int(job["signal"]), "job"
        return int(job.get("exit_code") or 1), "job"
    if state == "cancelled" and job.get("attempt"):
        if job.get("signal"):
            return 128 + int(job["signal"]), "job"
        if job.get("exit_code"):
            return int(job["exit_code"]), "job"
        # Cut short and ended with 0: whoever waits must not take that for a result.
    if state == "drained_unknown":
        return ERRORS["outcome_unknown"].exit_code, "scheduler"
    row = ERRORS.get(job.get("reject_code") or "cancelled")
    return row.exit_code if row is not None else 65, "scheduler"


def error_of(job: Json) -> PraxistError | None:
    """Why an ended job gives its waiter a status of the scheduler's; None where it is the job's."""
    if exit_of(job)[1] == "job":
        return None
    if job["state"] == "drained_unknown":
        detail = f"{job['job']} ended while nothing could see how"
        return PraxistError("outcome_unknown", detail)
    told = job.get("reject_code")
    code = told if told in ERRORS else "cancelled"
    why = job.get("note") or job.get("failure_signature") or "it will not run"
    return PraxistError(code, f"{job['job']} is {job['state']}: {why}")


def ending(job: Json) -> str:
    """How an attempt ended: `exit 3`, `signal 11`, `outcome unknown`."""
    if job["state"] == "cancelled" and not job.get("attempt"):
        return "before it started"
    if job.get("signal"):
        return f"signal {job['signal']}"
    if job.get("exit_code") is not None:
        return f"exit {job['exit_code']}"
    return "outcome unknown" if job["state"] == "drained_unknown" else "no exit code"


def cancel_reason(job: Json) -> str | None:
    """Why a job was cancelled, where a reason was given."""
    why = job.get("failure_signature") if job["state"] == "cancelled" else None
    return None if why in (None, "", "cancelled") else cut(safe(why), 160)


def headline(word: str, job: Json, facts: str) -> str:
    """`word j-12 TAG  facts`; the tag gives way when the line is too long."""
    head = f"{word} {job['job']} "
    room = LINE_COLUMNS - cells(head) - cells(facts) - 2
    return f"{head}{cut_middle(safe(job['tag']), max(room, 12))}  {facts}"


def _profile(job: Json, source: str | None) -> str:
    named = safe(job["profile"]) + (" (default)" if source == "default" else "")
    return f"profile {cut(named, 34)}  class {job['work_class']}"


def next_line(*commands: str) -> str:
    """What to run next."""
    return "  next  " + "   |   ".join(commands)


OTHER_COMMAND = "your command was not run"
"""How the broker's note begins where the result that stands is another command's."""


def submitted_lines(answer: Json, now_s: float, *, waits: bool) -> list[str]:
    """The verdict on an accepted submission, and what a peer should know."""
    job, verdict = answer["job"], answer["verdict"]
    lines = {
        "started": _started,
        "queued": _queued,
        "joined": _joined,
        "done": _done,
        "retrying": _retrying,
    }.get(verdict, _queued)(job, answer, now_s)
    # What the first line and the help line of `joined` say is not said again.
    known = (f"sent by {job['peer']}", "if this is other science, give it another tag")
    for note in answer.get("notes") or []:
        if note not in known:
            lines += wrapped("note", note)
    if verdict == "joined":
        lines += wrapped("help", f"{known[1]}; if not, just wait")
    if verdict != "done":
        lines.append(_next(job, waits))
    return lines


def _next(job: Json, waits: bool) -> str:
    name = job["job"]
    if not waits:
        return next_line(f"{PROGRAM} explain {name}", f"{PROGRAM} wait {name}")
    if job["state"] == "running":
        return next_line(f"{PROGRAM} logs -f {name}", "Ctrl-C detaches, the job goes on")
    return next_line(f"{PROGRAM} explain {name}", "Ctrl-C detaches, the job goes on")


def _started(job: Json, answer: Json, now_s: float) -> list[str]:
    facts = f"{devices(job['gpu_uuids'])}  {_profile(job, answer.get('profile_source'))}"
    lines = [headline("started", job, facts)]
    if job.get("log_path"):
        lines.append(f"  log   {safe(job['log_path'])}")
    return lines


def _queued(job: Json, answer: Json, now_s: float) -> list[str]:
    lines = [headline("queued", job, _profile(job, answer.get("profile_source")))]
    return lines + blocker_lines(job) + _estimate_lines(answer)


def _estimate_lines(answer: Json) -> list[str]:
    """`likely start in 11m-22m: j-121 ends on GPU 0`."""
    estimate = answer.get("start_estimate")
    if not estimate or estimate.get("likely_s") is None:
        return []
    by = "" if estimate.get("by_s") is None else f" (90 %: {span(estimate['by_s'])})"
    event = f", when {answer['would_start']}" if answer.get("would_start") else ""
    return wrapped("start", f"likely in {span(estimate['likely_s'])}{by}{event}")


def _retrying(job: Json, answer: Json, now_s: float) -> list[str]:
    number = int(job.get("attempts") or 0) + (0 if job["state"] == "running" else 1)
    lines = [headline("retrying", job, f"attempt {number} under the same identity")]
    return lines + blocker_lines(job)


def _joined(job: Json, answer: Json, now_s: float) -> list[str]:
    who = f"sent by {cut(safe(job['peer']), 40)}"
    since = parse_stamp(job.get("started_at") or queued_at(job))
    lasted = span(None if since is None else now_s - since)
    if job["state"] == "running":
        where = devices(job["gpu_uuids"])
        return [headline("joined", job, f"running on {where} for {lasted}, {who}")]
    return [headline("joined", job, f"{_state(job)} for {lasted}, {who}"), *blocker_lines(job)]


def _done(job: Json, answer: Json, now_s: float) -> list[str]:
    if job["state"] == "drained_unknown":
        facts = f"drained_unknown {_ago(job, now_s)}, the outcome is unknown"
        return [headline("done", job, facts), *unknown_advice(job)]
    facts = f"{job['state']} {_ago(job, now_s)}, {ending(job)}, took {_took(job)}"
    if any(note.startswith(OTHER_COMMAND) for note in answer.get("notes") or []):
        facts = f"not run: another command's result, {ending(job)}"
    lines = [headline("done", job, facts)]
    if not answer.get("notes"):
        lines += wrapped("note", "same tag, so the earlier result stands; nothing was run")
    return lines


def unknown_advice(job: Json) -> list[str]:
    """What to do about a job of which nobody saw the end."""
    lines = wrapped("help", UNKNOWN_HELP)
    return lines + ([f"  log   {safe(job['log_path'])}"] if job.get("log_path") else [])


def _state(job: Json) -> str:
    state = str(job["state"])
    return state if state == "drained_unknown" else state.replace("_", " ")


def _ago(job: Json, now_s: float) -> str:
    ended = parse_stamp(job.get("ended_at"))
    return "earlier" if ended is None else f"{span(now_s - ended)} ago"


def _took(job: Json) -> str:
    return span(between(job.get("started_at"), job.get("ended_at")))


def blocker_lines(job: Json) -> list[str]:
    """`waits for …`, one line a blocker."""
    blockers = job.get("blockers") or []
    lines: list[str] = []
    for blocker in blockers[:BLOCKERS_SHOWN]:
        lines += wrapped("waits", blocker_text(blocker))
    if len(blockers) > BLOCKERS_SHOWN:
        lines.append(f"  waits and {count(len(blockers) - BLOCKERS_SHOWN, 'more reason')}")
    return lines


def blocker_text(blocker: Json) -> str:
    """One reason with its numbers."""
    text = f"{blocker['code']}: {blocker['detail']}" if blocker.get("detail") else blocker["code"]
    return named_devices(text)


def refused_lines(
    error: PraxistError, settings: Settings, tag: str, job: Json | None, now_s: float
) -> list[str]:
    """The verdict on a submission that was not accepted."""
    if job is None or error.code != "terminal_duplicate":
        tag = cut_middle(safe(tag), 40)
        return error_lines(error, settings, tag, word=verdict_word(error))
    tries = int(job.get("attempts") or 0)
    how = f"{ending(job)}, attempt {tries} of {tries}" if tries else "never ran"
    head = f"{verdict_word(error)} {cut_middle(safe(tag), 40)}  "
    lines = [head + f"{job['job']} already {_state(job)} {_ago(job, now_s)} ({how})"]
    if job["state"] == "cancelled":
        why = cancel_reason(job)
        lines += wrapped("why", why) if why else []
    elif job.get("failure_signature"):
        lines += wrapped("last", cut(safe(job["failure_signature"]), 200))
    if tries:
        lines.append(f"  help  read it:          {PROGRAM} logs {job['job']} -n 40")
    ended = job["state"] in ("cancelled", "rejected")
    when = "to run it after all:" if ended else "after a repair:  "
    lines.append(f"  help  {when} add --retry-terminal, keep this tag")
    return lines


def dry_run_lines(answer: Json) -> list[str]:
    """What a submission would have met."""
    job = answer["job"]
    tag = cut_middle(safe(job["tag"]), 50)
    if answer["verdict"] == "done":
        how = f"{job['job']} already {_state(job)}, {ending(job)}"
        lines = [f"would run nothing: {tag}  {how}"]
    else:
        would = {"would_queue": "queue", "started": "start", "joined": "join", "retrying": "retry"}
        facts = _profile(job, answer.get("profile_source"))
        lines = [f"would {would[answer['verdict']]} {tag}  {facts}", *blocker_lines(job)]
    for note in answer.get("notes") or []:
        if note == "dry run":
            continue  # `would` says it
        lines += wrapped("note", note)
    return lines


def phase(job: Json) -> tuple[str, str | None, bool, str | None]:
    """What a reader wants to hear of when it changes."""
    running = job["state"] == "running"
    return job["state"], job.get("attempt"), running and bool(job.get("started_at")), job["note"]


def change_line(before: Json | None, job: Json) -> str | None:
    """One line for a change of phase; None when there is nothing worth telling."""
    if before is not None and phase(before) == phase(job):
        return None
    state, name = job["state"], job["job"]
    if state in TERMINAL_STATES:
        return final_line(job)
    if state == "running":
        if not job.get("started_at"):
            return None
        if before is not None and phase(before)[:3] == phase(job)[:3]:
            return f"running {name}: {safe(job['note'])}" if job.get("note") else None
        waited = span(between(queued_at(job), job.get("started_at")))
        again = f", attempt {job['attempts']}" if int(job.get("attempts") or 0) > 1 else ""
        return f"started {name} on {devices(job['gpu_uuids'])}{again} (waited {waited})"
    if before is not None and before["state"] == "running":
        why = f": {safe(job['note'])}" if job.get("note") else ""
        return f"queued {name} again after attempt {before.get('attempts')}{why}"
    if state == "waiting_for_credentials":
        return f"queued {name}: waits for credentials; send the same command again"
    return None


def final_line(job: Json) -> str:
    """The last line about an ended job."""
    state, name = job["state"], job["job"]
    if state == "rejected":
        why = job.get("note") or job.get("failure_signature") or "it will not run"
        row = ERRORS.get(job.get("reject_code") or "")
        title = f"{row.title}: " if row is not None and row.exit_code == EXIT_CLOSED else ""
        return cut(f"rejected {name}: {title}{safe(why)}", 2 * LINE_COLUMNS)
    if state == "drained_unknown":
        return f"drained_unknown {name} outcome unknown: it ended while nothing could see how"
    line = f"{state} {name} {ending(job)}"
    if job.get("started_at"):
        waited = span(between(queued_at(job), job.get("started_at")))
        line += f" after {_took(job)} (waited {waited})"
    if state == "cancelled":
        why = cancel_reason(job)
        line += f": {why}" if why else ""
    elif state == "failed" and job.get("failure_signature"):
        line += f": {cut(safe(job['failure_signature']), 160)}"
    return line


def final_lines(job: Json) -> list[str]:
    """The last lines of a blocking launch."""
    lines = [final_line(job)]
    if job["state"] == "drained_unknown":
        return lines + unknown_advice(job)
    row = ERRORS.get(job.get("reject_code") or "")
    if job["state"] == "rejected" and row is not None and row.exit_code == EXIT_CLOSED:
        lines += wrapped("help", row.help)
    if job["state"] == "failed" and job.get("failure_hint"):
        lines += wrapped("hint", safe(job["failure_hint"]))
    if job["state"] in ("cancelled", "failed") and job.get("log_path"):
        lines.append(f"  log   {safe(job['log_path'])}")
    return lines + own_code_lines(job)


def own_code_lines(job: Json) -> list[str]:
    """Whose a status is that means something else when it is the scheduler's, and what to do."""
    code, source = exit_of(job)
    if job["state"] != "failed" or source != "job" or code not in SCHEDULERS_CODES:
        return []
    return [
        next_line(f"{PROGRAM} retry {job['job']}", f"exit {code} is the job's own; it has ended")
    ]


def over_line(job: Json) -> str:
    """The last line of a launch whose own waiting time is over: its job's state, first."""
    word = "started" if job["state"] == "running" else "queued"
    where = "not started yet" if job["state"] == "queued" else f"still {_state(job)}"
    return f"{word} {job['job']}  {where}; the waiting time is over, the job goes on"


def withdrawn_line(job: Json) -> str:
    """The last line of a launch whose job did not start in the time allowed."""
    return f"withdrawn {job['job']}  it did not start in the time you allowed"


def alive_line(job: Json, now_s: float) -> str:
    """The heartbeat of a long wait."""
    if job["state"] == "running":
        since = parse_stamp(job.get("started_at"))
        lasted = span(None if since is None else now_s - since)
        return f"running {job['job']} on {devices(job['gpu_uuids'])} for {lasted}"
    since = parse_stamp(queued_at(job))
    lasted = span(None if since is None else now_s - since)
    codes = ", ".join(blocker["code"] for blocker in job.get("blockers") or [])
    return f"queued {job['job']} for {lasted}" + (f": {codes}" if codes else "")
