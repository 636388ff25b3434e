"""One turn of the broker's machine: the state it works on and what it has decided so far.

`record` is the one way an event is made: applied at once, so that the next decision of the turn
sees it, and kept for the shell, which makes it durable before anything of the turn is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ..errors import PraxistError
from ..protocol.events import JobQueued
from ..protocol.ids import job_of
from ..protocol.replies import Refusal
from ..protocol.views import JobView
from .commands import ClientRequest
from .credentials import redact_all
from .decision import Decision, Send, Stamp
from .evolve import apply
from .soft import SoftState, Unanswered
from .state import BrokerState

if TYPE_CHECKING:
    from .views import Viewer


class Refused(PraxistError):
    """A refusal that may show the job it is about."""

    def __init__(
        self, code: str, detail: str, help: list[str] | None = None, job: JobView | None = None
    ) -> None:
        super().__init__(code, detail, help or [])
        self.job = job


def refusal_of(error: PraxistError) -> Refusal:
    """The wire form of a refusal."""
    job = error.job if isinstance(error, Refused) else None
    return Refusal(
        code=error.code,
        detail=error.detail,
        help=tuple(error.help or [error.row.help]),
        job=job,
    )


def subject(event: Any) -> tuple[str | None, str | None]:
    """(job, attempt) an event is about."""
    # Not getattr: a model looks for a field it lacks in four places, per event 7 us.
    fields = vars(event)
    attempt: str | None = fields.get("attempt")
    job: str | None = fields.get("job")
    if job is None and attempt is not None:
        job = job_of(attempt)
    return job, attempt


@dataclass(slots=True)
class Turn:
    """The machine's hands during one command."""

    state: BrokerState
    soft: SoftState
    stamp: Stamp
    decision: Decision = field(default_factory=Decision)
    viewer: Viewer | None = None
    """What `views.view` has worked out so far, while it holds: one more waiting job changes none
    of it."""

    def __post_init__(self) -> None:
        self.soft.now_ms = self.stamp.mono_ms
        self.soft.now_at_ms = self.stamp.at_ms

    def record(self, event: BaseModel) -> int:
        """Make an event: applied now, durable before anything of this turn is sent."""
        sequence = self.state.last_sequence + 1
        apply(event, self.state, sequence)
        self.decision.events.append(event)
        if not isinstance(event, JobQueued):
            self.viewer = None
        self.soft.history.append((sequence, event))
        if self.soft.audience:
            self.soft.unpublished.append((sequence, event))
        job, attempt = subject(event)
        if job is not None:
            self.soft.touched[job] = None
        held = self.state.attempts.get(attempt) if attempt is not None else None
        if held is not None and held.device_uuids:
            self.soft.fleet.changed(held.device_uuids)
        return sequence

    def reply(self, request: ClientRequest, message: BaseModel) -> None:
        """Answer a client."""
        self.send("client", message, request.address, request.request_id)

    def order(self, message: BaseModel) -> None:
        """Tell the launcher. Without one, nothing is lost: it is told again when it connects."""
        if self.soft.launcher_address is not None:
            self.soft.launcher_talk.orders += 1
            self.send("launcher", message, self.soft.launcher_address)

    def claim(self, message: BaseModel, what: str, attempt: str = "") -> str:
        """Ask the registry; the answer is matched by the request id returned."""
        soft = self.soft
        soft.registry_counter += 1
        request_id = f"{self.state.epoch}.{soft.registry_counter}.{what}"
        soft.registry_requests[request_id] = Unanswered(what, attempt, self.stamp.mono_ms)
        self.send("registry", message, None, request_id)
        return request_id

    def send(
        self, to: str, message: BaseModel, address: Any = None, request_id: str | None = None
    ) -> None:
        """Queue one message for after the sync."""
        self.decision.outbox.append(Send(to, message, address, request_id))

    def redacted(self, words: str) -> str:
        """What a client said, as it may be kept: without the credential values of any job."""
        return redact_all(words, self.soft.vault.each())

    def secrets_of(self, job: str) -> Mapping[str, Any]:
        """The credential values of a job, as far as they are in memory."""
        return self.soft.vault.of(job)
