"""One attempt's process life: what the launcher knows, as a table of transitions.

Values in, values out: it decides what is reported and when an attempt counts as ended. It never
looks at a process, a file or a clock. Rules: the design's promises 3, 4, 6 and 7; an attempt ends
only when its shim is gone and its tree is proved absent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from ..protocol.evidence import ExitRecord
from ..protocol.process import ProcessIdentity
from ..protocol.reports import (
    AttemptEnded,
    AttemptJudged,
    AttemptLeaderExited,
    AttemptReady,
    AttemptStarted,
    AttemptUnkillable,
    SpawnFailed,
)
from .host_shortage import lack_of
from .proof import Verdict

Outcome = Literal["exited", "exec_failed", "never_ran", "unknown"]
Stage = Literal["attempt_directory", "log_open", "process_start"]
Lacked = Literal["run_files", "process"]
Report = (
    AttemptReady | AttemptStarted | AttemptLeaderExited | AttemptEnded | SpawnFailed
    | AttemptUnkillable | AttemptJudged
)  # fmt: skip


class Phase(StrEnum):
    """Where an attempt's processes are."""

    SPAWNING = "spawning"
    """A shim was asked for, or will be once there is room."""
    WAITING = "waiting"
    """The shim waits at its barrier."""
    RELEASED = "released"
    """GO was given; the evaluator may run."""
    ADOPTED = "adopted"
    """A live shim of an earlier launcher; how far it came isn't known yet."""
    RUNNING = "running"
    """The evaluator runs."""
    DRAINING = "draining"
    """The evaluator ended; descendants of it may live."""
    SWEEPING = "sweeping"
    """The shim is gone; the tree isn't proved absent."""
    ENDED = "ended"
    """Nothing is left."""


class Life(NamedTuple):
    """What is known about one attempt. A tuple: it is replaced six times in each."""

    attempt: str
    phase: Phase = Phase.SPAWNING
    shim: ProcessIdentity | None = None
    leader: ProcessIdentity | None = None
    started_at_ms: int | None = None
    going: bool = False
    drained: bool = False
    outcome: Outcome | None = None
    exit_code: int | None = None
    signal: int | None = None
    errno: int | None = None
    detail: str = ""
    ended_at_ms: int | None = None
    survivors: tuple[int, ...] = ()
    stuck: tuple[int, ...] = ()
    hidden: Verdict | None = None
    """What can be said of it while its processes are in a namespace that cannot be seen."""
    signalled: bool | None = False
    """Whether a stop signalled it before the end of its evaluator was known; None where an earlier
    launcher may have done so."""
    refused: Stage | None = None
    permanent: bool = False
    lacked: Lacked | None = None
    """For what the host lacked something, when that is why nothing ran."""


@dataclass(frozen=True, slots=True)
class SpawnRefused:
    """No shim came to its barrier."""

    stage: Stage
    permanent: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """It could not be brought to its barrier for a reason that passes; nothing ran."""

    detail: str
    errno: int | None = None
    lacked: Lacked | None = None


@dataclass(frozen=True, slots=True)
class ShimReady:
    """The shim is at its barrier, its identity verified."""

    shim: ProcessIdentity


@dataclass(frozen=True, slots=True)
class GoGiven:
    """GO was sent."""


@dataclass(frozen=True, slots=True)
class Going:
    """The shim has taken GO; from here on the evaluator may have run."""


@dataclass(frozen=True, slots=True)
class Signalled:
    """A stop signals it now."""


@dataclass(frozen=True, slots=True)
class LeaderStarted:
    """The evaluator's image was executed."""

    leader: ProcessIdentity
    at_ms: int


