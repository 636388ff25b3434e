"""What would let a waiting job start, and when: each thing is tried on a copy of the run.

Single events first (an end of a running job, less foreign load, the end of a pressure, a step of
the limit); if no end alone is enough, the ends in the order in which they are expected, those of
jobs that start meanwhile too, after what has to happen first. Times are medians and 90 % of the
learnt run times, and unknown where one on the way is unknown. Bounded, so that a question costs
milliseconds whatever runs here.
Source: the reference of the commands (`explain`, "WOULD START"); seed 000 (calibrated run times).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..protocol.views import StartEstimate, WouldStart
from .concurrency import rise_marks
from .demand import demand_of
from .devices import external_words
from .openings import Opening, devices_become_known, openings, pressed
from .reservation import DEPARTURE_SHARE, expected_end_ms
from .run_names import run_words
from .shortage import device_name, gib
from .soft import SoftState
from .start_gate import disk_words, shortage_words
from .state import BrokerState, Job
from .storm import place_name
from .survey import Look, look_round
from .what_if import WhatIf

ENTRIES_MAX = 8
DEPARTURES_MAX = 64
DEVICE_LOOKS, REPLAYS_MIN, REPLAYS_MAX = 512, 12, 128
SURE_SHARE = 0.9
NAMES_SHOWN = 6
PRUNED_MAX = 8
"""A longer sequence of ends is told as it is: to look for a shorter one costs too much."""
NEXT_SAMPLE_S, NEXT_SAMPLE_BY_S = 1.0, 2.0


@dataclass(slots=True)
class _Budget:
    """How often admission may still be replayed for one question."""

    left: int
    cut: str = ""
    """The ends, in words, after which a replay was given up with more of them to come."""

    @classmethod
    def of(cls, devices: int) -> _Budget:
        """A replay looks at every device, so the more there are, the fewer."""
        return cls(min(REPLAYS_MAX, max(REPLAYS_MIN, DEVICE_LOOKS // max(1, devices))))

    def spend(self) -> bool:
        """One more, if there is one."""
        self.left -= 1
        return self.left >= 0


@dataclass(frozen=True, slots=True)
class _Departure:
    """A job that ends; CLOCK_BOOTTIME milliseconds, infinite is unknown."""

    job: str
    likely_ms: float
    by_ms: float


def would_start(job: Job, state: BrokerState, soft: SoftState) -> tuple[WouldStart, ...]:
    """What would let a queued job start, likeliest first. Empty when it is being started, and
    when nothing that can be foreseen would."""
    budget = _Budget.of(len(soft.fleet.devices))
    held = _gate_opens(soft) or _pause_ends(job, soft) or devices_become_known(job, state, soft)
    if held is not None:
        return (held,)
    if soft.fleet.released_at_ms or soft.begun_ms:
        fresh = WhatIf(state, soft, looked=True)
        if _starts(fresh, job, budget):
            event = "the next sample of the host shows what has begun and what has left"
            return (
                WouldStart(event=event, job=None, likely_s=NEXT_SAMPLE_S, by_s=NEXT_SAMPLE_BY_S),
            )
    singles = _Budget(budget.left // 2)
    found = _ends(job, state, soft, singles)
    budget.left -= budget.left // 2
    other = [
        *_ends_of_other_runs(job, state, soft, budget),
        *_external_falls(job, state, soft, budget),
        *_pressure_ends(job, state, soft, budget),
        *_limit_rises(job, state, soft, budget),
        *_rests_end(job, state, soft, budget),
    ]
    if not found:
        found = _sequence(job, state, soft, budget, None)
    if not found and not other:
        tried = (
            _sequence(job, state, soft, budget, opening) for opening in openings(job, state, soft)
        )
        found = next(filter(None, tried), [])
    if not found and not other and budget.cut:
        found = [_unforeseen(f"{budget.cut}, and more of those ahead of it after that")]
    found.sort(key=lambda entry: math.inf if entry.likely_s is None else entry.likely_s)
    room_for_others = min(len(other), ENTRIES_MAX // 2)
    return (*found[: ENTRIES_MAX - room_for_others], *other)[:ENTRIES_MAX]


def estimate(entries: Sequence[WouldStart]) -> StartEstimate | None:
    """When the first of these is expected; None when no time is known."""
    likely = [entry.likely_s for entry in entries if entry.likely_s is not None]
    by = [entry.by_s for entry in entries if entry.by_s is not None]
    if not likely:
        return None
    return StartEstimate(likely_s=min(likely), by_s=min(by, default=None))


def _starts(what_if: WhatIf, job: Job, budget: _Budget) -> bool:
    return what_if.might_start(job) and budget.spend() and job.job in what_if.started()


def _departures(job: Job, state: BrokerState, soft: SoftState) -> list[_Departure]:
    """Our running jobs by their expected end; those that are unknown come last. Of those that are
    expected at once the peer's own come first: they may be what keeps it at its cap."""
    found = [
        _Departure(
            attempt.job,
            expected_end_ms(attempt, state, soft, DEPARTURE_SHARE),
            expected_end_ms(attempt, state, soft, SURE_SHARE),
        )
        for attempt in state.attempts.values()
    ]
    found.sort(key=lambda one: (one.likely_ms, state.jobs[one.job].peer != job.peer))
    return found[:DEPARTURES_MAX]


