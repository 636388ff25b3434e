"""What lies in a run's directory of experiments that its ledger does not know: never run again.

A ledger that was repaired, replaced or begun anew lacks attempts that ran, and a launch without a
scheduler was in none. Their files are facts, which the shell gathers (`service.remnants`). What can
be told of an attempt is taken up as if its records were there, and the usual adoption tells its
end. What cannot be told holds its job, and what lives holds its tag and a slot of the run. A number
that a file has is never given again. It looks at nothing. Source: the design's promises 2, 4 and 6.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol import events as ev
from ..protocol.evidence import AttemptCard, Remnant
from ..protocol.ids import attempt_number, job_number, job_of
from ..protocol.requests import SubmitJob
from .leftovers import adopt
from .soft import Pause, SoftState
from .state import BrokerState, Job
from .turn import Refused, Turn
from .withdraw import reject

LOOK_AGAIN_MS = 1_000
"""Before a job whose tag somebody else runs is tried again."""


def unknown(attempts: Iterable[str], state: BrokerState) -> list[str]:
    """Those of these attempts that the ledger does not know, oldest first."""
    found = [name for name in attempts if not _knows(name, state)]
    return sorted(found, key=lambda name: (job_number(job_of(name)), attempt_number(name)))


def _knows(attempt: str, state: BrokerState) -> bool:
    job = state.jobs.get(job_of(attempt))
    return job is not None and attempt_number(attempt) <= job.attempt_counter


def take_note(turn: Turn, remnants: Iterable[Remnant]) -> None:
    """These are all that the ledger did not know at the start, as just looked at."""
    soft, state = turn.soft, turn.state
    soft.remnants = tuple(
        one for one in remnants if one.attempt is None or not _knows(one.attempt, state)
    )
    names = [one.attempt for one in soft.remnants if one.attempt is not None]
    soft.numbers_taken = {*names, *map(job_of, names)}
    for key in [key for key in soft.warnings if key.startswith("on disk ")]:
        del soft.warnings[key]
    for one in soft.remnants:
        soft.warnings[f"on disk {one.attempt or one.pid}"] = _warning(one, state)


def take_up(turn: Turn, job: Job, *, at_start: bool = False) -> bool:
    """Whether a queued job has an attempt on disk that decides what becomes of it: then it does
    not wait. Only the last counts: it followed the end of those before. What cannot be told is gone
    on with by a retry by hand alone."""
    mine = {
        attempt_number(one.attempt): one
        for one in turn.soft.remnants
        if one.attempt is not None and job_of(one.attempt) == job.job
    }
    if not mine or max(mine) <= job.attempt_counter:
        return False
    last = mine[max(mine)]
    if last.shim is None:
        if not at_start and job.requeue_reason is None:
            return False
        detail = (
            f"{last.attempt} is on disk and not in the ledger, and its files do not tell what "
            "became of it; it is not run again by itself"
        )
        reject(turn, job, "attempt_on_disk", detail, frees_identity=False)
    else:
        _allocate(turn, job, last)
    take_note(turn, turn.soft.remnants)
    return True


def _allocate(turn: Turn, job: Job, found: Remnant) -> None:
    """Record what the ledger lacks, up to where adoption goes on."""
    assert found.attempt is not None
    assert found.shim is not None, "told by the caller"
    card = found.card or AttemptCard(attempt=found.attempt)
    turn.soft.queue.remove(job.job)
    turn.record(
        ev.AttemptAllocated(
            at_ms=turn.stamp.at_ms,
            job=job.job,
            attempt=found.attempt,
            device_uuids=card.device_uuids,
            exclusive=card.exclusive,
            memory_mib=card.memory_mib,
            utilization_pct=card.utilization_pct,
        )
    )
    turn.record(ev.AttemptBound(at_ms=turn.stamp.at_ms, attempt=found.attempt, shim=found.shim))
    turn.order(adopt(turn.state.attempts[found.attempt]))
    if found.went:
        turn.soft.released.add(found.attempt)
    if job.work_class != "mature":
        turn.soft.active_non_mature += 1


def check_new_tag(turn: Turn, generation: int, submission: SubmitJob) -> None:
    """Of a submission whose tag no job has. Raises Refused where something on disk has it."""
    holder = _holder(submission.tag, generation, turn.soft)
    if holder is None:
        if submission.retry_terminal:
            raise Refused("retry_without_job", f"no job has the tag {submission.tag!r}")
        return
    if holder.lives or not submission.retry_terminal:
        again = "send it again when that has ended" if holder.lives else (
            "look at its results and its log; to run it again: add --retry-terminal"
        )  # fmt: skip
        raise Refused("tag_held", f"tag {submission.tag!r}: {_words(holder)}", [again])


def hold(turn: Turn, job: Job) -> bool:
    """Whether something that the ledger does not know runs a job's tag now: then it pauses."""
    own = [one for one in turn.soft.remnants if (one.attempt or "").startswith(f"{job.job}.")]
    holder = next((one for one in own if one.lives), None)
    holder = holder or _holder(job.tag, job.generation, turn.soft)
    if holder is None or not holder.lives:
        return False
    until_ms = turn.stamp.mono_ms + LOOK_AGAIN_MS
    turn.soft.pauses[job.job] = Pause(until_ms, f"its tag is held: {_words(holder)}"[:400])
    turn.soft.touched[job.job] = None
    return True


def _holder(tag: str, generation: int, soft: SoftState) -> Remnant | None:
    """Who has a tag: one that lives before one that has ended."""
    found = [
        one
        for one in soft.remnants
        if one.tag == tag
        and one.generation in (None, generation)
        and (one.lives or one.may_have_run)
    ]
    return max(found, key=lambda one: one.lives, default=None)


def _words(one: Remnant) -> str:
    if one.attempt is None:
        return f"process {one.pid}, which was launched without the scheduler, runs it"
    end = "lives" if one.lives else one.end_words
    return f"{one.attempt} is on disk, not in the ledger, and {end}"


def _warning(one: Remnant, state: BrokerState) -> str:
    """What `status` tells of it."""
    if one.attempt is None:
        return f"{_words(one)} (tag {one.tag!r}): it holds its tag and a slot"
    job = state.jobs.get(job_of(one.attempt))
    tag = one.tag if job is None else job.tag
    if tag is None:
        return f"{_words(one)}; its files name no tag, so only its number is held"
    return f"{_words(one)} (tag {tag!r}): it is not run again by itself"
