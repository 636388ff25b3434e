"""Does the caller belong to the attempt that its environment names?

The name is a hint. What counts: this broker's memory of the attempt, the process that the kernel
names for the connection, and the launcher's look at that process's ancestry. Failing any of them,
or an answer in time, the caller is outside, and its launch an ordinary submission. Nothing of this
is kept. Sources: seed 000 "Submission"; the design's promise 9.
"""

from __future__ import annotations

from ..protocol import requests as req
from ..protocol.ids import job_of
from ..protocol.orders import IdentifyCaller
from ..protocol.replies import AttemptValidated, ProgressNoted, Refusal
from ..protocol.reports import CallerIdentified
from . import progress as progress_notes
from .commands import ClientRequest
from .soft import Inquiry, SoftState
from .state import BrokerState
from .turn import Turn, refusal_of

ANSWER_WITHIN_MS = 2_000
INQUIRIES_MAX = 1_000
_LIVE = ("bound", "running", "exited")
"""An evaluator may ask before the report of its start is here: the launcher knows. And it may have
ended while others of the attempt live, which hold its slot and would wait for it in vain."""
INSIDERS_MAX = 10_000


def validate(
    turn: Turn, command: ClientRequest, request: req.ValidateAttempt
) -> AttemptValidated | None:
    """The answer if it is no; None when the launcher must look first."""
    reason = _refuted(turn.state, turn.soft, command, request)
    if reason is not None:
        return _outside(request.attempt, reason)
    _inquire(turn, command, request.attempt)
    return None


def progress(
    turn: Turn, command: ClientRequest, request: req.ReportProgress
) -> ProgressNoted | None:
    """The answer to news of progress; None when the launcher must look first whose they are.

    The evaluator's group is believed by the sender's own word. From any other group the launcher
    looks once whether the process that the kernel names is inside. Raises what `progress.check`
    raises, and `not_yours`.
    """
    attempt = progress_notes.check(turn, request)
    in_group = attempt.leader is None or attempt.leader.pid == request.pgid
    if in_group or (attempt.attempt, command.pid) in turn.soft.insiders:
        return progress_notes.take(turn, attempt, request)
    if not command.pid or len(turn.soft.inquiries) >= INQUIRIES_MAX:
        raise progress_notes.not_inside(request)
    _inquire(turn, command, request.attempt, request)
    return None


def _inquire(
    turn: Turn, command: ClientRequest, attempt: str, news: req.ReportProgress | None = None
) -> None:
    soft = turn.soft
    soft.inquiry_counter += 1
    soft.inquiries[soft.inquiry_counter] = Inquiry(
        address=command.address,
        request_id=command.request_id,
        attempt=attempt,
        pid=command.pid or 0,
        until_ms=turn.stamp.mono_ms + ANSWER_WITHIN_MS,
        news=news,
    )


def _refuted(
    state: BrokerState, soft: SoftState, command: ClientRequest, request: req.ValidateAttempt
) -> str | None:
    attempt = state.attempts.get(request.attempt)
    if attempt is None or attempt.phase not in _LIVE:
        return "that attempt does not run"
    if request.attempt_directory != f"{soft.run_dir}/resource_scheduler/attempts/{request.attempt}":
        return "the directory is not that attempt's"
    if not command.pid:
        return "the kernel names no process for the connection"
    if command.uid != state.jobs[attempt.job].uid:
        return "the attempt is another user's"
    if len(soft.inquiries) >= INQUIRIES_MAX:
        return "too many ask at once"
    return None


def ask(turn: Turn) -> None:
    """At the end of a turn: order the looks that are due, give up what took too long."""
    soft = turn.soft
    for number, inquiry in list(soft.inquiries.items()):
        if turn.stamp.mono_ms >= inquiry.until_ms:
            _answer(turn, number, inside=False, reason="the launcher did not answer in time")
        elif not inquiry.asked and soft.launcher_ready:
            inquiry.asked = True
            turn.order(IdentifyCaller(attempt=inquiry.attempt, pid=inquiry.pid, inquiry=number))


def due_ms(soft: SoftState) -> int | None:
    """When `ask` gives the next one up."""
    return min((inquiry.until_ms for inquiry in soft.inquiries.values()), default=None)


def identified(turn: Turn, report: CallerIdentified) -> None:
    """The launcher has looked."""
    inquiry = turn.soft.inquiries.get(report.inquiry)
    if inquiry is None or inquiry.attempt != report.attempt:
        return  # given up meanwhile
    attempt = turn.state.attempts.get(report.attempt)
    lives = attempt is not None and attempt.phase in _LIVE
    reason = report.detail if lives else "that attempt has ended"
    _answer(turn, report.inquiry, inside=report.inside and lives, reason=reason)


def _answer(turn: Turn, number: int, *, inside: bool, reason: str) -> None:
    inquiry = turn.soft.inquiries.pop(number)
    name = inquiry.attempt
    reply: AttemptValidated | ProgressNoted | Refusal = _outside(name, reason)
    if inquiry.news is not None:
        reply = _of_progress(turn, inquiry, inquiry.news, inside=inside)
    elif inside:
        reply = AttemptValidated(inside=True, attempt=name, job=job_of(name), reason=reason)
    turn.send("client", reply, inquiry.address, inquiry.request_id)


def _of_progress(
    turn: Turn, inquiry: Inquiry, news: req.ReportProgress, *, inside: bool
) -> ProgressNoted | Refusal:
    attempt = turn.state.attempts.get(inquiry.attempt)
    if not inside or attempt is None:
        return refusal_of(progress_notes.not_inside(news))
    insiders = turn.soft.insiders
    insiders.add((inquiry.attempt, inquiry.pid))
    if len(insiders) > INSIDERS_MAX:
        live = turn.state.attempts
        turn.soft.insiders = {one for one in insiders if one[0] in live}
    return progress_notes.take(turn, attempt, news)


def _outside(attempt: str, reason: str) -> AttemptValidated:
    return AttemptValidated(inside=False, attempt=attempt, job=None, reason=reason)
