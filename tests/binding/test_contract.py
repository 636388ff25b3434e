"""The contract between an assignment and the processes below it, with real processes.

UUID, several UUIDs, a missing mask, a conflicting mask, standalone, forced CPU: what a task harness
that uses `praxist_zmq.binding` is to keep, and what an experiment of a real run sees.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.binding import ASSIGNED, MASKS, NARROWED
from tests.binding import harness
from tests.support.run import ROOT
from tests.support.run_fixtures import MakeRun, make_run

__all__ = ["make_run"]

A = "GPU-1b3f6a52-9c0e-4a57-8d8e-0f4c2b7a9e11"
B = "GPU-7e2d90c4-51fb-4d0a-b6a3-6a1f0c9d2e22"
MIG = "MIG-5c89a1d0-3f1c-5e7b-9a44-2b6d8f0e1c33"
CUDA, NVIDIA = MASKS
LEVELS = 3
"""Evaluator, trainer, worker."""


class Family:
    """What the processes of one harness saw."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "seen"
        self.file.touch()
        self.status = 0
        self.error = ""

    def run(self, variables: dict[str, str], script: str = "") -> None:
        """Run the harness with these variables and nothing of ours beside."""
        done = subprocess.run(
            [sys.executable, harness.__file__, str(self.file), str(LEVELS), script],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.status, self.error = done.returncode, done.stderr

    @property
    def seen(self) -> list[dict[str, Any]]:
        """One entry a process, from the top."""
        return [json.loads(line) for line in self.file.read_text("utf-8").splitlines()]

    def all_see(self, assigned: str | None, mask: str | None) -> None:
        """Every process bound itself and saw this."""
        assert (self.status, self.error) == (0, "")
        assert [[each[ASSIGNED], each[CUDA], each[NVIDIA]] for each in self.seen] == [
            [assigned, mask, mask]
        ] * LEVELS


@pytest.fixture
def family(tmp_path: Path) -> Family:
    """A harness that has not run yet."""
    return Family(tmp_path)


def given(value: str) -> dict[str, str]:
    """The three variables as the scheduler sets them."""
    return dict.fromkeys((ASSIGNED, CUDA, NVIDIA), value)


# -- what stays ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [A, f"{B},{A}", f"{A},{B}", MIG, f"{MIG},{A}", "MIG-GPU-1b3f/3/0"]
)
def test_the_assignment_reaches_every_descendant_byte_for_byte(family: Family, value: str) -> None:
    family.run(given(value))
    family.all_see(value, value)
    assert all(each["uuids"] == value.split(",") for each in family.seen)


@pytest.mark.parametrize("lost", [(CUDA,), (NVIDIA,), (CUDA, NVIDIA)])
def test_a_mask_that_was_lost_is_restored(family: Family, lost: tuple[str, ...]) -> None:
    family.run(given(f"{B},{A}"), "".join(f"unset {name};" for name in lost))
    family.all_see(f"{B},{A}", f"{B},{A}")


def test_masks_are_restored_from_the_assignment_alone(family: Family) -> None:
    family.run({ASSIGNED: A})
    family.all_see(A, A)


# -- what fails ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assigned", "variable", "value", "mend"),
    [
        (A, CUDA, "0", "cuda:N inside the mask"),
        (A, NVIDIA, "0", "cuda:N inside the mask"),
        (f"{A},{B}", CUDA, "0,1", "cuda:N inside the mask"),
        (A, CUDA, B, "find what sets it"),
        (f"{A},{B}", CUDA, f"{B},{A}", "order"),
        (f"{A},{B}", CUDA, f"{A}, {B}", "spelling"),
        (f"{A},{B}", CUDA, A, "child_environment"),
        (A, CUDA, f"{A},{B}", "find what sets it"),
        (A, CUDA, A.lower(), "find what sets it"),
        (A, CUDA, "", "cpu_environment"),
        (A, CUDA, "-1", "cpu_environment"),
        (A, NVIDIA, "void", "cpu_environment"),
        (A, NVIDIA, "all", "docker run -e"),
        ("", CUDA, A, "given no device"),
        ("", NVIDIA, "all", "given no device"),
    ],
)
def test_a_mask_that_differs_fails_clearly_and_is_not_rebound(
    family: Family, assigned: str, variable: str, value: str, mend: str
) -> None:
    family.run(given(assigned), f"export {variable}='{value}';")
    assert family.status == harness.CONFLICT
    assert len(family.seen) == 1, "only the evaluator was bound"
    assert family.error.startswith(f"BindingConflict: {variable} is '{value}'")
    assert f"the assignment is '{assigned}'" in family.error
    assert mend in family.error


