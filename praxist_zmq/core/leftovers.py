"""What is told of attempts that are not as they should be: looked for after a restart, out of
sight, or kept by processes that outlive their evaluator.

Verdicts on an attempt are facts and go on record; who keeps it is what the launcher sees now, and
does not. Nothing is freed from here. Source: the design's promises 6 and 8.
"""

from __future__ import annotations

from ..protocol import events as ev
from ..protocol import reports as rep
from ..protocol.orders import AdoptAttempt
from .narrate import FOUND
from .proof import EVIDENCE
from .soft import Lingering, SoftState
from .state import Attempt, BrokerState, Job
from .timestamps import span_words
from .turn import Refused, Turn

WARN_AFTER_MS = 30_000
"""So long may what an evaluator left behind take to end without a warning, if nobody waits."""
NAMED_MAX = 3


def judged(turn: Turn, attempt: Attempt, report: rep.AttemptJudged) -> None:
    """Record what was found. What stays out of sight is repeated, and recorded once."""
    same = (attempt.found, attempt.evidence) == (report.found, report.evidence)
    if same and (report.found == "unseen" or report.evidence == "lock"):
        return
    turn.decision.lazy = True  # what follows from it has an event of its own
    turn.record(
        ev.AttemptFound(
            at_ms=turn.stamp.at_ms,
            attempt=attempt.attempt,
            found=report.found,
            evidence=report.evidence,
            detail=report.detail,
        )
    )


def lingers(turn: Turn, attempt: Attempt, report: rep.AttemptLingers) -> None:
    """Keep who keeps it, for the views."""
    soft, name = turn.soft, attempt.attempt
    if not report.number:
        soft.lingering.pop(name, None)
        return
    known = soft.lingering.get(name)
    since_ms = turn.stamp.mono_ms if known is None else known.since_ms
    soft.lingering[name] = Lingering(report, since_ms)
    soft.touched[attempt.job] = None


def presume_dead(turn: Turn, job: Job, reason: str, uid: int | None) -> None:
    """An operator's word about what cannot be seen. Raises Refused where it can be seen."""
    attempt = turn.state.live_attempt(job)
    if attempt is None or attempt.found != "unseen":
        seen = EVIDENCE.get(attempt.evidence if attempt is not None else "")
        raise Refused(
            "not_cancellable",
            f"{job.job} is not out of sight, so nobody needs to presume its end"
            + (f": {seen}" if seen else ""),
            [f"end it: praxist-zmq cancel {job.job} --yes"],
        )
    if not attempt.presumed_dead:
        turn.record(
            ev.AttemptPresumedDead(
                at_ms=turn.stamp.at_ms, attempt=attempt.attempt, reason=reason[:1000], uid=uid
            )
        )
    turn.order(adopt(attempt))


def adopt(attempt: Attempt) -> AdoptAttempt:
    """The order to look for an attempt."""
    return AdoptAttempt(
        attempt=attempt.attempt,
        shim=attempt.shim,
        leader=attempt.leader,
        presumed_dead=attempt.presumed_dead,
    )


def keepers(attempt: Attempt, soft: SoftState) -> str | None:
    """Who keeps an attempt whose evaluator or shim is gone: `sleep (pid 12, 45 s old)`."""
    known = soft.lingering.get(attempt.attempt)
    if known is None:
        return None
    named = [
        f"{one.name} (pid {one.pid}, {span_words(soft.now_ms - one.started_at_mono_ms)} old)"
        for one in known.report.processes[:NAMED_MAX]
    ]
    more = known.report.number - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def note(attempt: Attempt, soft: SoftState) -> str | None:
    """What is unusual about an attempt, for the views; None when nothing is."""
    if attempt.found == "unseen":
        return f"{FOUND['unseen']}: {EVIDENCE.get(attempt.evidence, attempt.evidence)}"
    kept_by = keepers(attempt, soft)
    doubtful = kept_by is not None and not soft.lingering[attempt.attempt].report.proved
    if attempt.stuck_pids:
        pids = ", ".join(str(pid) for pid in attempt.stuck_pids[:8])
        return f"unkillable: {kept_by or pids}; its allocation stays held"
    if kept_by is not None and doubtful:
        return f"its shim was destroyed; held for {kept_by}, which may belong to it"
    if attempt.phase == "exited" or kept_by is not None:
        lives = "descendant lives" if attempt.survivors == 1 else "descendants live"
        who = f"held for {kept_by}" if kept_by else f"{attempt.survivors or 'some'} {lives} on"
        what = "the evaluator ended" if attempt.phase == "exited" else "its shim was destroyed"
        return f"{what}; {who}"
    return None


def warnings(state: BrokerState, soft: SoftState) -> list[str]:
    """What `status` warns of."""
    found = []
    for attempt in state.attempts.values():
        text = note(attempt, soft)
        if text is None:
            continue
        known = soft.lingering.get(attempt.attempt)
        overdue = known is not None and (
            len(soft.queue) > 0 or soft.now_ms - known.since_ms >= WARN_AFTER_MS
        )
        if attempt.found == "unseen" or attempt.stuck_pids or overdue:
            found.append(f"{attempt.attempt} holds its slot{_devices(attempt)}: {text}")
    return found


def _devices(attempt: Attempt) -> str:
    number = len(attempt.device_uuids)
    return f" and {number} device{'' if number == 1 else 's'}" if number else ""


def verdict(attempt: Attempt, soft: SoftState) -> str | None:
    """What `explain` says of a running job beside that."""
    text = note(attempt, soft)
    if text is None and attempt.found:
        text = f"{FOUND[attempt.found]} after a restart: {EVIDENCE.get(attempt.evidence, '')}"
    return text


def options(job: Job, attempt: Attempt, soft: SoftState) -> list[str]:
    """What can be done about it."""
    if attempt.found == "unseen":
        return [
            "look where it ran: in the container, or from the host itself, where `up` sees it",
            "if you know that nothing of it lives, run it again: "
            f"praxist-zmq retry {job.job} --presume-dead",
            f"or give it up: praxist-zmq cancel {job.job} --presume-dead",
        ]
    if keepers(attempt, soft) is not None:
        return [f"end what it left behind: praxist-zmq cancel {job.job} --yes"]
    return []
