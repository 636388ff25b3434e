"""A storm of quick 75s pauses the profile or the device that is at fault, and raises one alarm.

An attempt that ends with 75 is retried by itself. Where everything that is placed ends so at once
(a licence server is away, a device refuses every context), each job would spend its retries in
seconds and fail. So after a few such ends in a row the placement rests; then one attempt tries it.
If that one ends quickly with 75 too, the rest is twice as long; any other end, or a trial that goes
on, is the end of it. Source: design 5; the numbers are ours, after the supervisor's limit of five
restarts.
"""

from __future__ import annotations

from typing import Literal

from ..protocol.views import Blocker
from .retry import EXIT_TEMPORARY
from .soft import SoftState
from .state import Attempt, BrokerState
from .storm_memory import Begun, PlaceKey, QuickEnd, QuickFailures, Rest

QUICK_MS = 10_000
"""From the plan to the end. What ran for longer has met more than its placement."""
STORM_ENDS = 5
"""Quick ends in a row, with no other end between them, that are a storm."""
STORM_JOBS = 2
"""Of as many jobs at least: one job that always ends so is its own fault."""
STORM_WINDOW_MS = 60_000
ROW_MAX = 16
PAUSE_MS, PAUSE_MAX_MS = 30_000, 600_000
FREE_TRIALS = 10
"""So often may one job try a placement at no cost to itself."""
PLACES_SHOWN = 4
FAILING_JOBS = 5
FAILING_TOLD_MS = 900_000

Lesson = Literal["quick", "good", "nothing"]


def begin(soft: SoftState, attempt: str, begun: Begun) -> None:
    """An attempt was planned. If it is placed where a rest is over, it is the one that tries."""
    soft.storms.begun[attempt] = begun
    for key in begun.keys:
        rest = soft.storms.rests.get(key)
        if rest is not None and rest.is_open:
            rest.is_open, rest.trial = False, attempt
            rest.tried[begun.job] = rest.tried.get(begun.job, 0) + 1
            _changed(soft, key)


def tries_for_others(soft: SoftState, attempt: Attempt) -> bool:
    """Whether an attempt tries a placement that others wait for too: what it meets there is no
    fault of its job, and costs it no retry. A job that always ends so does not go on for ever."""
    return any(
        rest.trial == attempt.attempt and rest.tried.get(attempt.job, 0) <= FREE_TRIALS
        for rest in soft.storms.rests.values()
    )


def withdraw(soft: SoftState, attempt: str) -> None:
    """The plan came to nothing, and tells nothing."""
    if soft.storms.begun.pop(attempt, None) is not None:
        _untried(soft, attempt)


def end(soft: SoftState, attempt: Attempt, *, permanent: bool, cancelled: bool) -> None:
    """An attempt ended: learn from it."""
    begun = soft.storms.begun.pop(attempt.attempt, None)
    if begun is None:  # begun by a broker before this one: how quick it was is not known
        return
    _note_failure(soft, attempt, begun, cancelled=cancelled)
    lesson = _lesson(soft, attempt, begun, permanent=permanent, cancelled=cancelled)
    if lesson == "good":
        _is_well(soft, begun)
    elif lesson == "quick":
        _ended_quickly(soft, attempt.attempt, begun)
    else:
        _untried(soft, attempt.attempt)


def _lesson(
    soft: SoftState, attempt: Attempt, begun: Begun, *, permanent: bool, cancelled: bool
) -> Lesson:
    """What an end says of the placement."""
    if cancelled or permanent or attempt.outcome in ("never_ran", "unknown", "exec_failed"):
        return "nothing"
    temporary = attempt.outcome == "spawn_failed" or attempt.exit_code == EXIT_TEMPORARY
    return "quick" if temporary and soft.now_ms - begun.at_ms < QUICK_MS else "good"