def _ends(job: Job, state: BrokerState, soft: SoftState, budget: _Budget) -> list[WouldStart]:
    """Every end of one running job that is enough."""
    found = []
    for departure in _departures(job, state, soft):
        what_if = WhatIf(state, soft, looked=True)
        what_if.end(departure.job)
        if _starts(what_if, job, budget):
            where = _where(state.jobs[departure.job], soft)
            found.append(_entry(f"{departure.job} ends{where}", departure, soft))
            if len(found) == ENTRIES_MAX:
                break
    return found


def _where(job: Job, soft: SoftState) -> str:
    devices = [soft.fleet.devices[uuid] for uuid in job.device_uuids if uuid in soft.fleet.devices]
    if not devices:
        return ""
    return f" on GPU {', '.join(str(device.index) for device in devices[:NAMES_SHOWN])}"


def _entry(
    event: str, last: _Departure, soft: SoftState, after: tuple[str, ...] = ()
) -> WouldStart:
    return WouldStart(
        event=event[:500],
        job=last.job,
        after=after,
        likely_s=_seconds(last.likely_ms, soft),
        by_s=_seconds(last.by_ms, soft),
    )


def _seconds(at_ms: float, soft: SoftState) -> float | None:
    return None if math.isinf(at_ms) else max(0.0, at_ms - soft.now_ms) / 1000


# -- several ends ----------------------------------------------------------------------------


def _sequence(
    job: Job, state: BrokerState, soft: SoftState, budget: _Budget, opening: Opening | None
) -> list[WouldStart]:
    """The ends that are needed one after another, those of jobs that start meanwhile included.
    `opening`: what happens before them."""
    chain = _replay(job, state, soft, opening, None, budget)
    if chain is None:
        return []
    if not chain:  # it needs no end at all
        words = "the next sample of the host comes" if opening is None else opening.words
        at_ms = soft.now_ms + NEXT_SAMPLE_S * 1000 if opening is None else opening.at_ms
        seconds = _seconds(at_ms, soft)
        return [WouldStart(event=words[:500], job=None, likely_s=seconds, by_s=None)]
    if len(chain) <= PRUNED_MAX:
        chain = _pruned(chain, job, state, soft, budget, opening)
    names = [departure.job for departure in chain]
    event = _in_words(names) if opening is None else f"{opening.words}, then {_in_words(names)}"
    return [_entry(event, chain[-1], soft, tuple(names[:-1]))]


