"""A blocking launch: the verdict, every change, the log if asked for, the job's exit code.

The job belongs to the scheduler from its acceptance on: whatever happens to this process, it goes
on. Standard library and click only; never imports pydantic or rich.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from ..errors import PraxistError
from ..host.paths import RunPaths
from ..protocol.envelope import Json
from . import output
from .advice import helps
from .connect import Caller, ask
from .documents import head, job_body
from .failure import error_lines
from .legacy_options import LegacyOptions
from .log_tail import LogFollower
from .route import route
from .run_selection import check_boundary, find_run
from .submission import STARTS_AT_ONCE_S, SubmissionOptions, submission_answer, submit
from .submitting import Submitting
from .verdict import (
    alive_line,
    change_line,
    error_of,
    exit_of,
    final_lines,
    is_terminal_state,
    over_line,
    phase,
    withdrawn_line,
)
from .waiting import changes, mono_s, next_change, now_s


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """How long and how a launch waits. Times are seconds."""

    admission_timeout: float | None
    max_wait: float | None
    follow: bool


class Launching(Submitting):
    """A `launch`."""

    waits = True

    def __init__(
        self,
        ctx: click.Context,
        options: SubmissionOptions,
        waiting: WaitOptions,
        legacy: LegacyOptions,
    ) -> None:
        super().__init__("launch", ctx, options)
        self.legacy = legacy
        if waiting.follow and self.settings.is_json:
            raise click.UsageError("--follow and --json both want stdout", ctx)
        self.waiting = waiting
        self.began_s = mono_s()
        self.request: Json = {}
        self.follower: LogFollower | None = None
        self.followed: str | None = None

    def _ask(self) -> int:
        check_boundary(self.settings.run_dir)
        run = RunPaths.of(find_run(self.settings.run_dir))
        if route(run, self.legacy.config) == "scheduler":
            return super()._ask()
        from .peer_launching import PeerLaunching

        return PeerLaunching(self, run).run()

    def _with(self, client: Caller, request: Json) -> int:
        self.request = request
        self.answer = submission_answer(client, request, self.settings.timeout_s, self.options)
        self.job = self.answer["job"]
        if self.options.dry_run:
            return self._dry_run()
        self._started_at_once(client)
        self._estimate(client)
        self._tell_verdict()
        try:
            job = self._until_terminal(client, self.job)
        finally:
            self._stop_following()
        self._tell_end(job)
        return self.end(*exit_of(job), error_of(job))

    def _started_at_once(self, client: Caller) -> None:
        """An idle scheduler starts the job within milliseconds: then say `started`."""
        job: Json = self.answer["job"]
        until_s = mono_s() + STARTS_AT_ONCE_S
        while self.answer["verdict"] == "queued" and not job.get("blockers"):
            if is_terminal_state(job) or phase(job)[2]:
                break
            left_s = until_s - mono_s()
            changed = next_change(client, job, left_s) if left_s > 0 else None
            if changed is None:
                break
            job = changed
        self.job = job
        ran = phase(job)[2] or (is_terminal_state(job) and job.get("started_at"))
        if self.answer["verdict"] == "queued" and ran:
            self.answer = {**self.answer, "verdict": "started", "job": job}

    def _until_terminal(self, client: Caller, job: Json) -> Json:
        self._follow(job)
        withdraw_s = self._limit(self.waiting.admission_timeout)
        max_wait_s = self._limit(self.waiting.max_wait)
        while not is_terminal_state(job):
            if withdraw_s is not None and job["state"] == "running":
                withdraw_s = None
            limits = [limit for limit in (withdraw_s, max_wait_s) if limit is not None]
            try:
                for changed in changes(client, job, min(limits, default=None)):
                    if changed["state"] == "waiting_for_credentials" != job["state"]:
                        changed = self._bring_credentials(client, changed)
                    self._tell_change(job, changed)
                    self.job = job = changed
                    if withdraw_s is not None and job["state"] == "running":
                        break
            except PraxistError as error:
                if error.code != "wait_timeout":
                    raise
                if withdraw_s is not None and mono_s() >= withdraw_s - 0.05:
                    withdraw_s = None
                    self.job = job = self._withdraw(client, job)
                    continue
                raise self._still_waiting(job) from error
        return job

    def _bring_credentials(self, client: Caller, job: Json) -> Json:
        """A restart took the secrets out of the scheduler's memory; this process still has them.

        The same request again brings them back and starts nothing new.
        """
        try:
            answer = submit(client, self.request, self.settings.timeout_s)
        except PraxistError as error:
            output.talk(*error_lines(error, self.settings))
            return job
        again: Json = answer["job"]
        return again

    def _limit(self, seconds: float | None) -> float | None:
        return None if seconds is None else self.began_s + seconds

    def _withdraw(self, client: Caller, job: Json) -> Json:
        """Take the job back if it never ran. Raises `admission_timeout`; else the job now."""
        reply = ask(
            client,
            {
                "kind": "cancel_jobs",
                "jobs": [job["job"]],
                "peer": self.options.peer,
                "reason": "admission timeout",
                "admission_timeout": True,
            },
            self.settings.timeout_s,
        )
        result = reply["results"][0]
        if result["outcome"] == "cancelled":
            # Not by the job as last seen: it may have run since, and been queued again.
            if not result.get("frees_tag"):
                help = ["its earlier attempts stand; to try again, add --retry-terminal"]
                raise PraxistError("admission_timeout", f"{job['job']} was withdrawn", help)
            raise PraxistError(
                "admission_timeout", f"{job['job']} was withdrawn; nothing ran, the tag is free"
            )
        shown = ask(client, {"kind": "show_job", "job": job["job"]}, self.settings.timeout_s)
        view: Json = shown["job"]
        self._tell_change(job, view)
        return view

    def _still_waiting(self, job: Json) -> PraxistError:
        name = job["job"]
        return PraxistError(
            "wait_timeout",
            f"{name} is {job['state']} and goes on",
            [f"`praxist-zmq wait {name}` waits on"],
        )

    def _refused_lines(self, error: PraxistError, job: Json | None) -> list[str]:
        """What ends a wait is no verdict: the job's state is the first word then too."""
        if self.job is None or error.code not in ("wait_timeout", "admission_timeout"):
            return super()._refused_lines(error, job)
        line = over_line if error.code == "wait_timeout" else withdrawn_line
        return [line(self.job), *(f"  help  {text}" for text in helps(error, self.settings))]

    def _tell_change(self, before: Json, job: Json) -> None:
        self._follow(job)
        if self.settings.format == "jsonl":
            if phase(before) != phase(job) and not is_terminal_state(job):
                output.document({**head("job"), **job_body(job)})
            return
        if self.settings.is_json or self.settings.quiet or is_terminal_state(job):
            return
        line = change_line(before, job)
        if line is None and before is job and not output.watched_by_person():
            line = alive_line(job, now_s())
        if line is not None:
            output.talk(line)

    def _tell_end(self, job: Json) -> None:
        if self.settings.is_json or (self.answer.get("verdict") == "done"):
            return
        output.talk(*final_lines(job))

    def _follow(self, job: Json) -> None:
        path = job.get("log_path")
        if not self.waiting.follow or not path or path == self.followed:
            return
        self._stop_following()
        self.followed = path
        self.follower = LogFollower(Path(path))

    def _stop_following(self) -> None:
        if self.follower is not None:
            self.follower.finish()
            self.follower = None
