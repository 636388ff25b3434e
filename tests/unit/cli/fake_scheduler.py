"""A fake scheduler behind the one seam of the command line: the client's `call` and `events`.

Every request is checked against the protocol's models, as the broker does, and every job it tells
of is a real `JobView`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

from praxist_zmq.errors import PraxistError
from praxist_zmq.protocol.codec import decode_request
from praxist_zmq.protocol.envelope import Json
from praxist_zmq.protocol.views import JobView

DEFAULTS: Json = {
    "job": "j-1",
    "job_id": "0123456789abcdef0123456789abcdef",
    "run_id": "vision-42",
    "generation": 3,
    "tag": "mixup-a0.4/protoA/seed0/full",
    "peer": "p1",
    "profile": "gpu_work",
    "work_class": "ordinary",
    "state": "queued",
    "attempts": 0,
    "attempt": None,
    "pid": None,
    "pgid": None,
    "gpu_uuids": (),
    "exit_code": None,
    "signal": None,
    "submitted_at": "2026-11-29T12:00:00.000Z",
    "started_at": None,
    "ended_at": None,
    "eta_seconds": None,
    "lease_id": None,
    "blockers": (),
    "queue_blocked_reason": None,
    "reject_code": None,
    "failure_category": None,
    "failure_signature": None,
    "log_path": None,
    "binding_status": None,
    "depends_on": (),
    "version": 10,
    "note": None,
}
RUNNING: Json = {
    "state": "running",
    "attempts": 1,
    "attempt": "j-1.1",
    "pid": 4711,
    "pgid": 4711,
    "started_at": "2026-11-29T12:00:05.000Z",
    "log_path": "/runs/vision-42/logs/experiments/j-1.1.log",
    "version": 14,
}
COMPLETED: Json = {
    **RUNNING,
    "state": "completed",
    "exit_code": 0,
    "ended_at": "2026-11-29T12:31:07.000Z",
    "version": 20,
    "pid": None,
    "pgid": None,
}
FAILED: Json = {
    **COMPLETED,
    "state": "failed",
    "exit_code": 3,
    "failure_category": "experiment",
    "failure_signature": "ValueError: fold 5 has no positive samples",
}


def view(**changes: Any) -> Json:
    """A job's view as it arrives in a client."""
    model = JobView(**{**DEFAULTS, **changes})
    loaded: Json = json.loads(model.model_dump_json())
    return loaded


def submitted(job: Json, verdict: str = "queued", **changes: Any) -> Json:
    """A `submitted` reply."""
    return {
        "kind": "submitted",
        "verdict": verdict,
        "new": verdict in ("queued", "started"),
        "profile_source": "default",
        "notes": [],
        "job": job,
        **changes,
    }


def refusal(code: str, detail: str, help: list[str] | None = None, job: Json | None = None) -> Json:
    """A `refusal` reply."""
    return {"kind": "refusal", "code": code, "detail": detail, "help": help or [], "job": job}


class FakeScheduler:
    """Scripted answers by request kind; `watch_job` walks through the changes of each job."""

    def __init__(self) -> None:
        self.answers: dict[str, Json | PraxistError] = {}
        self.history: dict[str, list[Json]] = {}
        self.requests: list[Json] = []
        self.event_lines: list[Json] = []
        self.interrupt_on_watch = False
        self.refuse_to_connect: PraxistError | None = None

    def tell(self, *views: Json) -> None:
        """The successive views of one job."""
        self.history[views[0]["job"]] = list(views)

    def client(self, run_dir: object, timeout_s: float) -> FakeClient:
        """What `praxist_zmq.client.Client(run_dir, timeout_s)` gives."""
        if self.refuse_to_connect is not None:
            raise self.refuse_to_connect
        return FakeClient(self)

    def answer(self, request: Json, timeout_s: float | None) -> Json:
        """The reply to one request."""
        self.requests.append(request)
        kind = request["kind"]
        if kind == "watch_job":
            return self._watch(request, timeout_s)
        if kind == "show_job" and kind not in self.answers:
            return {"kind": "job", "job": self._now(request["job"])}
        if kind == "show_generation" and kind not in self.answers:
            return {"kind": "generation", "generation": {"generation": DEFAULTS["generation"]}}
        if kind == "explain_job" and kind not in self.answers:
            raise PraxistError("unknown_job", "this fake forecasts nothing")
        answer = self.answers[kind]
        if isinstance(answer, PraxistError):
            raise answer
        return answer

    def _now(self, job: str) -> Json:
        return self.history[next(iter(self.history)) if job == "last" else job][0]

    def _watch(self, request: Json, timeout_s: float | None) -> Json:
        if self.interrupt_on_watch:
            raise KeyboardInterrupt
        views = self.history[request["job"]]
        while views[0]["version"] <= request["after_version"] and len(views) > 1:
            views.pop(0)
        if views[0]["version"] > request["after_version"]:
            return {"kind": "job", "job": views[0]}
        assert timeout_s is not None, "a fake scheduler would wait for ever"
        threading.Event().wait(timeout_s)
        raise PraxistError("wait_timeout", "no change in time")


class FakeClient:
    """The client's surface that the command line uses."""

    def __init__(self, scheduler: FakeScheduler) -> None:
        self._scheduler = scheduler

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def call(self, request: Json, timeout_s: float | None = None) -> Json:
        """Validate like the broker, then answer."""
        body = json.dumps({"request_id": "request-1", "request": request}).encode()
        decode_request(body)
        return self._scheduler.answer(request, timeout_s)

    def events(
        self, after_sequence: int = 0, job: str | None = None, *, follow: bool = False
    ) -> Iterator[Json]:
        """The scripted events; each moves its job one view on."""
        for event in self._scheduler.event_lines:
            views = self._scheduler.history.get(event["job"] or "", [])
            if len(views) > 1:
                views.pop(0)
            yield event
        threading.Event().wait(5.0)
