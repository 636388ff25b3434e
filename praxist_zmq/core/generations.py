"""The life of a generation: opened, assessed, frozen, closed; and which of its work may start.

Assessment is not a close: ordinary work ends, mature work that can still end in time goes on. A
close freezes first; what is queued is rejected on disk before anybody is told, what runs goes on to
publish, and CLOSING_SIGNAL is written only when the freeze is on disk. After a freeze nothing of
the generation starts, whatever timer was due. Source: seed 000 "Timing And Close" and "Mature
Evidence"; the reference of the original system, 3 "Time", 7, 8.
"""

from __future__ import annotations

import math

from ..protocol import events as ev
from ..protocol import requests as req
from ..protocol.orders import WriteClosingSignal
from ..protocol.replies import GenerationReply
from ..protocol.views import GenerationView
from . import leases
from .admission import ALL_FROZEN
from .credentials import refuse_in_plain
from .generation_gate import named, shown_deadline, time_left_ms
from .maturity import advice, maturity, quota_met
from .recall import call_back
from .soft import SoftState
from .state import Attempt, BrokerState, Generation
from .timestamps import rfc3339, timestamp
from .turn import Refused, Turn
from .withdraw import reject

QUORUM_MET = "the mature quorum is met"
NO_DEBT = "no debt of mature evidence is left"
DEADLINE = "the generation has reached its deadline"


# -- requests -------------------------------------------------------------------------------


def open_generation(turn: Turn, request: req.OpenGeneration) -> GenerationReply:
    """Take work for a generation. Opening it again is how a frozen one is run again: what is not
    told of its peers stays as it was, and so does an assessment unless it is a rerun. Raises
    Refused `admission_closed`, `malformed_request`, PraxistError `literal_secret`."""
    state = turn.state
    kept = state.generations.get(request.generation) or Generation(request.generation, 0)
    peers = request.peers or kept.peers
    cohort = request.cohort_size or (len(request.peers) or kept.cohort_size)
    quorum = request.mature_quorum or kept.mature_quorum
    _check_peers(request.peers, cohort, quorum)
    refuse_in_plain("a peer's name", "\0".join(request.peers), {})
    if state.closed_reason not in (None, ALL_FROZEN):
        raise Refused("admission_closed", state.closed_reason or "")
    deadline = None
    if request.deadline_seconds is not None:
        deadline = turn.stamp.at_ms + round(request.deadline_seconds * 1000)
    leases.reopened(turn, request.generation)
    _about_to_open(turn, request.generation)
    assessed = kept.phase == "assessment" and not request.rerun
    reason = kept.reason or ""
    turn.record(
        ev.GenerationOpened(
            at_ms=turn.stamp.at_ms,
            generation=request.generation,
            cohort_size=cohort,
            deadline_at_ms=deadline,
            deadline_mono_ms=mono_deadline(turn, None, deadline),
            mature_quorum=quorum,
            peers=peers,
            publish_completed=request.publish_completed,
            rerun=request.rerun,
        )
    )
    if assessed:
        turn.record(
            ev.GenerationAssessed(
                at_ms=turn.stamp.at_ms, generation=request.generation, reason=reason
            )
        )
    leases.superseded(turn)
    return _reply(turn, state.generations[request.generation])


def _check_peers(peers: tuple[str, ...], cohort: int | None, quorum: int | None) -> None:
    if len(set(peers)) < len(peers):
        raise Refused("malformed_request", "a peer is named twice")
    if quorum is not None and cohort is not None and quorum > cohort:
        raise Refused(
            "malformed_request",
            f"a cohort of {cohort} cannot meet a quorum of {quorum} distinct mature peers",
        )


def _about_to_open(turn: Turn, number: int) -> None:
    """Admission first: of a batch that reaches the disk in part, no more than an open admission
    may be left, and whoever opens the generation does so again."""
    turn.soft.deadlines_ms.pop(number, None)
    turn.send("files", WriteClosingSignal(generation=number, present=False))
    if turn.state.closed_reason == ALL_FROZEN:
        turn.record(ev.AdmissionOpened(at_ms=turn.stamp.at_ms, reason="a generation was opened"))


