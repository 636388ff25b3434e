"""The one door to the scheduler: every verb asks through here.

Turns refusals into errors that keep the job they are about. Never starts anything.
Standard library only (the client itself needs zmq); the fast verbs import this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Protocol

from ..errors import PraxistError
from ..host.paths import RunPaths
from ..protocol.envelope import Json
from .advice import nearest_job, nearest_profile, no_run_here
from .run_selection import find_run
from .settings import Settings


class Caller(Protocol):
    """What the command line needs of `praxist_zmq.client.Client`."""

    def call(self, request: Json, timeout_s: float | None = None) -> Json:
        """The reply to one request, resent until it is answered or the time is over."""
        ...

    def events(
        self, after_sequence: int = 0, job: str | None = None, *, follow: bool = False
    ) -> Iterator[Any]:
        """Events after a ledger sequence; with `follow` without end."""
        ...

    def lease_wait(
        self, peer: str, timeout_s: float | None = None, generation: int | None = None
    ) -> Any:
        """A peer's lease once it has one."""
        ...

    def __enter__(self) -> Any: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def connect(settings: Settings) -> Caller:
    """A client of the run meant. Raises no_run, ambiguous_run, no_scheduler and the like."""
    run = RunPaths.of(find_run(settings.run_dir))
    settings.run = str(run.run_dir)
    if not run.scheduler.exists():
        raise no_run_here(run)
    from ..client import Client

    return Client(run.run_dir, settings.timeout_s)


def ask(client: Caller, request: Json, timeout_s: float | None) -> Json:
    """The reply to one request. Raises the refusal as the client's `RefusedError`."""
    reply = client.call(request, timeout_s=timeout_s)
    if reply.get("kind") == "refusal":
        from ..client import RefusedError

        error = RefusedError.of(reply)
        if error.code == "unknown_profile":
            named = str(request.get("profile") or request.get("subject") or "")
            error.help = [*nearest_profile(named, error.help), *error.help]
        raise error
    return reply


def ask_job(client: Caller, request: Json, job: str, timeout_s: float) -> Json:
    """`ask` about a job somebody named; what is no job is answered with the nearest tag."""
    try:
        return ask(client, request, timeout_s)
    except PraxistError as error:
        if error.code == "unknown_job":
            error.help = [*nearest_job(client, job, timeout_s), *error.help]
        raise


def job_of_error(error: PraxistError) -> Json | None:
    """The job an error is about, as the broker sent it."""
    job = getattr(error, "answer", {}).get("job")
    return job if isinstance(job, dict) else None
