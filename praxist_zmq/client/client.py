"""`Client`: one connection to a run's scheduler, for one thread.

Sends a request until it is answered: after a lost connection, a restart of the scheduler or its
silence the same request id is sent again, which is always safe. Never starts anything and never
decides about jobs.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal

from ..errors import PraxistError
from ..host.clock import SystemClock
from ..host.paths import RunPaths
from ..protocol import limits
from ..protocol.envelope import Json
from ..transport.request import PING_MS, PONG_MS, Requester
from .endpoint import Endpoint, find_endpoint
from .follow import follow_events
from .generations import GenerationCalls
from .lease import LeaseInfo, LeaseWait
from .submission import (
    EnvironmentEncoder,
    Text,
    cancel_requests,
    check_total,
    share_environments,
    submit_request,
    wire_command,
    working_directory,
)
from .views import CancelInfo, Event, JobInfo, RefusedError, SubmitResult

EVENTS_A_PAGE = 500
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Client(GenerationCalls):
    """Talks to the scheduler of the run in `run_dir`.

    `timeout_s` bounds an ordinary request. `reconnect_s` is how long a wait goes on while no
    scheduler answers. Every method raises PraxistError: `no_scheduler` when none can be there,
    `scheduler_restarting` or `no_answer` when one should be but does not answer, the code of a
    refusal (`RefusedError`) otherwise. Use it from the thread that
    made it, and not in a forked child.
    """

    def __init__(
        self,
        run_dir: str | PathLike[str],
        timeout_s: float = 10.0,
        *,
        reconnect_s: float = 60.0,
    ) -> None:
        self._run = RunPaths.of(run_dir)
        self._timeout_s = timeout_s
        self._reconnect_s = reconnect_s
        self._maker = (os.getpid(), threading.get_ident())
        self._endpoint: Endpoint | None = None
        self._answered = False
        self._closed = False
        self._environments = EnvironmentEncoder()
        self._requester = Requester(self._find, SystemClock().mono_ms)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Jobs are not touched."""
        self._closed = True
        if self._maker[0] == os.getpid():  # a forked child has none of its own
            self._requester.close()

    def _find(self) -> str:
        self._endpoint = find_endpoint(self._run)
        return self._endpoint.door

    # -- any request ---------------------------------------------------------------------------

    def call(
        self,
        request: Mapping[str, Any],
        timeout_s: float | None = None,
        *,
        request_id: str | None = None,
        patient: bool | None = None,
    ) -> Json:
        """The reply to any request of the protocol, a refusal included.

        `timeout_s` None: the client's own limit, for `watch_job` none. `patient`: whether to go
        on for `reconnect_s` while no scheduler is there; by default only a `watch_job` after
        something was answered. Raises `wait_timeout` when a watch outlives `timeout_s`.
        """
        if self._closed or self._maker != (os.getpid(), threading.get_ident()):
            raise PraxistError(
                "usage", "a Client is for one thread of one process, until it is closed"
            )
        watch = request.get("kind") == "watch_job"
        if timeout_s is None and not watch:
            timeout_s = self._timeout_s
        if patient is None:
            patient = watch and self._answered
        chosen = request_id or os.urandom(16).hex()
        body = _body(chosen, request)
        patience_s = self._reconnect_s if patient or (watch and timeout_s is None) else None
        try:
            reply = self._requester.request(
                body, chosen, timeout_s, patience_s, must_exist=not patient
            )
        except PraxistError as error:
            alive = self._requester.silence_ms < PING_MS + PONG_MS
            if watch and error.code == "no_answer" and alive:
                raise PraxistError("wait_timeout", f"{request.get('job')} lives") from None
            raise
        self._answered = True
        return reply

    def _ask(
        self, request: Mapping[str, Any], timeout_s: float | None = None, **options: Any
    ) -> Json:
        """`call`, with a refusal raised."""
        reply = self.call(request, timeout_s, **options)
        if reply.get("kind") == "refusal":
            raise RefusedError.of(reply)
        return reply

    # -- submitting ----------------------------------------------------------------------------

    def submit(
        self,
        *,
        tag: str,
        command: Iterable[Text],
        peer: str,
        profile: str | None = None,
        work_class: str = "ordinary",
        eta_seconds: float | None = None,
        cwd: Text | None = None,
        environment: Mapping[Any, Any] | None = None,
        generation: int | None = None,
        lease_id: str | None = None,
        retry_terminal: bool = False,
        retry_of: str | None = None,
        same_command: bool = False,
        dry_run: bool = False,
        not_secret: Sequence[str] = (),
        request_id: str | None = None,
    ) -> SubmitResult:
        """Put an experiment in the queue, or join the one of the same tag. Durable on return.

        `environment` None is this process's own; `cwd` None its directory. `retry_of` names the
        attempt that ended badly and is to be followed (`j-12.1`): asked again, it runs once.
        `same_command`: raise `other_command` where the tag's job has another command than this.
        `not_secret` names what in the command looks like a credential and is none.
        """
        request = submit_request(
            tag=tag,
            command=command,
            peer=peer,
            profile=profile,
            work_class=work_class,
            eta_seconds=eta_seconds,
            cwd=cwd,
            environment=environment,
            generation=generation,
            lease_id=lease_id,
            retry_terminal=retry_terminal,
            retry_of=retry_of,
            same_command=same_command,
            dry_run=dry_run,
            not_secret=not_secret,
            encoder=self._environments,
        )
        return SubmitResult.of(self._ask(request, request_id=request_id))

    def submit_many(
        self, submissions: Sequence[Mapping[str, Any]], *, request_id: str | None = None
    ) -> list[SubmitResult | RefusedError]:
        """Several in one message and one durable batch; each a dict of `submit`'s arguments.

        The answers are in the same order; a refused one is a `RefusedError`, not raised.
        """
        if len(submissions) > limits.BATCH_JOBS_MAX:
            raise PraxistError("too_large", f"{len(submissions)} jobs; {limits.BATCH_JOBS_MAX} max")
        jobs = [
            submit_request(**submission, encoder=self._environments) for submission in submissions
        ]
        request = {"kind": "submit_jobs", **share_environments(jobs)}
        reply = self._ask(request, request_id=request_id)
        return [
            RefusedError.of(item) if item.get("kind") == "refusal" else SubmitResult.of(item)
            for item in reply["results"]
        ]

    # -- waiting -------------------------------------------------------------------------------

    def wait(self, job: str, timeout_s: float | None = None) -> JobInfo:
        """The job once it ended. Raises `wait_timeout` after `timeout_s` seconds."""
        return self.watch(job, until="terminal", timeout_s=timeout_s)

    def watch(
        self,
        job: str,
        after_version: int = 0,
        until: Literal["change", "terminal"] = "change",
        timeout_s: float | None = None,
    ) -> JobInfo:
        """The job once its version is over `after_version`, or once it ended."""
        request = {
            "kind": "watch_job",
            "job": job,
            "after_version": after_version,
            "until": until,
        }
        return JobInfo.of(self._ask(request, timeout_s)["job"])

    def events(
        self, after_sequence: int = 0, job: str | None = None, *, follow: bool = False
    ) -> Iterator[Event]:
        """Events of the run after a ledger sequence, in order, each once.

        With `follow` it never ends: it waits for more, over restarts of the scheduler too.
        """
        if follow:
            yield from follow_events(self._events_page, self._events_path, after_sequence, job)
            return
        while True:
            page = self._events_page(after_sequence, job)
            for item in page["events"]:
                yield Event.of(item)
            if len(page["events"]) < EVENTS_A_PAGE:
                return
            after_sequence = page["events"][-1]["sequence"]

    def _events_page(self, after_sequence: int, job: str | None) -> Json:
        request = {
            "kind": "read_events",
            "after_sequence": after_sequence,
            "limit": EVENTS_A_PAGE,
            "job": job,
        }
        return self._ask(request, self._reconnect_s, patient=self._answered)

    def _events_path(self) -> str:
        if self._endpoint is None:
            self._find()
        assert self._endpoint is not None
        return self._endpoint.events

    # -- leases --------------------------------------------------------------------------------

    def lease_idle(self, peer: str, generation: int | None = None) -> LeaseInfo | None:
        """Register a peer that has finished its session; the lease that it has already, if any.

        Kept until it is withdrawn or the scheduler starts again. `generation` None: that of the
        peer's name, else the current one.
        """
        return _lease_of(self._ask(_register(peer, generation)))

    def lease_wait(
        self, peer: str, timeout_s: float | None = None, generation: int | None = None
    ) -> LeaseInfo:
        """Register, and return the peer's lease within milliseconds of its grant.

        Costs nothing while idle. Raises `wait_timeout` after `timeout_s` seconds; the peer stays
        registered. Raises `generation_closing` or `admission_closed` when none can come any more.
        """
        request = _register(peer, generation)

        def register(left_s: float | None) -> Json:
            bound_s = self._reconnect_s if left_s is None else min(left_s, self._reconnect_s)
            return self._ask(request, bound_s, patient=self._answered)

        waiting = LeaseWait(peer, register, self._events_path, SystemClock().mono_ms)
        try:
            return waiting.wait(timeout_s)
        finally:
            waiting.close()

    def lease_withdraw(self, peer: str) -> None:
        """Take no lease any more; one that the peer has is revoked."""
        self._ask({"kind": "unregister_idle", "peer": peer})

    def lease_show(self, peer: str) -> LeaseInfo | None:
        """The peer's live lease."""
        return _lease_of(self._ask({"kind": "get_lease", "peer": peer}))

    def lease_decline(
        self, peer: str, lease_id: str | None = None, reason: str = "nothing planned"
    ) -> LeaseInfo:
        """Nothing that is planned fits: the lease as it ended. The peer cools down for a while."""
        request = {"kind": "decline_lease", "peer": peer, "lease_id": lease_id, "reason": reason}
        return LeaseInfo.of(self._ask(request)["lease"])

    # -- asking --------------------------------------------------------------------------------

    def ping(self, timeout_s: float | None = None) -> Json:
        """Whether the thread that does the work lives: `run_id` and `epoch`."""
        return self._ask({"kind": "ping"}, timeout_s)

    def show(self, job: str) -> JobInfo:
        """One job: `j-12`, a prefix of its long id, `last` or `tag:TEXT`."""
        return JobInfo.of(self._ask({"kind": "show_job", "job": job})["job"])

    def queue(
        self,
        *,
        states: Sequence[str] = (),
        peer: str | None = None,
        include_terminal: bool = False,
        limit: int = 1_000,
    ) -> list[JobInfo]:
        """Jobs in queue order: running, then queued, then (if asked) ended ones."""
        request = {
            "kind": "list_jobs",
            "states": list(states),
            "peer": peer,
            "include_terminal": include_terminal,
            "limit": limit,
        }
        return [JobInfo.of(item) for item in self._ask(request)["jobs"]]

    def status(self) -> Json:
        """The run's state, keys as `status --json`."""
        return self._ask({"kind": "get_status"})

    def devices(self) -> list[Json]:
        """The devices, keys as `gpus --json`."""
        found: list[Json] = self._ask({"kind": "get_devices"})["devices"]
        return found

    def explain(self, subject: str) -> Json:
        """Why a job (or `profile:NAME`) waits: `verdict`, `gates`, `blockers`, `options`."""
        return self._ask({"kind": "explain_job", "subject": subject})

    # -- ending --------------------------------------------------------------------------------

    def cancel(
        self,
        *jobs: str,
        peer: str | None = None,
        reason: str = "cancelled",
        running: bool = False,
        admission_timeout: bool = False,
    ) -> list[CancelInfo]:
        """Withdraw queued jobs; with `running` also end running ones. Any number of them."""
        requests = cancel_requests(
            jobs,
            peer=peer,
            reason=reason,
            running=running,
            admission_timeout=admission_timeout,
        )
        return [
            CancelInfo.of(item) for request in requests for item in self._ask(request)["results"]
        ]

    def retry(
        self,
        job: str,
        *,
        peer: str | None = None,
        command: Iterable[Text] | None = None,
        cwd: Text | None = None,
        environment: Mapping[Any, Any] | None = None,
        retry_of: str | None = None,
        lost: bool = False,
        request_id: str | None = None,
    ) -> SubmitResult:
        """Try a job that ended badly again; what is None is as stored (the environment: ours).

        `retry_of` names the attempt that is to be followed (`j-12.1`): asked again, after an answer
        that was lost, it runs once. `lost` means also a job whose end nobody knows.
        """
        words = None if command is None else wire_command(command)
        variables, size = self._environments.encode(environment)
        check_total(words or [], size)
        request = {
            "kind": "retry_job",
            "job": job,
            "retry_of": retry_of,
            "lost": lost,
            "peer": peer,
            "command": words,
            "cwd": None if cwd is None else working_directory(cwd),
            "environment": variables,
        }
        return SubmitResult.of(self._ask(request, request_id=request_id))

    def stop(self, *, grace_seconds: float = 5.0, dry_run: bool = False) -> Json:
        """Fence the run and end it: `rejected` and `ending` jobs."""
        return self._ask({"kind": "stop_run", "grace_seconds": grace_seconds, "dry_run": dry_run})

    def hold(self, held: bool = True) -> None:
        """Start nothing more (or again, with False); queued jobs stay queued."""
        self._ask({"kind": "hold_admission", "held": held})


def _register(peer: str, generation: int | None) -> Json:
    return {"kind": "register_idle", "peer": peer, "generation": generation}


def _lease_of(reply: Json) -> LeaseInfo | None:
    return None if reply["lease"] is None else LeaseInfo.of(reply["lease"])


def _body(request_id: str, request: Mapping[str, Any]) -> bytes:
    """The request's body. Raises `malformed_request` or `too_large`."""
    envelope = {"request_id": request_id, "request": dict(request)}
    try:
        body = _ENCODER.encode(envelope).encode("utf-8")
    except (TypeError, ValueError) as error:
        raise PraxistError("malformed_request", str(error)[:300]) from None
    if len(body) > limits.FRAME_BYTES_MAX:
        raise PraxistError(
            "too_large", f"the request has {len(body)} bytes; {limits.FRAME_BYTES_MAX} at most"
        )
    return body
