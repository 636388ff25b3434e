"""Stopping one run: the fence first, then its scheduler carries it out, or we do in its place.

A run is left untouched unless its shutdown sentinel was written or its live scheduler confirmed
that it is frozen. Only what is proved to be the run's is signalled. Source: seed 000 "Timing And
Close".
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from ..core.narrate import FOUND
from ..errors import PraxistError
from ..host.paths import RunPaths
from ..host.spawn import wait_ended
from ..host.stop_search import LeftAlone
from ..protocol.envelope import Json
from ..protocol.process import ProcessIdentity
from ..service import offline_stop
from ..service.offline_stop import OfflineStop
from ..service.owner import Owner, find_owner
from ..service.run_fence import set_fence
from ..service.stop_watch import StopWatch
from . import output
from .advice import no_run_here
from .connect import Caller, ask, connect
from .settings import Settings
from .waiting import mono_s
from .words import safe

AFTER_GRACE_S = 30.0
LOOK_BEFORE_S = 0.2
"""So long before the grace is over it is looked who lives: KILL comes at once after it, and it
began before we were told so."""


LOOK_APART_S = 2.0
"""Between looks at whom a stop still waits for."""


@dataclass(slots=True)
class RunStop:
    """What became of one run."""

    run_id: str
    run_dir: str
    dry_run: bool = False
    fenced_by_file: bool = False
    fenced_by_scheduler: bool = False
    rejected: list[str] = field(default_factory=list)
    ending: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Jobs that still run, and a scheduler that did not end."""
    why: dict[str, str] = field(default_factory=dict)
    """What keeps those of them of which it is known."""
    matched: set[int] = field(default_factory=set)
    descendants: set[int] = field(default_factory=set)
    terminated: set[int] = field(default_factory=set)
    killed: set[int] = field(default_factory=set)
    remaining: set[int] = field(default_factory=set)
    alone: list[LeftAlone] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failure: str | None = None
    """Why it could not be fenced or looked through: then it may still do something."""
    took_s: float = 0.0

    @property
    def exit_code(self) -> int:
        """1 when something of it is left, or it could not be stopped at all."""
        if self.dry_run:
            return 0
        return 1 if self.failure or self.left or self.remaining else 0