def open_at_start(turn: Turn, number: int, *, known: bool) -> None:
    """`up` named a generation: a new one is open from now on, one that had ended is run again.

    A deadline that has passed is not kept: it would end the generation before anything ran.
    """
    found = turn.state.generations[number]
    if known and found.phase in ("open", "assessment"):
        return
    deadline = None if _past_deadline(turn, found) else found.deadline_at_ms
    _about_to_open(turn, number)
    turn.record(
        ev.GenerationOpened(
            at_ms=turn.stamp.at_ms,
            generation=number,
            cohort_size=found.cohort_size,
            deadline_at_ms=deadline,
            deadline_mono_ms=mono_deadline(turn, number, deadline),
            mature_quorum=found.mature_quorum,
            peers=found.peers,
            publish_completed=found.publish_completed,
            rerun=known,
        )
    )
    leases.superseded(turn)


def mono_deadline(turn: Turn, number: int | None, deadline_at_ms: int | None) -> int | None:
    """A deadline by CLOCK_BOOTTIME. That of generation `number` stays where it was, whatever the
    wall clock has done since it was set in this boot."""
    found = None if number is None else turn.state.generations.get(number)
    if deadline_at_ms is None:
        return None
    if found is not None and found.deadline_at_ms == deadline_at_ms and _of_boot(turn, found):
        return found.deadline_mono_ms
    return turn.stamp.mono_ms + deadline_at_ms - turn.stamp.at_ms


def resume_deadlines(turn: Turn) -> None:
    """After a restart in the same boot a deadline is where it was; after another boot only the wall
    clock can tell."""
    for found in turn.state.generations.values():
        if found.deadline_mono_ms is not None and _of_boot(turn, found):
            turn.soft.deadlines_ms[found.number] = found.deadline_mono_ms


def _of_boot(turn: Turn, found: Generation) -> bool:
    return found.deadline_mono_ms is not None and found.deadline_boot_id == turn.state.boot_id


def assess(turn: Turn, request: req.AssessGeneration) -> GenerationReply:
    """Take only mature work; where the evidence is there already, freeze at once. Of a frozen
    generation it changes nothing."""
    found = named(turn.state, request.generation)
    rejected: list[str] = []
    if found.phase == "open":
        turn.record(
            ev.GenerationAssessed(
                at_ms=turn.stamp.at_ms,
                generation=found.number,
                reason=turn.redacted(request.reason),
            )
        )
        rejected = _reject_queue(turn, found, "generation_assessment", only_ordinary=True)
        call_back(turn)
        if quota_met(found, turn.state):
            rejected += freeze_one(turn, found, _enough(found), signal=True)
    return _reply(turn, found, rejected)


def _enough(found: Generation) -> str:
    """Why an assessment is over: its quorum where it has one, else its debt."""
    return NO_DEBT if found.mature_quorum is None else QUORUM_MET


def freeze(turn: Turn, request: req.FreezeGeneration) -> GenerationReply:
    """Start nothing more of one generation, or of all and of the run."""
    state, reason = turn.state, turn.redacted(request.reason)
    if request.generation is not None:
        found = named(state, request.generation)
        return _reply(turn, found, freeze_one(turn, found, reason, request.signal))
    rejected = []
    if state.closed_reason is None:
        turn.record(ev.AdmissionClosed(at_ms=turn.stamp.at_ms, reason=ALL_FROZEN))
    for found in list(state.generations.values()):
        rejected += freeze_one(turn, found, reason, request.signal)
    return _reply(turn, named(state, None), rejected)


def freeze_one(turn: Turn, found: Generation, reason: str, signal: bool) -> list[str]:
    """The freeze itself; the rejected jobs. Again, it only adds the signal."""
    if found.phase not in ("frozen", "closed") or (signal and not found.signal):
        turn.record(
            ev.GenerationFrozen(
                at_ms=turn.stamp.at_ms,
                generation=found.number,
                reason=reason[:1000] or "frozen",
                signal=signal,
            )
        )
    rejected = _reject_queue(turn, found, "generation_closing", only_ordinary=False)
    call_back(turn)  # their jobs are rejected when their shims have said that nothing ran
    if found.signal:
        turn.send("files", WriteClosingSignal(generation=found.number, present=True))
    return rejected


def show(turn: Turn, request: req.ShowGeneration) -> GenerationReply:
    """One generation."""
    return _reply(turn, named(turn.state, request.generation))


# -- what follows by itself -------------------------------------------------------------------


def advance(turn: Turn) -> None:
    """Once a turn: deadlines, quorums that are met, generations that have drained."""
    state = turn.state
    for found in list(state.generations.values()):
        if found.phase in ("open", "assessment") and _past_deadline(turn, found):
            freeze_one(turn, found, DEADLINE, signal=True)
        elif found.phase == "assessment" and quota_met(found, state):
            freeze_one(turn, found, _enough(found), signal=True)
        if found.phase == "frozen" and _has_drained(found, state):
            turn.record(ev.GenerationClosed(at_ms=turn.stamp.at_ms, generation=found.number))


