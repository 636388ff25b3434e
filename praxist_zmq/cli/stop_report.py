"""What `stop` says: the fence, the queue, what ended, and what was left alone and why."""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.envelope import Json
from . import output
from .documents import head
from .stopping import RunStop
from .words import count, cut, safe, span

NAMES_SHOWN = 20
LEFT_SHOWN = 20


def document_of(told: RunStop) -> Json:
    """The JSON document of one run."""
    return {
        **head("stop"),
        "run_id": told.run_id,
        "run_dir": told.run_dir,
        **_facts([told]),
        "left": told.left,
        "exit_code": told.exit_code,
    }


def document_of_all(runs: Sequence[RunStop], exit_code: int) -> Json:
    """The JSON document of `stop --all`."""
    return {
        **head("stop_all"),
        "run_id": None,
        **_facts(runs),
        "runs": [document_of(told) for told in runs],
        "exit_code": exit_code,
    }


def _facts(runs: Sequence[RunStop]) -> Json:
    def pids(name: str) -> list[int]:
        return sorted({pid for told in runs for pid in getattr(told, name)})

    alone = [process for told in runs for process in told.alone]
    failures = [f"{told.run_id}: {told.failure}" for told in runs if told.failure]
    return {
        "dry_run": any(told.dry_run for told in runs),
        "rejected": [job for told in runs for job in told.rejected],
        "ending": [job for told in runs for job in told.ending],
        "matched_pids": pids("matched"),
        "descendant_pids": pids("descendants"),
        "terminated_pids": pids("terminated"),
        "killed_pids": pids("killed"),
        "remaining_pids": pids("remaining"),
        "left_alone": [
            {"pid": each.pid, "name": each.name, "reason": each.reason} for each in alone
        ],
        "failed_run_ids": [told.run_id for told in runs if told.failure],
        "warnings": [warning for told in runs for warning in told.warnings] + failures,
    }


def tell(told: RunStop) -> None:
    """Print one run for people."""
    for warning in told.warnings:
        output.talk(f"warning  {safe(warning)}")
    if told.failure and not (told.fenced_by_file or told.fenced_by_scheduler):
        output.answer(f"failed   {safe(told.run_id)} was left untouched: {safe(told.failure)}")
        return
    _tell_fence(told)
    _tell_processes(told)
    for each in told.alone[:LEFT_SHOWN]:
        output.answer(f"left     pid {each.pid} {safe(each.name)} ({safe(each.reason)})")
    if len(told.alone) > LEFT_SHOWN:
        output.answer(f"left     {len(told.alone) - LEFT_SHOWN} more; see --json")
    if told.dry_run:
        return
    if told.failure:
        output.answer(f"failed   {safe(told.run_id)}: {safe(told.failure)}")
    elif told.exit_code == 0:
        span_text = span(told.took_s)
        output.answer(f"stopped  nothing of this run is left, the scheduler too, {span_text}")


def _tell_fence(told: RunStop) -> None:
    rejected, ending = told.rejected, told.ending
    if told.dry_run:
        output.answer("fence    would be set: nothing new would be accepted or started")
        text = f"queue    would reject {count(len(rejected), 'job')}  {_names(rejected)}"
        output.answer(text.rstrip())
        output.answer(f"running  would end {count(len(ending), 'job')}  {_names(ending)}".rstrip())
        return
    by = [
        words
        for words, done in (
            ("shutdown file written", told.fenced_by_file),
            ("scheduler froze all admission", told.fenced_by_scheduler),
        )
        if done
    ]
    output.answer(f"fence    set: nothing new is accepted or started ({', '.join(by)})")
    output.answer(f"queue    {count(len(rejected), 'job')} rejected  {_names(rejected)}".rstrip())
    if ending and _had_ended(told):
        output.answer(f"running  nothing left to end; ended before  {_names(ending)}")
    elif ending:
        output.answer(f"running  {count(len(ending), 'job')} told to end  {_names(ending)}")


def _had_ended(told: RunStop) -> bool:
    """Whether the jobs of the ledger had no process any more when we came."""
    met = told.matched | told.descendants | told.terminated | told.killed | told.remaining
    return not (told.fenced_by_scheduler or told.failure or told.left or met)


def _tell_processes(told: RunStop) -> None:
    if told.dry_run:
        return
    gone = len(set(told.ending) - set(told.left))
    if (told.ending and not _had_ended(told)) or told.terminated:
        killed = f", {count(len(told.killed), 'process', 'processes')} killed"
        output.answer(f"running  {gone} of {len(told.ending)} gone{killed if told.killed else ''}")
    if told.left:
        output.answer(f"left     {_names(told.left)}; see `praxist-zmq explain JOB`")
        for name, why in list(told.why.items())[:NAMES_SHOWN]:
            output.answer(f"left     {safe(name)}: {safe(why)}")
    alone = {each.pid for each in told.alone}
    alive = sorted(told.remaining - alone)
    if alive:
        shown = " ".join(str(pid) for pid in alive[:NAMES_SHOWN])
        output.answer(f"left     {count(len(alive), 'process', 'processes')} alive: {shown}")


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return " ".join(safe(cut(name, 40)) for name in names[:NAMES_SHOWN]) + more