@pytest.mark.parametrize("assigned", ["0", f"{A},", f"{A},{A}", f"{A}, {B}", f"{A},0", "-1", " "])
def test_a_malformed_assignment_fails_clearly(family: Family, assigned: str) -> None:
    family.run({ASSIGNED: assigned})
    assert family.status == harness.CONFLICT
    assert family.error.startswith(f"BindingInvalid: {ASSIGNED} is '{assigned}'")
    assert family.seen == []


def test_a_lost_assignment_of_a_narrowed_worker_fails(family: Family) -> None:
    family.run({NARROWED: A, CUDA: A})
    assert family.status == harness.CONFLICT
    assert f"{ASSIGNED} was lost" in family.error


@pytest.mark.parametrize("narrowed", [f"{B},{A}", "GPU-other"])
def test_a_narrowing_that_is_no_part_of_the_assignment_fails(family: Family, narrowed: str) -> None:
    family.run({**given(narrowed), ASSIGNED: f"{A},{B}", NARROWED: narrowed})
    assert family.status == harness.CONFLICT
    assert "in their order" in family.error


# -- what is left alone -------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [None, "", "0", "1,0", A, "all", "-1"])
def test_without_a_scheduler_nothing_is_touched(family: Family, mask: str | None) -> None:
    family.run({} if mask is None else {CUDA: mask, NVIDIA: mask})
    family.all_see(None, mask)
    assert all(each["standalone"] for each in family.seen)


def test_a_cpu_attempt_sees_no_device(family: Family) -> None:
    family.run(given(""))
    family.all_see("", "")


def test_a_cpu_attempt_that_lost_its_masks_still_sees_no_device(family: Family) -> None:
    family.run({ASSIGNED: ""})
    family.all_see("", "")


def test_other_spellings_of_no_device_are_left_alone_in_a_cpu_attempt(family: Family) -> None:
    family.run({ASSIGNED: "", CUDA: "-1", NVIDIA: "void"})
    assert family.status == 0
    assert {(each[CUDA], each[NVIDIA]) for each in family.seen} == {("-1", "void")}


# -- a real experiment --------------------------------------------------------------------------

PAIR = """\
      pair:
        accelerator: gpu
        gpu_count: 2
        pressure_domains: []
"""


@pytest.mark.parametrize(("profile", "devices"), [("cpu", 0), ("gpu", 1), ("pair", 2)])
def test_an_experiment_of_a_run_keeps_its_devices_below_shells(
    make_run: MakeRun, family: Family, profile: str, devices: int
) -> None:
    run = make_run(sim="gpus=3,memory=80")
    run.contract.write_text(run.contract.read_text("utf-8") + PAIR, "utf-8")
    run.up()
    words = [sys.executable, harness.__file__, str(family.file), str(LEVELS), f"unset {CUDA};"]
    stale = {NARROWED: "GPU-of-another-attempt", CUDA: "7"}
    launched = run.cli(
        *("launch", "--peer", "p1", "--tag", "bound", "--profile", profile, "--", *words), env=stale
    )
    assert launched.status == 0, (launched, run.cli("logs", "last"))
    shown = run.cli("show", "last", "--json").ok().document["gpu_uuids"]
    assert len(shown) == devices
    family.all_see(",".join(shown), ",".join(shown))
    assert {each[NARROWED] for each in family.seen} == {None}
    run.down()