class StoppingRun:
    """One run being stopped."""

    def __init__(self, run: RunPaths, settings: Settings, grace_s: float) -> None:
        self._run = run
        self._settings = replace(settings, run_dir=str(run.run_dir))
        self._grace_s = grace_s
        self._began_s = mono_s()
        self.told = RunStop(run.run_id, str(run.run_dir))

    def look(self) -> RunStop:
        """What a stop would do. Raises what keeps it from being known."""
        owner = self._owner()
        self.told.dry_run = True
        if owner is None:
            self._take(offline_stop.look(self._run))
            return self.told
        os.close(owner.pidfd)
        with connect(self._settings) as client:
            watch = self._watch(client)
            self._take_reply(self._ask(client, dry_run=True))
        self.told.matched, self.told.descendants = watch.matched, watch.descendants
        self.told.remaining = watch.alive()
        return self.told

    def fence(self) -> None:
        """Have it start nothing more; `run` does the rest. Raises `no_run`."""
        self._look_for_it()
        self.told.warnings.clear()  # tried again, it is told again
        try:
            set_fence(self._run.shutdown_fence)
            self.told.fenced_by_file = True
        except PraxistError as error:
            self.told.warnings.append(f"the shutdown sentinel cannot be written: {error}")

    def run(self) -> RunStop:
        """Carry it out. Raises what happens before anything was touched."""
        owner = self._owner()
        try:
            self.fence()
            if owner is not None:
                self._with_scheduler(owner)
            elif self.told.fenced_by_file:
                self._alone()
            else:
                self.told.failure = "no scheduler serves it, and its sentinel cannot be written"
        finally:
            if owner is not None:
                os.close(owner.pidfd)
        self.told.took_s = mono_s() - self._began_s
        return self.told

    def _owner(self) -> Owner | None:
        self._look_for_it()
        owner = find_owner(self._run)
        while owner is not None and owner.is_stop:
            # Two at once: the second waits, and finds what the first has left. What hangs, or only
            # says that it is one, is ended as any other holder.
            if not wait_ended(owner.pidfd, self._grace_s + AFTER_GRACE_S):
                break
            os.close(owner.pidfd)
            owner = find_owner(self._run)
        return owner

    def _look_for_it(self) -> None:
        if not self._run.scheduler.exists():
            raise no_run_here(self._run)

    def _ask(self, client: Caller, *, dry_run: bool) -> Json:
        request = {"kind": "stop_run", "grace_seconds": self._grace_s, "dry_run": dry_run}
        return ask(client, request, self._settings.timeout_s)

    def _watch(self, client: Caller) -> StopWatch:
        """The evaluators that the scheduler names, before they are told to end."""
        request = {"kind": "list_jobs", "states": ["running"], "limit": 1000}
        jobs = ask(client, request, self._settings.timeout_s)["jobs"]
        named = (ProcessIdentity(**job["process"]) for job in jobs if job.get("process"))
        return StopWatch(named)

    def _with_scheduler(self, owner: Owner) -> None:
        try:
            with connect(self._settings) as client:
                watch = self._watch(client)
                alive = watch.alive()
                self._take_reply(self._ask(client, dry_run=False))
                self.told.fenced_by_scheduler = True
                if not self._wait(client, owner, watch, alive):
                    return
        except PraxistError as error:
            if self.told.fenced_by_scheduler:
                raise
            self.told.warnings.append(f"the scheduler does not confirm the stop: {error}")
            if not self.told.fenced_by_file:
                self.told.failure = "neither its sentinel nor its scheduler could fence it"
                if error.code in ("no_answer", "scheduler_restarting"):
                    self.told.failure += "; a scheduler that wakes may still obey what it was sent"
                return
            if not offline_stop.end_scheduler(owner):
                self.told.left.append(f"scheduler (pid {owner.identity.pid})")
                return
        self._alone()

    def _wait(self, client: Caller, owner: Owner, watch: StopWatch, alive: set[int]) -> bool:
        """Wait for the scheduler's end, which follows the last experiment's; end it when it does
        not do as it said. False when it, or what cannot be ended, is still there. `alive`: what
        lived before the scheduler was asked."""
        told = self.told
        told.matched, told.descendants = watch.matched, watch.descendants
        ended, left_s = False, AFTER_GRACE_S
        if self._grace_s:
            told.terminated = alive
            look_before_s = min(LOOK_BEFORE_S, self._grace_s / 2)
            ended = wait_ended(owner.pidfd, self._grace_s - look_before_s)
            alive, left_s = watch.alive(), left_s + look_before_s
        if not ended:
            told.killed = alive
            ended = self._wait_for_the_end(client, owner, left_s)
        if ended:
            return True
        alive = watch.alive()
        told.killed -= alive
        jobs = self._still_running(client)
        if not jobs or not all(_cannot_end(job) for job in jobs):
            told.warnings.append("the scheduler does not carry the stop out; it is ended")
            told.terminated -= alive
            if offline_stop.end_scheduler(owner):
                return True
        told.remaining = alive
        told.left += [str(job["job"]) for job in jobs]
        told.why.update((str(job["job"]), _why(job)) for job in jobs)
        told.left.append(f"scheduler (pid {owner.identity.pid})")
        return False

    def _wait_for_the_end(self, client: Caller, owner: Owner, left_s: float) -> bool:
        """Whether the scheduler ends in this time. Says once whom it waits for; what cannot be seen
        from here is not waited for."""
        until_s, told = mono_s() + left_s, False
        while (left_s := until_s - mono_s()) > 0:
            if wait_ended(owner.pidfd, min(left_s, LOOK_APART_S)):
                return True
            jobs = self._still_running(client)
            if jobs and all(str(job["note"]).startswith(FOUND["unseen"]) for job in jobs):
                return False
            if jobs and not told and not self._settings.quiet:
                told = True
                output.talk(*(f"waiting  {job['job']}: {safe(_why(job))}" for job in jobs))
        return False

    def _still_running(self, client: Caller) -> list[Json]:
        request = {"kind": "list_jobs", "states": ["running"], "limit": 1000}
        try:
            jobs: list[Json] = ask(client, request, self._settings.timeout_s)["jobs"]
        except PraxistError:
            return []  # its broker has ended, or hangs
        return jobs

    def _alone(self) -> None:
        """What no scheduler does, or what it did not finish."""
        found = offline_stop.look(self._run) if self.told.fenced_by_scheduler else None
        if found is None or found.ending or found.swept.remaining:
            found = offline_stop.stop(self._run, round(self._grace_s * 1000))
        self._take(found)

    def _take_reply(self, reply: Json) -> None:
        self.told.rejected, self.told.ending = list(reply["rejected"]), list(reply["ending"])

    def _take(self, found: OfflineStop) -> None:
        told, swept = self.told, found.swept
        told.rejected += [job for job in found.rejected if job not in told.rejected]
        told.ending += [job for job in found.ending if job not in told.ending]
        told.matched |= swept.matched
        told.descendants |= swept.descendants - told.matched
        told.terminated |= swept.terminated
        told.killed |= swept.killed
        told.alone = swept.left
        doubtful = {process.pid for process in swept.left if process.names_attempt}
        told.remaining = swept.remaining | doubtful
        told.warnings += found.warnings
        if found.unproved:
            told.failure = f"nobody can tell from here whether {'; '.join(found.unproved[:5])}"


def _why(job: Json) -> str:
    return str(job["note"] or "its processes have not ended yet")


def _cannot_end(job: Json) -> bool:
    return str(job["note"]).startswith(("unkillable", FOUND["unseen"]))
