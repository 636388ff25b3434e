"""What must be true after every fault, read from the disk when nothing runs any more.

Every acknowledged submission is there exactly once; no attempt's first act happened twice, and
none for an attempt that the ledger does not know; no device was held by two experiments at once;
the ledger verifies and its history breaks no rule; the canaries live; no process is left; no file
of the run holds a secret.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from praxist_zmq.ledger.verify import verify
from praxist_zmq.protocol import events as ev
from praxist_zmq.protocol.codec import decode_event
from praxist_zmq.service.ledger_history import history_faults

from .ledger_history import history
from .run import Run
from .wait import wait_until


def check(run: Run, *, secrets: Iterable[bytes] = (), alone: bool = True) -> list[Any]:
    """Fails with every broken rule. The scheduler must be down. Gives the ledger's events.

    `alone`: every experiment on a device is alone there; else whoever asks judges the devices.
    """
    events = [decode_event(body) for body in history(run.paths.ledger)]
    faults = [
        *history_faults(run.paths.ledger),
        *_acknowledged(run, events),
        *_first_acts(run, events),
        *(shared_devices([run]) if alone else []),
        *_secrets(run, secrets),
    ]
    report = verify(run.paths.ledger)
    if report.outcome != "clean":
        faults.append(f"ledger is {report.outcome}: {report.detail}")
    assert not faults, "\n".join(faults)
    run.canaries.check()
    return events


def check_ended(run: Run, *, secrets: Iterable[bytes] = (), alone: bool = True) -> list[Any]:
    """`check`, and nothing of the run is left: every job ended, no process lives."""
    wait_until(
        lambda: not [n for n in run.processes() if n != "registry"],
        _who_is_left(run),
    )
    events = check(run, secrets=secrets, alone=alone)
    alive = run.experiments()
    assert not alive, f"experiments left: {alive}"
    queued = {e.job for e in events if isinstance(e, ev.JobQueued)}
    ended = {e.job for e in events if isinstance(e, ev.JobFinished | ev.JobRejected)}
    assert queued == ended, f"never ended: {sorted(queued - ended)}"
    return events


def _who_is_left(run: Run) -> str:
    """What is waited for, with who is there."""
    return f"all processes of {run.dir} to end; now {run.processes()}"


def _acknowledged(run: Run, events: list[Any]) -> Iterable[str]:
    jobs = Counter(e.tag for e in events if isinstance(e, ev.JobQueued))
    names = {e.tag: e.job for e in events if isinstance(e, ev.JobQueued)}
    freed = {e.job for e in events if isinstance(e, ev.JobRejected) and e.frees_identity}
    for tag, job in run.acknowledged.items():
        if tag not in jobs:
            yield f"{tag} was acknowledged as {job} and is not in the ledger"
        elif names[tag] != job and job not in freed:
            yield f"{tag} was acknowledged as {job} and is {names[tag]}"
        elif jobs[tag] > 1 and job not in freed:
            yield f"{tag} is {jobs[tag]} times in the ledger"


def _first_acts(run: Run, events: list[Any]) -> Iterable[str]:
    """The events may start with a snapshot in longer runs; tests here keep the whole history."""
    starts = Counter(words[1] for words in run.read_lines("start"))
    allocated = {e.attempt for e in events if isinstance(e, ev.AttemptAllocated)}
    bound = {e.attempt for e in events if isinstance(e, ev.AttemptBound)}
    launched = {e.attempt for e in events if isinstance(e, ev.AttemptLaunched)}
    exits = {e.attempt: e for e in events if isinstance(e, ev.AttemptExited)}
    for attempt, count in starts.items():
        if count > 1:
            yield f"{attempt} did its first act {count} times"
        if attempt not in allocated:
            yield f"{attempt} ran and the ledger does not know it"
        elif attempt not in bound:
            yield f"{attempt} ran before it was bound"
        if attempt in exits and exits[attempt].outcome == "never_ran":
            yield f"{attempt} ran and is recorded as never run"
    ends = {words[1]: int(words[5]) for words in run.read_lines("end")}
    for attempt, code in ends.items():
        found = exits.get(attempt)
        if found is not None and found.outcome == "exited" and found.exit_code != code:
            yield f"{attempt} ended with {code}; the ledger says {found.exit_code}"
    ours = {
        e.job for e in events if isinstance(e, ev.JobQueued) and str(run.lines) in str(e.command)
    }
    for attempt in launched:
        clean = attempt in exits and exits[attempt].outcome == "exited"
        by_itself = clean and exits[attempt].signal is None
        if by_itself and attempt.rpartition(".")[0] in ours and attempt not in starts:
            yield f"{attempt} is recorded as run and did no first act"


def shared_devices(runs: Iterable[Run]) -> list[str]:
    """Two experiments with one device at the same time, over all `runs`; all are exclusive."""
    held: dict[str, list[tuple[int, int, str]]] = {}
    for run in runs:
        ends = {words[1]: int(words[3]) for words in run.read_lines("end")}
        for _, attempt, _, began, uuids, _ in run.read_lines("start"):
            for uuid in uuids.split(",") if uuids != "-" else []:
                until = ends.get(attempt, int(began))
                held.setdefault(uuid, []).append((int(began), until, f"{run.dir.name}/{attempt}"))
    faults = []
    for uuid, spans in held.items():
        spans.sort()
        for (_, until, first), (began, _, second) in pairwise(spans):
            if began < until:
                faults.append(f"{uuid} was held by {first} and {second} at once")
    return faults


def _secrets(run: Run, secrets: Iterable[bytes]) -> Iterable[str]:
    for root in (run.dir, run.host_dir):
        for path in root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                yield from _found(path, secrets)


def _found(path: Path, secrets: Iterable[bytes]) -> Iterable[str]:
    body = path.read_bytes()
    for secret in secrets:
        if secret in body:
            yield f"{path} holds a secret"