def _replay(
    job: Job,
    state: BrokerState,
    soft: SoftState,
    opening: Opening | None,
    only: Sequence[str] | None,
    budget: _Budget,
) -> list[_Departure] | None:
    """The ends up to the one with which the job starts, each with the time by which all before it
    have happened too; None when it does not start. `only`: exactly these, in this order."""
    what_if = WhatIf(state, soft, looked=True)
    likely_ms = by_ms = float(soft.now_ms)
    if opening is not None:
        opening.happen(what_if)
        likely_ms = by_ms = max(likely_ms, opening.at_ms)
    waiting = _departures(job, state, soft)
    if only is not None:
        known = {departure.job: departure for departure in waiting}
        waiting = [known[name] for name in only if name in known]
    gone: list[_Departure] = []
    while True:
        for name in what_if.started():
            if name == job.job:
                return gone
            if only is None or name in only:
                waiting.append(_started_at(state.jobs[name], state, likely_ms, by_ms))
        if not waiting:
            return None
        if len(gone) >= DEPARTURES_MAX or not budget.spend():
            first = "" if opening is None else f"{opening.words}, then "
            budget.cut = budget.cut or first + _in_words([one.job for one in gone or waiting[:1]])
            return None
        if only is None:
            waiting.sort(key=lambda departure: departure.likely_ms)
        else:
            waiting.sort(key=lambda departure: only.index(departure.job))
        departure = waiting.pop(0)
        likely_ms = max(likely_ms, departure.likely_ms)
        by_ms = max(by_ms, departure.by_ms)
        what_if.end(departure.job)
        gone.append(_Departure(departure.job, likely_ms, by_ms))


def _started_at(job: Job, state: BrokerState, likely_ms: float, by_ms: float) -> _Departure:
    """The end of a job that starts then."""
    time = state.calibration.run_time(job.profile, job.eta_ms)
    if time is None:
        return _Departure(job.job, math.inf, math.inf)
    return _Departure(
        job.job,
        likely_ms + time.remaining_ms(0, DEPARTURE_SHARE),
        by_ms + time.remaining_ms(0, SURE_SHARE),
    )


def _pruned(
    chain: list[_Departure],
    job: Job,
    state: BrokerState,
    soft: SoftState,
    budget: _Budget,
    opening: Opening | None,
) -> list[_Departure]:
    """The same without the ends that make no difference."""
    for departure in chain[:-1]:
        rest = [other.job for other in chain if other.job != departure.job]
        shorter = _replay(job, state, soft, opening, rest, budget)
        if shorter:
            chain = shorter
    return chain


def _in_words(names: Sequence[str]) -> str:
    """`j-1 ends`, `j-1, then j-2 end`."""
    if len(names) == 1:
        return f"{names[0]} ends"
    shown = list(names)
    if len(names) > NAMES_SHOWN:
        shown = [*names[: NAMES_SHOWN - 1], f"{len(names) - NAMES_SHOWN} more", names[-1]]
    return f"{', then '.join(shown)} end"


# -- other events ----------------------------------------------------------------------------


def _unforeseen(event: str) -> WouldStart:
    return WouldStart(event=event[:500], job=None, likely_s=None, by_s=None)


def _ends_of_other_runs(
    job: Job, state: BrokerState, soft: SoftState, budget: _Budget
) -> list[WouldStart]:
    """Every end of an attempt of another run that is enough."""
    view = soft.host_view
    if view is None:
        return []
    others = [row for row in view.allocations if row.run_key != soft.run_key]
    found = []
    for row in others[:DEPARTURES_MAX]:
        what_if = WhatIf(state, soft, looked=True)
        what_if.end_of_another_run(row.run_key, row.attempt)
        if _starts(what_if, job, budget):
            run = run_words(view, row.run_key)
            found.append(_unforeseen(f"attempt {row.attempt} of run {run} ends"))
            if len(found) == ENTRIES_MAX:
                break
    return found


def _external_falls(
    job: Job, state: BrokerState, soft: SoftState, budget: _Budget
) -> list[WouldStart]:
    """Every device on which less foreign load is enough."""
    profile = state.policy.profiles.get(job.profile)
    if profile is None or profile.accelerator == "cpu":
        return []
    found = []
    for look in look_round(demand_of(profile), state, soft):
        event = _fall(look)
        if event is None:
            continue
        what_if = WhatIf(state, soft, looked=True)
        uuid = look.load.sample.uuid
        if look.room.not_quiet:
            what_if.quiet_external(uuid)
        else:
            memory, busy = look.room.memory_short_mib, look.room.utilization_short_pct
            what_if.lower_external(uuid, memory, busy)
        if _starts(what_if, job, budget):
            found.append(_unforeseen(event))
            if len(found) == ENTRIES_MAX:
                break
    return found


