"""`progress`, and where it is shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from praxist_zmq.cli.queue import where_or_why
from praxist_zmq.cli.show import page
from praxist_zmq.units.telling import ProgressTold

from .conftest import Outcome
from .fake_scheduler import RUNNING, view

Call = Callable[..., Outcome]
TOLD = {"done": 3, "total": 6, "text": "fold 3", "at": "2026-11-29T12:30:00.000Z"}


def answering(monkeypatch: pytest.MonkeyPatch, told: ProgressTold) -> None:
    monkeypatch.setattr("praxist_zmq.cli.progress.tell_progress", lambda *_, **__: told)


@pytest.mark.parametrize("steps", ["3", "3/", "a/b", "7/6", "3/0", "-1/2"])
def test_malformed_steps_are_a_usage_error(call: Call, steps: str) -> None:
    assert call("progress", "--", steps).exit_code == 2


def test_outside_a_job_it_says_so(call: Call) -> None:
    outcome = call("progress", "3/6")
    assert outcome.exit_code == 2
    assert "inside a job" in outcome.err


def test_what_became_of_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, ProgressTold("taken", shown=TOLD))
    taken = call("progress", "3/6", "fold 3")
    assert (taken.exit_code, taken.out, taken.err) == (0, "", "")
    document = call("progress", "3/6", "--json").document
    assert (document["kind"], document["reception"], document["shown"]) == (
        "progress", "taken", TOLD
    )  # fmt: skip
    answering(monkeypatch, ProgressTold("passed_over", shown=TOLD))
    assert "3/6 fold 3" in call("progress", "2/6").err
    answering(monkeypatch, ProgressTold("refused", "ended", "unknown_job"))
    assert call("progress", "2/6").exit_code == 65


@pytest.mark.parametrize(
    "told",
    [ProgressTold("unreachable", "away"), ProgressTold("refused", "soon", "scheduler_restarting")],
)
def test_an_absent_scheduler_fails_no_experiment(
    call: Call, monkeypatch: pytest.MonkeyPatch, told: ProgressTold
) -> None:
    answering(monkeypatch, told)
    outcome = call("progress", "2/6")
    assert outcome.exit_code == 0
    assert outcome.err.startswith("not told: ")


def test_it_is_shown() -> None:
    running = view(**RUNNING, progress=TOLD)
    assert any("3/6 fold 3  at 2026-11-29 12:30" in line for line in page(running))
    assert "3/6 fold 3" in where_or_why(running)