def _note_failure(soft: SoftState, attempt: Attempt, begun: Begun, *, cancelled: bool) -> None:
    """Jobs that fail quickly, one after the other, by a code of their own: nothing is paused for
    it, but it is told, for something behind all of them is likely."""
    failing = soft.storms.failing
    if cancelled or attempt.outcome not in ("exited", "exec_failed"):
        return
    if attempt.outcome == "exited" and attempt.exit_code == EXIT_TEMPORARY:
        return
    quick = soft.now_ms - begun.at_ms < QUICK_MS
    if not quick or (attempt.outcome == "exited" and attempt.exit_code == 0):
        failing.pop(begun.profile, None)
        return
    before = failing.get(begun.profile)
    jobs = () if before is None else tuple(job for job in before.jobs if job != begun.job)
    failing[begun.profile] = QuickFailures((*jobs, begun.job)[-ROW_MAX:], soft.now_ms)


def failing_alarm(soft: SoftState) -> str | None:
    """That all jobs of a profile fail at once by something else than 75; None when none do."""
    told = [
        f"profile {name}: {len(found.jobs)} different jobs in a row failed in less than "
        f"{QUICK_MS // 1000} s each; read one: praxist-zmq logs {found.jobs[-1]}"
        for name, found in soft.storms.failing.items()
        if len(found.jobs) >= FAILING_JOBS and soft.now_ms < found.at_ms + FAILING_TOLD_MS
    ]
    return f"FAILING QUICKLY  {'; '.join(told[:PLACES_SHOWN])}" if told else None


def _is_well(soft: SoftState, begun: Begun) -> None:
    for key in begun.keys:
        soft.storms.rows.pop(key, None)
        _lift(soft, key)


def _ended_quickly(soft: SoftState, attempt: str, begun: Begun) -> None:
    storms = soft.storms
    for key in begun.keys:
        row = [end for end in storms.rows.get(key, ()) if _recent(soft, end)][1 - ROW_MAX :]
        storms.rows[key] = [*row, QuickEnd(begun, soft.now_ms)]
        rest = storms.rests.get(key)
        if rest is None:
            continue
        rest.ends += 1
        if rest.trial == attempt or rest.is_open:
            pause_ms = min(PAUSE_MAX_MS, 2 * rest.pause_ms)
            rest.pause_ms, rest.until_ms = pause_ms, soft.now_ms + pause_ms
            rest.is_open, rest.trial = False, None
            _changed(soft, key)
    _blame(soft, begun)


def _recent(soft: SoftState, end: QuickEnd) -> bool:
    return soft.now_ms - end.at_ms < STORM_WINDOW_MS


def _is_storm(row: list[QuickEnd]) -> bool:
    return len(row) >= STORM_ENDS and len({end.of.job for end in row}) >= STORM_JOBS


def _blame(soft: SoftState, begun: Begun) -> None:
    """Pause what is at fault: the devices that all ends of the profile have in common, while there
    are others to go to; else the profile. A device also where its profiles do well elsewhere."""
    storms = soft.storms
    profile = PlaceKey("profile", begun.profile)
    row = storms.rows[profile]
    if profile not in storms.rests and _is_storm(row):
        common = set(row[0].of.uuids).intersection(*(end.of.uuids for end in row))
        suspects = {uuid for uuid in common if _is_storm(storms.rows[PlaceKey("device", uuid)])}
        if suspects and set(soft.fleet.devices) - suspects:
            for uuid in suspects:
                _pause(soft, PlaceKey("device", uuid))
            return
        _pause(soft, profile)
        for uuid in {uuid for end in row for uuid in end.of.uuids}:
            if _only_of(soft, uuid, begun.profile):
                _lift(soft, PlaceKey("device", uuid))  # it was not the device
        return
    for uuid in begun.uuids:
        device = PlaceKey("device", uuid)
        of_the_profile = profile in storms.rests and _only_of(soft, uuid, begun.profile)
        if _is_storm(storms.rows[device]) and not of_the_profile:
            _pause(soft, device)


def _only_of(soft: SoftState, uuid: str, profile: str) -> bool:
    """Whether all that ended quickly on a device was of one profile."""
    row = soft.storms.rows.get(PlaceKey("device", uuid), [])
    return all(end.of.profile == profile for end in row)