@dataclass(frozen=True, slots=True)
class LeaderEnded:
    """The shim's word on how the evaluator ended, or why it could not be executed."""

    record: ExitRecord
    drained: bool = False
    survivors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ShimGone:
    """The shim is dead. `never_ran`: it is proved that GO never reached it."""

    never_ran: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TreeAbsent:
    """Nothing of the attempt was found, twice."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """These are left after KILL, or cannot be proved ours to kill."""

    pids: tuple[int, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class Hidden:
    """Its processes are in a pid namespace that cannot be seen from here."""

    verdict: Verdict


Fact = (
    SpawnRefused | Withdrawn | ShimReady | GoGiven | Going | Signalled | LeaderStarted
    | LeaderEnded | ShimGone | TreeAbsent | Stuck | Hidden
)  # fmt: skip


def _refused(life: Life, fact: SpawnRefused) -> Life:
    return life._replace(
        phase=Phase.ENDED,
        refused=fact.stage,
        permanent=fact.permanent,
        detail=fact.detail[:2000],
    )


def _withdrawn(life: Life, fact: Withdrawn) -> Life:
    return life._replace(
        phase=Phase.ENDED,
        outcome="never_ran",
        detail=fact.detail[:2000],
        errno=fact.errno,
        lacked=fact.lacked,
    )


def _ready(life: Life, fact: ShimReady) -> Life:
    return life._replace(phase=Phase.WAITING, shim=fact.shim)


def _released(life: Life, _: GoGiven) -> Life:
    return life._replace(phase=Phase.RELEASED)


def _going(life: Life, _: Going) -> Life:
    return life._replace(going=True)


def _signalled(life: Life, _: Signalled) -> Life:
    return life._replace(signalled=True)


def _started(life: Life, fact: LeaderStarted) -> Life:
    return life._replace(
        phase=Phase.RUNNING, leader=fact.leader, started_at_ms=fact.at_ms, going=True
    )


def _ended(life: Life, fact: LeaderEnded) -> Life:
    record = fact.record
    # Where the host could not execute it now, its first instruction is still to come.
    lacked = record.outcome == "exec_failed" and lack_of(record.errno) is not None
    return life._replace(
        phase=Phase.DRAINING,
        going=True,
        outcome="never_ran" if lacked else record.outcome,
        lacked="process" if lacked else None,
        exit_code=record.exit_code,
        signal=record.signal,
        errno=record.errno,
        detail=record.detail,
        ended_at_ms=record.ended_at_ms,
        drained=fact.drained or record.outcome == "exec_failed",
        survivors=fact.survivors,
    )


def _gone_waiting(life: Life, fact: ShimGone) -> Life:
    return life._replace(phase=Phase.ENDED, outcome="never_ran", detail=fact.detail)


def _gone_released(life: Life, fact: ShimGone) -> Life:
    if fact.never_ran and not life.going:
        return _gone_waiting(life, fact)
    return _gone_running(life, fact)


def _gone_running(life: Life, fact: ShimGone) -> Life:
    detail = fact.detail or "its shim was destroyed, and the exit status with it"
    return life._replace(phase=Phase.SWEEPING, outcome="unknown", detail=detail)


def _gone_draining(life: Life, _: ShimGone) -> Life:
    return life._replace(phase=Phase.ENDED if life.drained else Phase.SWEEPING)


def _absent(life: Life, _: TreeAbsent) -> Life:
    return life._replace(phase=Phase.ENDED, stuck=())


def _stuck(life: Life, fact: Stuck) -> Life:
    if life.outcome in (None, "unknown"):
        return life._replace(stuck=fact.pids, detail=fact.detail[:2000])
    return life._replace(stuck=fact.pids)


def _hidden(life: Life, fact: Hidden) -> Life:
    return life._replace(hidden=fact.verdict)


TABLE: dict[tuple[Phase, type], Callable[[Life, Any], Life]] = {
    (Phase.SPAWNING, SpawnRefused): _refused,
    (Phase.SPAWNING, Withdrawn): _withdrawn,
    (Phase.SPAWNING, ShimReady): _ready,
    (Phase.WAITING, GoGiven): _released,
    (Phase.WAITING, ShimGone): _gone_waiting,
    (Phase.RELEASED, Going): _going,
    (Phase.RELEASED, Signalled): _signalled,
    (Phase.RELEASED, LeaderStarted): _started,
    (Phase.RELEASED, LeaderEnded): _ended,
    (Phase.RELEASED, ShimGone): _gone_released,
    (Phase.ADOPTED, Signalled): _signalled,
    (Phase.ADOPTED, LeaderStarted): _started,
    (Phase.ADOPTED, LeaderEnded): _ended,
    (Phase.ADOPTED, ShimGone): _gone_released,
    (Phase.ADOPTED, Stuck): _stuck,
    (Phase.ADOPTED, Hidden): _hidden,
    (Phase.RUNNING, Signalled): _signalled,
    (Phase.RUNNING, LeaderEnded): _ended,
    (Phase.RUNNING, ShimGone): _gone_running,
    (Phase.RUNNING, Stuck): _stuck,
    (Phase.DRAINING, LeaderEnded): _ended,
    (Phase.DRAINING, ShimGone): _gone_draining,
    (Phase.DRAINING, Stuck): _stuck,
    (Phase.SWEEPING, Stuck): _stuck,
    (Phase.SWEEPING, TreeAbsent): _absent,
}
"""Every change there is. A fact that is not in its phase's row says nothing new."""


def advance(life: Life, fact: Fact) -> Life:
    """The life after one fact."""
    change = TABLE.get((life.phase, type(fact)))
    return life if change is None else change(life, fact)


def latest_report(life: Life, log_tail: str = "", hint: str = "") -> Report | None:
    """What the broker should know now; the same value as long as nothing changed."""
    if life.phase is Phase.ENDED:
        return _final_report(life, log_tail, hint)
    if life.phase is Phase.ADOPTED and life.hidden is not None:
        return judged(life.attempt, life.hidden)
    if life.stuck:
        return AttemptUnkillable(attempt=life.attempt, pids=life.stuck, detail=life.detail)
    if life.outcome == "exited" and life.survivors:
        return AttemptLeaderExited(
            attempt=life.attempt,
            exit_code=life.exit_code,
            signal=life.signal,
            survivors=life.survivors,
        )
    if life.leader is not None and life.started_at_ms is not None:
        return AttemptStarted(attempt=life.attempt, leader=life.leader, at_ms=life.started_at_ms)
    if life.phase in (Phase.WAITING, Phase.RELEASED) and life.shim is not None:
        return AttemptReady(attempt=life.attempt, shim=life.shim)
    return None


def judged(attempt: str, verdict: Verdict) -> AttemptJudged:
    """What was found of an attempt, as a report."""
    return AttemptJudged(
        attempt=attempt, found=verdict.state, evidence=verdict.evidence, detail=verdict.words
    )


def _final_report(life: Life, log_tail: str, hint: str) -> Report:
    if life.refused is not None:
        return SpawnFailed(
            attempt=life.attempt,
            stage=life.refused,
            permanent=life.permanent,
            detail=life.detail,
        )
    return AttemptEnded(
        attempt=life.attempt,
        outcome=life.outcome or "unknown",
        exit_code=life.exit_code,
        signal=life.signal,
        errno=life.errno,
        detail=life.detail,
        log_tail=log_tail,
        ended_at_ms=life.ended_at_ms,
        signalled=life.signalled,
        lacked=life.lacked,
        hint=hint,
    )
