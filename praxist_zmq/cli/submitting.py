"""One submission as the caller sees it: ask, tell the verdict, leave the document.

Standard library and click only; never imports pydantic or rich.
"""

from __future__ import annotations

import os

import click

from ..errors import PraxistError
from ..host.nested_child import run_plain_child
from ..protocol.envelope import Json
from . import output
from .advice import helps
from .connect import Caller, ask, connect, job_of_error
from .documents import submission_document
from .failure import code_lines, error_document, verdict_word
from .nested import enclosing_attempt
from .result_file import check_result_file, write_result
from .run_selection import check_boundary
from .settings import Settings, settings_of
from .submission import (
    SubmissionOptions,
    folded,
    submission_answer,
    submission_request,
    words_after_dashes,
)
from .verdict import dry_run_lines, error_of, exit_of, refused_lines, submitted_lines
from .waiting import now_s
from .words import safe

ESTIMATE_WAIT_S = 0.5


class Submitting:
    """A `submit`; `launch` builds on it."""

    waits = False

    def __init__(self, kind: str, ctx: click.Context, options: SubmissionOptions) -> None:
        self.kind = kind
        self.settings: Settings = settings_of(ctx)
        self.options = options
        self.words = words_after_dashes(ctx) or ()
        self.answer: Json = {}
        self.job: Json | None = None

    def run(self) -> int:
        """Carry it out; the exit status."""
        try:
            check_result_file(self.options.result_file)
            return self._ask()
        except PraxistError as error:
            return self._refused(error)
        except KeyboardInterrupt:
            return self._interrupted()

    def _ask(self) -> int:
        request = submission_request(self.options, self.words)
        check_boundary(self.settings.run_dir)
        with connect(self.settings) as client:
            around = enclosing_attempt(client, self.settings) if self.waits else None
            if around is None or not around["inside"]:
                self._tell_outside(around)
                return self._with(client, request)
        return self._inside(str(around["attempt"]))

    def _inside(self, attempt: str) -> int:
        """Run it here: waiting for another slot while holding one could wait forever."""
        self.answer = {"verdict": "started", "new": False, "inside_attempt": attempt}
        would = "would run" if self.options.dry_run else "runs"
        if not self.settings.is_json:
            output.talk(
                f"started  inside {attempt}: {would} as a plain child of it, nothing is submitted"
            )
        if self.options.dry_run:
            return self.end(0, "scheduler", None)
        cwd = None if self.options.cwd is None else os.fsencode(self.options.cwd)
        code = run_plain_child([os.fsencode(word) for word in self.words], cwd)
        return self.end(code, "job", None)

    def _tell_outside(self, around: Json | None) -> None:
        if around is not None and not self.settings.is_json and not self.settings.quiet:
            attempt, reason = safe(str(around["attempt"])), safe(str(around["reason"]))
            output.talk(f"note  the environment names {attempt}, this is not part of it: {reason}")

    def _with(self, client: Caller, request: Json) -> int:
        self.answer = submission_answer(client, request, self.settings.timeout_s, self.options)
        job: Json = self.answer["job"]
        self.job = job
        if self.options.dry_run:
            return self._dry_run()
        self._estimate(client)
        self._tell_verdict()
        if job["state"] == "drained_unknown":
            return self.end(*exit_of(job), error_of(job))
        return self.end(0, "scheduler", None)

    def _estimate(self, client: Caller) -> None:
        """When a job that waits is expected to start. The job stands whether this is known or
        not."""
        if self.job is None or self.job["state"] != "queued" or not self.job.get("blockers"):
            return
        request = {"kind": "explain_job", "subject": self.job["job"]}
        try:
            told = ask(client, request, min(self.settings.timeout_s, ESTIMATE_WAIT_S))
        except PraxistError:
            return  # the job is accepted; only the forecast is missing
        entries = told.get("would_start") or []
        self.answer = {
            **self.answer,
            "start_estimate": told.get("start_estimate"),
            "would_start": entries[0]["event"] if entries else None,
        }

    def _dry_run(self) -> int:
        if not self.settings.is_json:
            output.talk(*dry_run_lines(self.answer))
        if self.job is not None and self.answer["verdict"] == "would_queue":
            # The name is the next one's that is sent in earnest.
            self.job = {**self.job, "job": None, "job_id": None}
        return self.end(0, "scheduler", None)

    def _tell_verdict(self) -> None:
        if self.settings.is_json or self.job is None:
            return
        lines = submitted_lines(self.answer, now_s(), waits=self.waits)
        output.talk(*(lines[:1] if self.settings.quiet else lines))
        if self.settings.format == "name":
            output.answer(str(self.job["job"]))

    def _refused(self, error: PraxistError) -> int:
        job = job_of_error(error)
        if self.settings.is_json:
            error.help = helps(error, self.settings)
        else:
            more = code_lines(error.code, error.exit_code, self.settings)
            output.talk(*self._refused_lines(error, job), *more)
        self.job = self.job or job
        return self.end(error.exit_code, "scheduler", error)

    def _refused_lines(self, error: PraxistError, job: Json | None) -> list[str]:
        if self.job is None:
            return refused_lines(error, self.settings, self._tag(error), job, now_s())
        return refused_lines(error, self.settings, str(self.job["job"]), None, now_s())

    def _tag(self, error: PraxistError | None) -> str:
        """The tag as typed; it may be what the refusal of a credential is about."""
        is_secret = error is not None and error.code == "literal_secret"
        return "[not shown]" if is_secret else self.options.tag

    def _interrupted(self) -> int:
        if self.job is None:
            detail = "before the scheduler answered; sending the same command again is safe"
            error = PraxistError("interrupted", detail, ["send the same command again"])
        else:
            name = self.job["job"]
            error = PraxistError(
                "interrupted",
                f"{name} goes on",
                [f"`praxist-zmq wait {name}` waits on; `praxist-zmq cancel {name} --yes` ends it"],
            )
        if not self.settings.is_json:
            output.talk(f"detached  {error.detail}", *(f"  help  {line}" for line in error.help))
        return self.end(error.exit_code, "scheduler", error)

    def _verdict(self, error: PraxistError | None) -> str:
        if self.answer:
            return str(self.answer["verdict"])
        return "unavailable" if error is None else verdict_word(error)

    def end(self, exit_code: int, source: str, error: PraxistError | None) -> int:
        exit_code = folded(exit_code, source, self.options.scheduler_exit)
        content = submission_document(
            self.kind,
            verdict=self._verdict(error),
            job=self.job,
            tag=self._tag(error),
            answer=self.answer,
            retryable=error is not None and error.row.retryable,
            exit_code=exit_code,
            exit_source=source,
            error=None if error is None else error_document(error),
        )
        if self.settings.is_json:
            output.document(content)
        write_result(self.options.result_file, content)
        return exit_code