def resume(turn: Turn) -> None:
    """After a restart: what a freeze or an assessment may not have got to is done again."""
    if turn.state.closed_reason == ALL_FROZEN:
        for found in list(turn.state.generations.values()):
            if found.phase in ("open", "assessment"):
                freeze_one(turn, found, ALL_FROZEN, signal=False)
    for found in turn.state.generations.values():
        if found.phase == "assessment":
            _reject_queue(turn, found, "generation_assessment", only_ordinary=True)
        elif found.phase != "open":
            _reject_queue(turn, found, "generation_closing", only_ordinary=False)
        if found.signal:
            turn.send("files", WriteClosingSignal(generation=found.number, present=True))


def signal_seen(turn: Turn, generation: int, name: str) -> None:
    """A close or stop file of the generation is there, whoever wrote it: that freezes it."""
    found = turn.state.generations.get(generation)
    if found is not None and found.phase in ("open", "assessment"):
        freeze_one(turn, found, f"{name} is there", signal=False)


def deadline_due_ms(state: BrokerState, soft: SoftState) -> int | None:
    """When the next deadline is due."""
    due = [
        soft.deadlines_ms[found.number]
        for found in state.generations.values()
        if found.phase in ("open", "assessment") and found.number in soft.deadlines_ms
    ]
    return None if not due else math.ceil(min(due))


def _past_deadline(turn: Turn, found: Generation) -> bool:
    left_ms = time_left_ms(found, turn.soft)
    return left_ms is not None and left_ms <= 0


def _has_drained(found: Generation, state: BrokerState) -> bool:
    """Nothing of it waits, runs, or is held: a job may be over while its allocation is not, where
    the record of the release was cut off."""
    return not (
        found.counts["running"]
        or found.counts["queued"]
        or any(state.jobs[each.job].generation == found.number for each in state.attempts.values())
    )


def _at_barrier(turn: Turn, found: Generation) -> list[Attempt]:
    """Attempts that have an allocation and were not told to go."""
    state = turn.state
    return [
        attempt
        for attempt in state.attempts.values()
        if attempt.phase in ("allocated", "bound")
        and attempt.attempt not in turn.soft.released
        and state.jobs[attempt.job].generation == found.number
    ]


def _reject_queue(turn: Turn, found: Generation, code: str, *, only_ordinary: bool) -> list[str]:
    """Reject what waits, durably, before anybody is told."""
    rejected = []
    what = "" if only_ordinary else " is frozen"
    detail = f"generation {found.number}{what}: {found.reason}"
    for job in list(turn.state.jobs.values()) if found.counts["queued"] else ():
        if job.generation != found.number or job.state != "queued":
            continue
        if only_ordinary and job.work_class == "mature":
            continue
        reject(turn, job, code, detail, frees_identity=False)
        rejected.append(job.job)
    return rejected


# -- views ------------------------------------------------------------------------------------


def _reply(turn: Turn, found: Generation, rejected: list[str] | None = None) -> GenerationReply:
    waiting = {attempt.attempt for attempt in _at_barrier(turn, found)}
    draining = tuple(
        attempt.job
        for attempt in turn.state.attempts.values()
        if turn.state.jobs[attempt.job].generation == found.number
        and attempt.attempt not in waiting
    )
    return GenerationReply(
        generation=view(found, turn.state, turn.soft),
        rejected=tuple(rejected or ()),
        draining=draining if found.phase in ("frozen", "closed") else (),
    )


def view(found: Generation, state: BrokerState, soft: SoftState) -> GenerationView:
    """A generation as readers see it."""
    figures = maturity(found, state, state.leases.mature_peers(found.number))
    return GenerationView(
        generation=found.number,
        state=found.phase,  # type: ignore[arg-type]
        reason=found.reason,
        opened_at=timestamp(found.opened_at_ms),
        deadline=rfc3339(shown_deadline(found, soft)),
        cohort_size=found.cohort_size,
        mature_quorum=found.mature_quorum,
        publish_completed=found.publish_completed,
        jobs=dict(found.counts),
        attempts=found.attempts,
        results=len(found.results),
        maturity=figures,
        advice=advice(found, figures.target),
    )
