"""Workers on a part of the devices, and local numbers: narrowing is said, and never widened."""

from __future__ import annotations

import doctest
import os

import pytest

from praxist_zmq import binding
from praxist_zmq.binding import (
    ASSIGNED,
    MASKS,
    NARROWED,
    BindingConflict,
    BindingInvalid,
    assignment,
    bind,
    child_environment,
    cpu_environment,
    local_index,
)

JOB = {ASSIGNED: "GPU-c,GPU-a,GPU-b", "HOME": "/root"}
CUDA = MASKS[0]


def test_the_examples_of_the_module_hold() -> None:
    result = doctest.testmod(binding)
    assert result.attempted > 10
    assert result.failed == 0


def test_a_worker_sees_its_part_and_the_whole_assignment() -> None:
    before = dict(JOB)
    worker = child_environment(["GPU-c", "GPU-b"], JOB)
    assert before == JOB, "the caller's environment is not changed"
    assert {worker[name] for name in (*MASKS, NARROWED)} == {"GPU-c,GPU-b"}
    assert (worker[ASSIGNED], worker["HOME"]) == (JOB[ASSIGNED], "/root")
    given = bind(worker)
    assert (given.source, given.uuids) == (NARROWED, ("GPU-c", "GPU-b"))
    assert given.allocated == ("GPU-c", "GPU-a", "GPU-b")


def test_a_worker_that_lost_its_mask_gets_its_part_back() -> None:
    worker = child_environment(["GPU-a"], JOB)
    del worker[CUDA]
    bind(worker)
    assert worker[CUDA] == "GPU-a"


def test_a_worker_is_not_widened_by_itself() -> None:
    worker = child_environment(["GPU-c", "GPU-b"], JOB)
    assert child_environment(["GPU-b"], worker)[CUDA] == "GPU-b"
    with pytest.raises(BindingInvalid, match="GPU-c,GPU-b"):
        child_environment(["GPU-a"], worker)
    worker[CUDA] = JOB[ASSIGNED]
    with pytest.raises(BindingConflict, match=CUDA):
        bind(worker)


def test_all_devices_are_no_narrowing() -> None:
    child = child_environment(["GPU-c", "GPU-a", "GPU-b"], JOB)
    assert NARROWED not in child
    assert child == child_environment(None, JOB)


@pytest.mark.parametrize("uuids", [[], ["0"], ["GPU-b", "GPU-c"], ["GPU-a", "GPU-a"], ["GPU-x"]])
def test_a_wrong_part_is_refused(uuids: list[str]) -> None:
    with pytest.raises(BindingInvalid):
        child_environment(uuids, JOB)


def test_one_text_is_not_a_list_of_devices() -> None:
    with pytest.raises(BindingInvalid, match="list"):
        child_environment("GPU-a", JOB)


def test_a_conflict_of_the_parent_is_not_handed_down() -> None:
    for make in (child_environment, cpu_environment):
        with pytest.raises(BindingConflict):
            make(environ={**JOB, CUDA: "0"})


def test_a_conflict_changes_nothing_also_not_the_other_mask() -> None:
    environ = {ASSIGNED: "GPU-a", MASKS[1]: "all"}
    before = dict(environ)
    with pytest.raises(BindingConflict) as caught:
        bind(environ)
    assert environ == before
    error = caught.value
    assert (error.variable, error.found, error.wanted) == (MASKS[1], "all", "GPU-a")


def test_a_cpu_child_says_so_and_its_children_too() -> None:
    child = cpu_environment(JOB)
    assert [child[name] for name in (*MASKS, NARROWED)] == ["", "", ""]
    given = assignment(child_environment(None, child))
    assert given.forced_cpu
    assert given.allocated == ("GPU-c", "GPU-a", "GPU-b")
    with pytest.raises(BindingInvalid):
        child_environment(["GPU-a"], child)


def test_a_cpu_child_without_a_scheduler() -> None:
    assert cpu_environment({CUDA: "3"}) == dict.fromkeys(MASKS, "")
    assert cpu_environment({ASSIGNED: "", CUDA: "-1"})[CUDA] == "-1"


def test_a_part_of_no_assignment_is_refused() -> None:
    assert child_environment(None, {CUDA: "3"}) == {CUDA: "3"}
    with pytest.raises(BindingInvalid, match=ASSIGNED):
        child_environment(["GPU-a"], {})


def test_local_numbers_follow_the_mask_and_reach_no_environment() -> None:
    environ = dict(JOB)
    bind(environ)
    before = dict(environ)
    assert [local_index(uuid, environ) for uuid in ("GPU-c", "GPU-a", "GPU-b")] == [0, 1, 2]
    assert local_index("GPU-b", child_environment(["GPU-b"], environ)) == 0
    assert environ == before


def test_a_local_number_needs_a_mask_that_is_bound() -> None:
    with pytest.raises(BindingConflict, match="bind"):
        local_index("GPU-a", JOB)
    with pytest.raises(BindingConflict):
        local_index("GPU-a", {**JOB, CUDA: "GPU-a"})
    with pytest.raises(BindingInvalid, match="GPU-x"):
        local_index("GPU-x", JOB)
    with pytest.raises(BindingInvalid):
        local_index("GPU-a", {})


def test_this_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASSIGNED, "GPU-a")
    for name in (*MASKS, NARROWED):
        monkeypatch.delenv(name, raising=False)
    try:
        assert bind() == assignment()
        assert [os.environ[name] for name in MASKS] == ["GPU-a", "GPU-a"]
        assert local_index("GPU-a") == 0
    finally:
        for name in MASKS:
            os.environ.pop(name, None)


def test_a_message_is_bounded_and_of_one_line() -> None:
    with pytest.raises(BindingConflict) as caught:
        bind({ASSIGNED: "GPU-a", CUDA: "\x1b[2J\n" * 5000})
    text = str(caught.value)
    assert len(text) < 1000
    assert text.isprintable()
