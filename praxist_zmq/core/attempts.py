"""What the launcher reports, and what follows for the attempt and its job.

Reports are facts and may come twice; a report about an attempt that is not live only makes the
launcher forget it. Sources: design 3 ("Launch"), seed 000 ("Submission", exit 75).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ..protocol import events as ev
from ..protocol import reports as rep
from ..protocol.orders import (
    AbandonAttempt,
    ForgetAttempt,
    StopAttempt,
)
from . import (
    credentials,
    evidence,
    failure,
    holds,
    leftovers,
    nested,
    pauses,
    registry_side,
    start_gate,
    storm,
)
from .generation_gate import generation_refusal
from .retry import decide_retry
from .soft import SoftState
from .state import Attempt, Job
from .turn import Refused, Turn
from .withdraw import reject

Outcome = Literal["exited", "exec_failed", "never_ran", "spawn_failed", "unknown"]

STUCK_PAUSE_MS = 60_000
_EXIT_NOT_FOUND = 127
_EXIT_NOT_EXECUTABLE = 126
_ENOENT = 2
_ENOTDIR = 20


def said(turn: Turn, report: Any) -> None:
    """Decide one report about an attempt."""
    if isinstance(report, rep.CallerIdentified):
        nested.identified(turn, report)
        return
    attempt = turn.state.attempts.get(report.attempt)
    if attempt is None:
        _not_live(turn, report)
        return
    if isinstance(report, rep.AttemptReady):
        _ready(turn, attempt, report)
    elif isinstance(report, rep.AttemptStarted):
        _started(turn, attempt, report)
    elif isinstance(report, rep.AttemptLeaderExited):
        _leader_exited(turn, attempt, report)
    elif isinstance(report, rep.AttemptEnded):
        detail = report.detail
        _ended(turn, attempt, report.outcome, report, detail, report.log_tail, permanent=False)
    elif isinstance(report, rep.SpawnFailed):
        detail = f"{report.stage}: {report.detail}"
        _ended(turn, attempt, "spawn_failed", None, detail, "", permanent=report.permanent)
    elif isinstance(report, rep.AttemptJudged):
        leftovers.judged(turn, attempt, report)
    elif isinstance(report, rep.AttemptLingers):
        leftovers.lingers(turn, attempt, report)
    elif isinstance(report, rep.AttemptUnkillable):
        turn.soft.stuck_untold[attempt.attempt] = report
        tell_stuck(turn)


def tell_stuck(turn: Turn) -> None:
    """Record what cannot be ended: when it becomes so, and after that what changed, but not more
    often than `STUCK_PAUSE_MS`: a tree that forks on has other processes at every look."""
    soft = turn.soft
    for name, report in list(soft.stuck_untold.items()):
        attempt = turn.state.attempts[name]
        if attempt.stuck_pids and turn.stamp.mono_ms < _stuck_due_ms(soft, name):
            continue
        del soft.stuck_untold[name]
        if attempt.stuck_pids == report.pids:
            continue
        soft.stuck_told_at_ms[name] = turn.stamp.mono_ms
        turn.record(
            ev.AttemptStuck(
                at_ms=turn.stamp.at_ms, attempt=name, pids=report.pids, detail=report.detail
            )
        )


def stuck_due_ms(soft: SoftState) -> int | None:
    """When `tell_stuck` has something to record."""
    return min((_stuck_due_ms(soft, name) for name in soft.stuck_untold), default=None)


def _stuck_due_ms(soft: SoftState, name: str) -> int:
    told_at_ms = soft.stuck_told_at_ms.get(name)
    return 0 if told_at_ms is None else told_at_ms + STUCK_PAUSE_MS


def _not_live(turn: Turn, report: Any) -> None:
    if isinstance(report, rep.AttemptReady):
        turn.order(AbandonAttempt(attempt=report.attempt))
    elif isinstance(report, rep.AttemptStarted | rep.AttemptLeaderExited):
        # It runs although its end is on disk: our ledger and the host disagree. Never leave it.
        turn.soft.count("attempts_without_allocation")
        turn.order(StopAttempt(attempt=report.attempt, grace_ms=0))
    elif isinstance(report, rep.AttemptEnded | rep.SpawnFailed):
        turn.order(ForgetAttempt(attempt=report.attempt))


def _ready(turn: Turn, attempt: Attempt, report: rep.AttemptReady) -> None:
    if attempt.phase == "allocated":
        turn.record(
            ev.AttemptBound(at_ms=turn.stamp.at_ms, attempt=attempt.attempt, shim=report.shim)
        )
    if attempt.phase != "bound" or attempt.shim != report.shim:
        return
    if attempt.attempt not in turn.soft.released:
        holds.bind(turn, attempt)
    elif attempt.attempt in turn.soft.release_again:
        _release_again(turn, attempt)


def _release_again(turn: Turn, attempt: Attempt) -> None:
    """Its GO was sent over a link that is lost. If it did not arrive, the world may be another now:
    a freeze, a cancel, somebody else on its devices. If it did, neither order changes anything."""
    name = attempt.attempt
    turn.soft.release_again.discard(name)
    if registry_side.may_go(turn, attempt):
        registry_side.go(turn, name)
    else:
        turn.order(AbandonAttempt(attempt=name))


def _started(turn: Turn, attempt: Attempt, report: rep.AttemptStarted) -> None:
    if attempt.phase == "bound":
        # Known to the launcher and repeated by it: nothing is lost if this is late on disk.
        turn.decision.lazy = True
        turn.record(
            ev.AttemptLaunched(at_ms=report.at_ms, attempt=attempt.attempt, leader=report.leader)
        )
        start_gate.passed(turn.soft, attempt.attempt)
        _end_if_cancelled(turn, attempt)


def _leader_exited(turn: Turn, attempt: Attempt, report: rep.AttemptLeaderExited) -> None:
    if attempt.phase in ("bound", "running"):
        turn.record(
            ev.AttemptExited(
                at_ms=turn.stamp.at_ms,
                attempt=attempt.attempt,
                outcome="exited",
                exit_code=report.exit_code,
                signal=report.signal,
                survivors=len(report.survivors),
            )
        )
        _end_if_cancelled(turn, attempt)


def _end_if_cancelled(turn: Turn, attempt: Attempt) -> None:
    """It runs, as only the launcher knew: a cancel that came before was told to the barrier."""
    job = turn.state.jobs[attempt.job]
    if job.cancel_reason is not None:
        end(turn, attempt, job.cancel_grace_ms)


def _ended(
    turn: Turn,
    attempt: Attempt,
    outcome: Outcome,
    report: rep.AttemptEnded | None,
    detail: str,
    log_tail: str,
    *,
    permanent: bool,
) -> None:
    """The whole tree is gone: release what it held, and end the job or try again."""
    at_ms = _ended_at(turn, attempt, report)
    name = attempt.attempt
    if attempt.phase != "exited":
        turn.record(
            ev.AttemptExited(
                at_ms=at_ms,
                attempt=name,
                outcome=outcome,
                exit_code=report.exit_code if report else None,
                signal=report.signal if report else None,
                errno=report.errno if report else None,
                detail=credentials.redact(detail, turn.secrets_of(attempt.job))[:2000],
            )
        )
    job = turn.state.jobs[attempt.job]
    cut_short = _ended_by_us(job, report)
    # The job first, then what it held: if only a part of this reaches the disk before a power
    # cut, the allocation is still there to be released by the same report.
    lacked = None if report is None else report.lacked
    _tell_gate(turn.soft, attempt, lacked)
    if job.state == "running" and job.attempt == name:
        seen = "" if report is None else report.hint
        end_facts = _End(at_ms, log_tail, permanent, cut_short, lacked is not None, seen)
        _decide_job(turn, job, attempt, end_facts)
    storm.end(turn.soft, attempt, permanent=permanent, cancelled=cut_short)
    turn.record(ev.AllocationReleased(at_ms=at_ms, attempt=name))
    turn.soft.fleet.released(attempt.device_uuids, turn.stamp.mono_ms)
    turn.soft.begun_ms.pop(name, None)
    turn.soft.unlooked.pop(name, None)
    turn.soft.go_held.pop(name, None)
    turn.soft.turned_away.discard(name)
    turn.soft.queue.unpark(job.peer)
    turn.soft.released.discard(name)
    turn.soft.release_again.discard(name)
    turn.soft.launcher_talk.spawned.pop(name, None)
    turn.soft.stuck_untold.pop(name, None)
    turn.soft.stuck_told_at_ms.pop(name, None)
    turn.soft.lingering.pop(name, None)
    if job.work_class != "mature":
        turn.soft.active_non_mature -= 1
    registry_side.release(turn, name)
    turn.order(ForgetAttempt(attempt=name))


class _End(NamedTuple):
    """What is known of an attempt's end beside what the ledger keeps of it."""

    at_ms: int
    log_tail: str
    permanent: bool
    cut_short: bool
    lacking: bool
    seen: str
    """What the launcher saw at the end that may be behind a failure."""