def _pause(soft: SoftState, key: PlaceKey) -> None:
    if key in soft.storms.rests:
        return
    ends = len(soft.storms.rows[key])
    soft.storms.rests[key] = Rest(ends, PAUSE_MS, soft.now_ms + PAUSE_MS)
    soft.count("storms")
    _changed(soft, key)


def _lift(soft: SoftState, key: PlaceKey) -> None:
    if soft.storms.rests.pop(key, None) is not None:
        _changed(soft, key)


def _untried(soft: SoftState, attempt: str) -> None:
    """What an attempt was to try is still to be tried."""
    for key, rest in soft.storms.rests.items():
        if rest.trial == attempt:
            rest.is_open, rest.trial = True, None
            _changed(soft, key)


def _changed(soft: SoftState, key: PlaceKey) -> None:
    if key.kind == "device":
        soft.fleet.changed((key.name,))


def advance(state: BrokerState, soft: SoftState) -> None:
    """Open what has rested for long enough; end the rests whose trial goes on."""
    storms = soft.storms
    for key, rest in list(storms.rests.items()):
        if rest.trial is not None:
            attempt, begun = state.attempts.get(rest.trial), storms.begun[rest.trial]
            runs = attempt is not None and attempt.phase == "running"
            if runs and soft.now_ms >= begun.at_ms + QUICK_MS:
                _is_well(soft, begun)
        elif not rest.is_open and soft.now_ms >= rest.until_ms:
            rest.is_open = True
            _changed(soft, key)
        elif rest.is_open and soft.now_ms >= rest.until_ms + PAUSE_MAX_MS:
            del storms.rests[key]  # nothing came to try it: forget how long it was


def due_ms(state: BrokerState, soft: SoftState) -> int | None:
    """When `advance` has something to do."""
    due = []
    for rest in soft.storms.rests.values():
        if rest.trial is not None:
            due.append(soft.storms.begun[rest.trial].at_ms + QUICK_MS)
        elif not rest.is_open:
            due.append(rest.until_ms)
    return min((at_ms for at_ms in due if at_ms > soft.now_ms), default=None)


def profile_pause(profile: str, soft: SoftState) -> Blocker | None:
    """Why nothing of a profile starts for now; None when it may."""
    rest = soft.storms.resting("profile", profile)
    if rest is None:
        return None
    return pause_blocker(f"profile {profile[:64]}", rest, soft.now_ms)


def pause_blocker(what: str, rest: Rest, now_ms: int) -> Blocker:
    """The blocker of a placement that rests."""
    return Blocker(code="placement_paused", detail=f"{what} rests: {rest_words(rest, now_ms)}")


def rest_words(rest: Rest, now_ms: int) -> str:
    """Why a placement rests, and what ends it."""
    why = f"{rest.ends} attempts in a row ended with 75 in less than {QUICK_MS // 1000} s each"
    if rest.trial is not None:
        return f"{why}; {rest.trial} tries it now"
    left_s = max(0, rest.until_ms - now_ms + 999) // 1000
    return f"{why}; one is tried again in {left_s} s"


def storm_alarm(soft: SoftState) -> str | None:
    """One alarm for all that rests; None when nothing does."""
    resting = [(key, rest) for key, rest in soft.storms.rests.items() if not rest.is_open]
    if not resting:
        return None
    told = [
        f"{place_name(soft, key)}: {rest_words(rest, soft.now_ms)}"
        for key, rest in resting[:PLACES_SHOWN]
    ]
    if len(resting) > PLACES_SHOWN:
        told.append(f"{len(resting) - PLACES_SHOWN} more")
    return f"PLACEMENT PAUSED  {'; '.join(told)}"


def place_name(soft: SoftState, key: PlaceKey) -> str:
    """How people are told a placement."""
    device = soft.fleet.devices.get(key.name) if key.kind == "device" else None
    return (
        f"profile {key.name}"
        if key.kind == "profile"
        else (f"device {key.name}" if device is None else f"GPU {device.index}")
    )
