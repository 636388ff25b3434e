"""What the client gives out: plain values made from the scheduler's JSON.

Decides nothing. Keys that this version does not know are ignored, so an older client reads a
newer scheduler; the scheduler itself was proved to be the run's owner before it was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from ..errors import ERRORS, PraxistError
from ..protocol.envelope import Json
from ..protocol.job_states import TERMINAL_STATES

ViewT = TypeVar("ViewT")

_BLOCKER_NEEDS = frozenset({"code", "detail"})
_JOB_NEEDS = frozenset({"job", "state", "version"})
_SUBMIT_NEEDS = frozenset({"verdict", "job"})


class _Shape(NamedTuple):
    """The fields of a kind of value, worked out once."""

    names: tuple[str, ...]
    pick: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    absent: dict[str, None]
    lists: tuple[str, ...]


@cache
def _shape(kind: type) -> _Shape:
    names = tuple(field.name for field in fields(kind))
    lists = tuple(field.name for field in fields(kind) if str(field.type).startswith("tuple["))
    return _Shape(names, itemgetter(*names), dict.fromkeys(names), lists)


def known_fields(kind: type, value: object, required: frozenset[str]) -> dict[str, Any]:
    """What `value` has for the fields of `kind`; absent ones are None or empty."""
    if not isinstance(value, dict) or not required <= value.keys():
        raise PraxistError("protocol_mismatch", f"the answer holds no {kind.__name__}")
    shape = _shape(kind)
    known = dict(zip(shape.names, shape.pick({**shape.absent, **value}), strict=True))
    for name in shape.lists:
        item = known[name] or []
        if type(item) is not list:
            raise PraxistError("protocol_mismatch", f"{name!r} of the answer is no list")
        known[name] = tuple(item)
    return known


def made_of(kind: type[ViewT], known: dict[str, Any]) -> ViewT:
    """An instance with these fields. The constructor of a frozen class sets them one by one,
    for a `JobInfo` 5 us of the 60 that a submission costs here."""
    made = object.__new__(kind)
    made.__dict__.update(known)
    return made


@dataclass(frozen=True)
class BlockerInfo:
    """One reason why a job does not start now, with its numbers."""

    code: str
    detail: str
    need: float | None
    free: float | None
    limit: float | None
    unit: str | None

    @classmethod
    def of(cls, value: object) -> BlockerInfo:
        """From JSON. Raises `protocol_mismatch`."""
        return made_of(cls, known_fields(cls, value, _BLOCKER_NEEDS))


@dataclass(frozen=True)
class JobInfo:
    """One job as `show` tells it. Times are RFC 3339, UTC; None is unknown or not applicable."""

    job: str
    job_id: str
    run_id: str
    generation: int
    tag: str
    peer: str
    profile: str
    work_class: str
    state: str
    attempts: int
    attempt: str | None
    pid: int | None
    pgid: int | None
    gpu_uuids: tuple[str, ...]
    exit_code: int | None
    signal: int | None
    submitted_at: str
    queued_at: str | None
    started_at: str | None
    ended_at: str | None
    eta_seconds: float | None
    lease_id: str | None
    blockers: tuple[BlockerInfo, ...]
    queue_blocked_reason: str | None
    reject_code: str | None
    failure_category: str | None
    failure_signature: str | None
    failure_hint: str | None
    log_path: str | None
    binding_status: str | None
    depends_on: tuple[str, ...]
    version: int
    note: str | None
    progress: Json | None

    @classmethod
    def of(cls, value: object) -> JobInfo:
        """From JSON. Raises `protocol_mismatch`."""
        known = known_fields(cls, value, _JOB_NEEDS)
        known["blockers"] = tuple(map(BlockerInfo.of, known["blockers"]))
        return made_of(cls, known)

    @property
    def terminal(self) -> bool:
        """Whether it ended."""
        return self.state in TERMINAL_STATES


@dataclass(frozen=True)
class SubmitResult:
    """An accepted submission: `verdict` is `started queued joined done retrying`."""

    verdict: str
    new: bool
    profile_source: str
    notes: tuple[str, ...]
    job: JobInfo

    @classmethod
    def of(cls, value: object) -> SubmitResult:
        """From JSON. Raises `protocol_mismatch`."""
        known = known_fields(cls, value, _SUBMIT_NEEDS)
        known["job"] = JobInfo.of(known["job"])
        return made_of(cls, known)


@dataclass(frozen=True)
class Event:
    """One event of the run's history."""

    sequence: int
    at: str
    type: str
    job: str | None
    attempt: str | None
    text: str

    @classmethod
    def of(cls, value: object) -> Event:
        """From JSON. Raises `protocol_mismatch`."""
        return made_of(cls, known_fields(cls, value, frozenset({"sequence", "type"})))


@dataclass(frozen=True)
class CancelInfo:
    """What became of one job of a cancel: `cancelled`, `ending` or `refused` with a code."""

    job: str
    outcome: str
    code: str | None
    detail: str

    @classmethod
    def of(cls, value: object) -> CancelInfo:
        """From JSON. Raises `protocol_mismatch`."""
        return made_of(cls, known_fields(cls, value, frozenset({"job", "outcome"})))


class RefusedError(PraxistError):
    """The scheduler said no. `job` is the job it is about, when it said so.

    `answer` is the refusal as it came.
    """

    def __init__(
        self, code: str, detail: str, help: list[str], job: JobInfo | None, answer: Json
    ) -> None:
        if code not in ERRORS:
            code, detail = "protocol_mismatch", f"unknown refusal {code[:100]!r}: {detail}"
        super().__init__(code, detail, help)
        self.job = job
        self.answer = answer

    @classmethod
    def of(cls, reply: Json) -> RefusedError:
        """From a refusal reply."""
        lines = reply.get("help")
        job = reply.get("job")
        return cls(
            str(reply.get("code")),
            str(reply.get("detail", "")),
            [str(line) for line in lines] if isinstance(lines, list) else [],
            JobInfo.of(job) if isinstance(job, dict) else None,
            reply,
        )