def _tell_gate(soft: SoftState, attempt: Attempt, lacked: str | None) -> None:
    """What the end says of the host: that it lacks something, that it does not, or nothing."""
    name = attempt.attempt
    if lacked is not None and attempt.errno is not None:
        runs_files = lacked == "run_files"
        start_gate.met(soft, name, attempt.errno, attempt.detail, runs_files=runs_files)
    elif attempt.outcome in ("never_ran", "spawn_failed"):
        start_gate.withdraw(soft, name)
    else:
        start_gate.passed(soft, name)


def _ended_at(turn: Turn, attempt: Attempt, report: rep.AttemptEnded | None) -> int:
    """When it ended: by its own record, if that lies between its start and now."""
    now = turn.stamp.at_ms
    if report is None or report.ended_at_ms is None:
        return now
    return min(now, max(report.ended_at_ms, attempt.launched_at_ms or attempt.allocated_at_ms))


def _ended_by_us(job: Job, report: rep.AttemptEnded | None) -> bool:
    """Whether an attempt was cut short: its end was asked for, and nothing says that it had come
    by itself before. What has no record of its end, or never ran, had none."""
    if job.cancel_reason is None:
        return False
    if report is None or report.outcome in ("never_ran", "unknown"):
        return True
    if report.signalled is not None:
        return report.signalled
    # An earlier launcher had it, and may have sent the signal.
    if report.ended_at_ms is None or job.cancel_at_ms is None:
        return True
    return report.ended_at_ms >= job.cancel_at_ms


