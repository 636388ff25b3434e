"""Units over devices: every device works, nothing depends on who ends first, masks stay."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.binding import ASSIGNED, MASKS, NARROWED, BindingConflict
from praxist_zmq.units import Unit, UnitsError, current, in_python, run
from praxist_zmq.units.plan import places
from tests.support.run import ROOT
from tests.units.programs import WORK, acting, score, shell

WAIT = 'while [ ! -e "go-$1" ]; do sleep 0.005; done; echo "\\"$1\\"" > "$2"'


def seen(path: str = "seen") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_every_device_works_under_the_exact_mask() -> None:
    outcome = run(["s0", "s1", "s2", "s3"], acting("seen:seen", "result:1"))
    assert outcome.complete
    assert outcome.exit_code == 0
    assert outcome.unused_devices == ()
    rows = seen()
    assert {row["device"] for row in rows} == {"GPU-a", "GPU-b"}
    for row in rows:
        assert {row[name] for name in (ASSIGNED, *MASKS)} == {"GPU-b,GPU-a"}
        assert row[NARROWED] is None
        assert row["pgid"] == os.getpgrp(), "units stay in the attempt's process group"


def test_narrowed_units_see_their_device_alone() -> None:
    assert run(["s0", "s1"], acting("seen:seen", "result:1"), narrow=True).complete
    for row in seen():
        assert {row[name] for name in (NARROWED, *MASKS)} == {row["device"]}
        assert row[ASSIGNED] == "GPU-b,GPU-a"


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_the_aggregate_does_not_depend_on_who_ends_first(order: tuple[str, ...]) -> None:
    left = list(order)

    def release(done: int, total: int, text: str) -> None:
        if left:
            Path(f"go-{left.pop(0)}").touch()

    outcome = run(["a", "b", "c"], shell(WAIT), per_device=2, aggregate=list, report=release)
    assert outcome.aggregate == ["a", "b", "c"]
    assert [unit.key for unit in outcome.units] == ["a", "b", "c"]


def test_places_are_taken_device_by_device() -> None:
    taken = [(place.device, place.slot) for place in places(("GPU-b", "GPU-a"), 2, 9)]
    assert taken == [("GPU-b", 0), ("GPU-a", 0), ("GPU-b", 1), ("GPU-a", 1)]
    assert [place.device for place in places((), 2, 3)] == [None, None, None]


def test_cpu_units_share_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASSIGNED, "")
    given: list[Unit] = []

    def worker(unit: Unit) -> list[str]:
        given.append(unit)
        return ["/bin/true"]

    assert run(["a", "b", "c"], worker, cpu_slots=2).complete
    assert {unit.device for unit in given} == {None}
    assert {unit.slot for unit in given} == {0, 1}


def test_a_device_without_a_unit_is_told() -> None:
    outcome = run(["only"], shell("true"))
    assert outcome.unused_devices == ("GPU-a",)
    assert json.loads(outcome.summary.read_text())["unused_devices"] == ["GPU-a"]


def test_a_function_runs_in_a_child() -> None:
    outcome = run(["x", "yy"], in_python(score))
    assert outcome.results == {
        "x": {"score": 1, "device": "GPU-b"},
        "yy": {"score": 2, "device": "GPU-a"},
    }


def test_a_function_of_a_script_runs_in_a_child(tmp_path: Path) -> None:
    script = tmp_path / "evaluate.py"
    script.write_text(
        "from praxist_zmq import units\n"
        "def f(unit):\n    return unit.key * 2\n"
        "if __name__ == '__main__':\n"
        "    print(units.run(['a', 'b'], units.in_python(f)).results)\n"
    )
    shown = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert shown.stdout == "{'a': 'aa', 'b': 'bb'}\n", shown.stderr


def test_a_function_that_cannot_be_found_again_is_refused() -> None:
    with pytest.raises(UnitsError, match="top of a module"):
        in_python(lambda unit: 1)


def test_progress_never_goes_back_and_ends_whole() -> None:
    told: list[tuple[int, int]] = []
    run(list("abcdef"), shell("true"), report=lambda d, t, text: told.append((d, t)))
    assert told == sorted(told)
    assert told[0] == (0, 6)
    assert told[-1] == (6, 6)


def test_units_run_outside_the_main_thread_too() -> None:
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(run(["a"], shell("true"))))
    thread.start()
    thread.join()
    assert outcomes[0].complete


def test_each_run_has_a_directory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAXIST_EXPERIMENT_ATTEMPT_ID", "j-3.1")
    places_ = {run(["a"], shell("true")).summary.parent.name for _ in range(2)}
    assert places_ == {"units-j-3.1", "units-j-3.1.2"}


def test_an_earlier_result_in_the_directory_is_no_result() -> None:
    assert run(["a"], shell('echo 1 > "$2"'), directory="d").results == {"a": 1}
    assert run(["a"], shell("true"), directory="d").results == {"a": None}


def test_a_run_inside_a_unit() -> None:
    program = (
        "from praxist_zmq import units; units.run(['x','y'],"
        " lambda u: ['/bin/sh', '-c', 'echo 7 > $0', u.result], directory='inner-' +"
        " units.current().key)"
    )
    outcome = run(["a", "b"], lambda unit: [sys.executable, "-c", program], narrow=True)
    assert outcome.complete
    inner = json.loads(Path("inner-a/unit_failures.json").read_text())
    assert inner["succeeded"] == 2


@pytest.mark.parametrize(
    ("keys", "options", "where"),
    [
        ([], {}, "units"),
        ("abc", {}, "units"),
        (["a", "a"], {}, "units"),
        (["a\nb"], {}, "units"),
        (["a"], {"per_device": 0}, "per_device"),
        (["a"], {"identical_errors_max": 0}, "identical_errors_max"),
        (["a"], {"timeout_s": 0}, "timeout_s"),
        (["a"], {"directory": "/proc/none"}, "/proc/none"),
    ],
)
def test_wrong_arguments_are_refused(keys: Any, options: Any, where: str) -> None:
    with pytest.raises(UnitsError) as caught:
        run(keys, shell("true"), **options)
    assert where in caught.value.where
    assert caught.value.mend in str(caught.value)


def test_a_shell_text_is_no_command() -> None:
    with pytest.raises(UnitsError, match="list of words"):
        run(["a"], lambda unit: "echo hello")


def test_a_mask_that_differs_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MASKS[0], "0")
    with pytest.raises(BindingConflict):
        run(["a"], shell("true"))


def test_outside_a_unit_there_is_no_current_one() -> None:
    with pytest.raises(UnitsError, match="of no unit"):
        current({})
    with pytest.raises(UnitsError, match="malformed"):
        current({"PRAXIST_UNIT": "[]"})
    assert Path(WORK).is_relative_to(ROOT)