def _fall(look: Look) -> str | None:
    """By how much foreign load would have to fall, in words; None when that cannot help."""
    load, verdict = look.load, look.room
    memory, busy = load.external_memory_mib or 0, load.external_utilization_pct or 0.0
    if verdict.unusable is not None or verdict.held_alone or (load.holdings and verdict.alone):
        return None
    who = "; ".join(external_words(load.external)[:3])
    who = f" ({who})" if who else ""
    name = device_name(look)
    if verdict.not_quiet:
        return f"external use of {name} ends{who}"
    short_mib, short_pct = verdict.memory_short_mib, verdict.utilization_short_pct
    if not (short_mib or short_pct) or short_mib > memory or short_pct > busy:
        return None
    falls = [f"load on {name} falls by {short_pct:g}"] if short_pct else []
    falls += [f"memory on {name} falls by {gib(short_mib)}"] if short_mib else []
    return f"external {' and external '.join(falls)}{who}"


def _pressure_ends(
    job: Job, state: BrokerState, soft: SoftState, budget: _Budget
) -> list[WouldStart]:
    words = pressed(job, state, soft)
    if not words:
        return []
    what_if = WhatIf(state, soft, looked=True)
    what_if.end_pressure()
    return [_unforeseen(words)] if _starts(what_if, job, budget) else []


def _gate_opens(soft: SoftState) -> WouldStart | None:
    """What ends a lack of the host's, which holds every job."""
    if disk_words(soft) is not None:
        return _unforeseen("room is made on the run's disk")
    if soft.shortage is None or shortage_words(soft) is None:
        return None
    if soft.shortage.trial is not None:
        return _unforeseen(f"{soft.shortage.trial}, which tries whether the host has it, starts")
    seconds = (soft.shortage.until_ms - soft.now_ms) / 1000
    event = "an attempt tries whether the host has what it lacked"
    return WouldStart(event=event, job=None, likely_s=seconds, by_s=None)


def _pause_ends(job: Job, soft: SoftState) -> WouldStart | None:
    """The end of the job's own pause before it is tried again."""
    pause = soft.pauses.get(job.job)
    if pause is None:
        return None
    seconds = max(0, pause.until_ms - soft.now_ms) / 1000
    event = "the pause before its next attempt is over"
    return WouldStart(event=event, job=None, likely_s=seconds, by_s=None)


def _rests_end(job: Job, state: BrokerState, soft: SoftState, budget: _Budget) -> list[WouldStart]:
    """The end of the rests that storms brought; the one that is over first is told."""
    resting = [(rest.until_ms, key) for key, rest in soft.storms.rests.items() if not rest.is_open]
    if not resting:
        return []
    what_if = WhatIf(state, soft, looked=True)
    what_if.end_rests()
    if not _starts(what_if, job, budget):
        return []
    until_ms, key = min(resting)
    rest = soft.storms.rests[key]
    if rest.trial is not None:
        return [
            _unforeseen(f"{rest.trial}, which tries {place_name(soft, key)}, goes on or ends well")
        ]
    seconds = max(0, until_ms - soft.now_ms) / 1000
    event = f"the rest of {place_name(soft, key)} is over"
    return [WouldStart(event=event[:500], job=None, likely_s=seconds, by_s=None)]


def _limit_rises(
    job: Job, state: BrokerState, soft: SoftState, budget: _Budget
) -> list[WouldStart]:
    policy = state.policy
    if state.limit >= policy.max_concurrent_experiments:
        return []
    what_if = WhatIf(state, soft, looked=True)
    what_if.raise_limit()
    if not _starts(what_if, job, budget):
        return []
    marks = rise_marks(state, soft)
    event = f"the limit rises from {state.limit} to {state.limit + 1}"
    return [_unforeseen(f"{event} ({marks})" if marks else event)]