def _unwanted(turn: Turn, job: Job, late: Refused | None) -> tuple[str, str] | None:
    """Why the job is not to be tried again, as a code and in words."""
    if job.cancel_reason is not None:
        return "cancelled", job.cancel_reason
    if late is not None:
        return late.code, late.detail
    closed = turn.state.closed_reason
    return None if closed is None else ("admission_closed", closed)


def _decide_job(turn: Turn, job: Job, attempt: Attempt, end_facts: _End) -> None:
    """End the job or put it back in the queue."""
    late = generation_refusal(
        job.generation, job.profile, job.work_class, job.eta_ms, turn.state, turn.soft
    )
    unwanted = _unwanted(turn, job, late)
    if unwanted is not None and attempt.outcome == "never_ran":
        # As good as still queued.
        _requeue(turn, job, attempt, "never_ran", consumed=False)
        reject(turn, job, *unwanted, frees_identity=False)
        return
    if attempt.outcome == "never_ran" and attempt.attempt in turn.soft.turned_away:
        _requeue(turn, job, attempt, "room_gone", consumed=False)
        pauses.enter(job, turn.state, turn.soft)
        return
    profile = turn.state.policy.profiles.get(job.profile)
    decision = decide_retry(
        outcome=attempt.outcome or "unknown",
        exit_code=attempt.exit_code,
        permanent=end_facts.permanent,
        retries_used=job.retries_used,
        retries_allowed=turn.state.policy.infrastructure_retries,
        withdrawn_in_a_row=job.withdrawn_in_a_row,
        cut_short=end_facts.cut_short,
        ending=unwanted is not None,
        lacking=end_facts.lacking,
        free=storm.tries_for_others(turn.soft, attempt),
        rerun_lost=profile is not None and profile.on_lost == "requeue",
    )
    if decision.again and decision.reason is not None:
        _requeue(turn, job, attempt, decision.reason, consumed=decision.consumed)
        pauses.enter(job, turn.state, turn.soft)
    else:
        _finish(turn, job, attempt, end_facts, decision.state or "failed", decision.category)


def _requeue(
    turn: Turn,
    job: Job,
    attempt: Attempt,
    reason: Literal["exit_75", "never_ran", "spawn_failed", "host_shortage", "room_gone", "lost"],
    *,
    consumed: bool,
) -> None:
    turn.record(
        ev.JobRequeued(
            at_ms=turn.stamp.at_ms,
            job=job.job,
            attempt=attempt.attempt,
            reason=reason,
            consumed=consumed,
        )
    )


def _finish(
    turn: Turn,
    job: Job,
    attempt: Attempt,
    end_facts: _End,
    state: Literal["completed", "failed", "cancelled", "drained_unknown"],
    category: ev.FailureCategory | None,
) -> None:
    exit_code, signature, hint = attempt.exit_code, None, None
    if attempt.outcome == "exec_failed":
        missing = attempt.errno in (_ENOENT, _ENOTDIR)
        exit_code = _EXIT_NOT_FOUND if missing else _EXIT_NOT_EXECUTABLE
    if state == "failed":
        tail = credentials.redact(end_facts.log_tail, turn.secrets_of(job.job))
        category = category or failure.category(
            attempt.outcome, attempt.exit_code, attempt.signal, attempt.errno
        )
        signature = attempt.detail or failure.telling_line(tail)
        hint = failure.hint(tail, attempt.exit_code, end_facts.seen)
    elif state in ("cancelled", "drained_unknown"):
        signature = attempt.detail or None
    else:
        # First: an end that is on disk is not told again, so its evidence would be lost with the
        # rest of the batch.
        evidence.completed(turn, job)
    turn.record(
        ev.JobFinished(
            at_ms=end_facts.at_ms,
            job=job.job,
            attempt=attempt.attempt,
            state=state,
            exit_code=exit_code if state != "drained_unknown" else None,
            signal=attempt.signal,
            failure_category=category,
            failure_signature=signature[: failure.SIGNATURE_CHARACTERS_MAX] if signature else None,
            failure_hint=hint,
        )
    )
    turn.soft.vault.drop(job.job)


def end(turn: Turn, attempt: Attempt, grace_ms: int) -> None:
    """End a live attempt: at its barrier without running it, else TERM, grace, KILL."""
    never_released = attempt.attempt not in turn.soft.released
    if attempt.phase == "allocated" or (attempt.phase == "bound" and never_released):
        turn.order(AbandonAttempt(attempt=attempt.attempt))
    else:
        turn.order(StopAttempt(attempt=attempt.attempt, grace_ms=grace_ms))
