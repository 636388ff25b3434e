"""Pages that say a fact once, and all of it: `explain` of a job that does not wait, `status`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from praxist_zmq.cli import explain
from praxist_zmq.cli.failure import error_lines
from praxist_zmq.cli.settings import Settings
from praxist_zmq.cli.status import More, page
from praxist_zmq.errors import PraxistError
from praxist_zmq.protocol.envelope import Json

from .conftest import Outcome
from .fake_scheduler import RUNNING, FakeScheduler, view
from .test_reading import BLOCKERS, status_reply

Call = Callable[..., Outcome]


def _explained(verdict: str, **facts: object) -> Json:
    return {
        "job": view(**facts), "verdict": verdict, "position": None, "gates": [],
        "blockers": [], "options": [],
    }  # fmt: skip


def test_a_running_job_is_told_with_where_since_when_how_long_and_its_log() -> None:
    lines = explain.page(_explained("running", **RUNNING, left_s=90.0), "j-1")
    facts = {line.split()[0]: line for line in lines[2:] if line}
    assert list(facts) == ["where", "started", "left", "attempt", "log"]
    assert facts["left"].endswith("~1m30s")
    assert facts["log"].endswith("j-1.1.log")
    assert [line.strip() for line in lines].count("running") == 0
    ending = explain.page(_explained("ending: superseded", **RUNNING), "j-1")
    assert "ending: superseded" in ending
    assert any("not known" in line for line in ending)


def test_how_a_job_ended_is_told_once() -> None:
    ended = {**RUNNING, "state": "completed", "exit_code": 0, "log_path": None}
    text = "\n".join(explain.page(_explained("completed, exit 0", **ended), "j-1"))
    assert (text.count("completed"), text.count("exit 0")) == (1, 1)


@pytest.mark.parametrize(("jobs", "told"), [(2, "j-1 "), (3, "3 gpu_compute_short   j-1 ")])
def test_waiting_jobs_are_counted_where_not_each_is_named(jobs: int, told: str) -> None:
    waiting = [view(job=f"j-{number}", blockers=BLOCKERS) for number in range(1, jobs + 1)]
    more = More(None, {"jobs": waiting, "total": jobs})
    (line,) = (line for line in page(status_reply(), more, Settings()) if "  Waiting" in line)
    assert line.startswith(f"   Waiting    {told}")


def test_a_generation_that_was_never_opened_is_told_once() -> None:
    error = PraxistError("generation_unknown", "generation 7 was never opened")
    assert error_lines(error, Settings())[0] == "rejected  generation 7 was never opened"


def test_a_refused_cancel_names_the_job_once(call: Call, scheduler: FakeScheduler) -> None:
    detail = "it is running; ending it needs --yes"
    result = {"job": "j-2", "outcome": "refused", "code": "job_runs", "detail": detail}
    scheduler.answers["cancel_jobs"] = {"kind": "cancelled_jobs", "results": [result]}
    assert call("cancel", "j-2").err.splitlines()[0] == f"refused j-2: {detail}"


def test_a_place_is_no_promise_of_an_order() -> None:
    reply = {**_explained("waits: x"), "position": 2, "blockers": list(BLOCKERS)}
    assert "(place 2 by class and age, " in "\n".join(explain.page(reply, "j-1"))
