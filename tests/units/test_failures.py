"""What fails: kept and told, tried again only as told, and stopping the rest only when proved."""

from __future__ import annotations

import doctest
import json
from collections.abc import Callable
from typing import Any

import pytest

from praxist_zmq.units import Outcome, Unit, in_python, outcome, run, unit
from praxist_zmq.units.plan import Streak
from tests.units.programs import diverge, odd, shell

KEYS = [f"fold{number}" for number in range(8)]


def summary(found: Outcome) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(found.summary.read_text())
    return content


def statuses(found: Outcome) -> list[str]:
    return [one.status for one in found.units]


def test_the_examples_of_the_modules_hold() -> None:
    for module in (unit, outcome):
        result = doctest.testmod(module)
        assert result.attempted
        assert result.failed == 0


def test_identical_errors_prove_the_rest_non_runnable() -> None:
    found = run(KEYS, shell('echo "ImportError: no module x ($1, 0x7f$3)" >&2; exit 1'))
    assert statuses(found)[:2] == ["error", "error"]
    assert statuses(found).count("error") <= 4, "those that ran beside the third may end too"
    assert statuses(found)[-1] == "not_run"
    assert found.failed_fast == "exit 1: ImportError: no module x (UNIT, ADDRESS)"
    assert found.exit_code == 1
    assert found.aggregate is None
    kept = summary(found)
    assert kept["failed_fast"] == found.failed_fast
    assert kept["not_run"] == [one.key for one in found.units if one.status == "not_run"]
    first = kept["failures"][0]
    assert (first["unit"], first["attempt"], first["exit_code"]) == ("fold0", 1, 1)
    assert first["device"] == "GPU-b"
    assert "ImportError" in first["tail"]
    assert first["started_at"] <= first["ended_at"]
    assert (found.summary.stat().st_mode & 0o777) == 0o600


def test_a_program_that_is_missing_is_such_an_error() -> None:
    found = run(KEYS, lambda unit: ["/none/such"])
    assert statuses(found).count("error") == 3
    assert found.failed_fast is not None
    assert "No such file" in found.failed_fast


@pytest.mark.parametrize(
    "text",
    [
        'echo "error of kind $(printf %s "$1" | tr 0-9 a-j)"; exit 1',  # all different
        'case "$1" in *[02468]) echo same; exit 1;; esac; exit 0',  # others succeed between
        "exit 20",  # scientific failures
        "echo 0.01 > $2",  # low scores
    ],
)
def test_nothing_else_stops_the_rest(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAXIST_ASSIGNED_GPU_UUIDS", "GPU-a")
    found = run(KEYS, shell(text))
    assert found.failed_fast is None
    assert "not_run" not in statuses(found)


@pytest.mark.parametrize(
    "text",
    [
        'mkfifo "$2"',  # opening it would wait for ever
        'ln -s /dev/zero "$2"',
        'rm -r "$(dirname "$2")"; exit 1',
        'cd "$(dirname "$2")" && rm 0000.1.log && mkfifo 0000.1.log; exit 1',
    ],
)
def test_what_a_unit_does_to_its_files_is_its_own_failure(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRAXIST_ASSIGNED_GPU_UUIDS", "GPU-a")
    only = f'if [ "$1" = fold0 ]; then {text}; else echo 1 > "$2"; fi'
    found = run(KEYS[:3], shell(only))
    assert statuses(found) == ["error", "succeeded", "succeeded"]
    (failure,) = summary(found)["failures"]
    assert failure["unit"] == "fold0"


def test_the_rest_can_be_made_to_run_anyway() -> None:
    found = run(KEYS, shell("exit 1"), identical_errors_max=None)
    assert statuses(found) == ["error"] * 8


def test_timeouts_end_units_and_stop_nothing() -> None:
    keys = KEYS[:4]
    found = run(keys, shell("exec sleep 60"), timeout_s=0.1, per_device=2)
    assert statuses(found) == ["timeout"] * 4
    assert found.failed_fast is None
    assert summary(found)["failures"][0]["signature"] == "not done within 0.1 s"


def test_only_what_is_named_is_tried_again() -> None:
    text = 'case "$1$3" in fold01|fold02|fold11) exit 75;; fold2*) exit 3;; esac; echo 1 > "$2"'
    found = run(KEYS[:3], shell(text), retries=2)
    assert [len(one.attempts) for one in found.units] == [3, 2, 1]
    assert statuses(found) == ["succeeded", "succeeded", "error"]
    assert found.results == {"fold0": 1, "fold1": 1}
    once = run(KEYS[:3], shell(text))
    assert [len(one.attempts) for one in once.units] == [1, 1, 1]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("true", 0),
        ("exit 75", 75),
        ('case "$1" in fold0) exit 75;; esac', 75),
        ('case "$1" in fold0) exit 75;; fold1) exit 1;; esac', 1),
        ('case "$1" in fold0) exit 75;; fold1) exit 20;; esac', 1),
        ("kill -9 $$", 1),
    ],
)
def test_the_exit_code_is_75_for_passing_faults_alone(text: str, code: int) -> None:
    assert run(KEYS, shell(text)).exit_code == code


def test_a_scientific_failure_of_a_function() -> None:
    found = run(KEYS[:4], in_python(diverge))
    assert statuses(found) == ["scientific"] * 4
    assert summary(found)["failures"][0]["tail"].strip().startswith("ScientificFailure: loss is")


@pytest.mark.parametrize("worker", [in_python(odd), shell('echo "{" > "$2"'), shell('mkdir "$2"')])
def test_a_result_that_cannot_be_read_is_an_error(worker: Callable[[Unit], list[str]]) -> None:
    found = run(["a"], worker)
    assert statuses(found) == ["error"]
    assert found.results == {}


def test_a_partial_result_is_never_aggregated() -> None:
    found = run(["a", "b"], shell('[ "$1" = a ] && echo 1 > "$2"'), aggregate=sum)
    assert found.aggregate is None
    assert found.results == {"a": 1}


def test_a_streak_counts_different_units_with_one_signature() -> None:
    streak = Streak(2)
    for unit_, signature in [("a", "x"), ("a", "x"), ("b", "y"), ("c", None), ("b", "y")]:
        streak.note(unit_, signature)
        assert streak.proved is None
    streak.note("d", "y")
    assert streak.proved == "y"
    streak.note("e", None)
    assert streak.proved is None, "one that ran shows that the rest may"
