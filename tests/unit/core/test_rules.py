"""Small rules: what follows an end, kinds of failure, kernel limits, queue order, selectors."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from praxist_zmq.core import failure
from praxist_zmq.core.evolve import apply
from praxist_zmq.core.exec_limits import check_command, check_environment
from praxist_zmq.core.queue import CLASS_RANK, Queue
from praxist_zmq.core.retry import decide_retry
from praxist_zmq.core.selectors import select
from praxist_zmq.core.state import BrokerState, Job
from praxist_zmq.core.transitions import IllegalTransition
from praxist_zmq.errors import PraxistError
from praxist_zmq.protocol import events as ev
from praxist_zmq.protocol.text import RawBytes


def end(**facts: Any) -> Any:
    """The decision about an end, with the usual surroundings."""
    known: dict[str, Any] = {
        "outcome": "exited", "exit_code": 0, "permanent": False, "retries_used": 0,
        "retries_allowed": 1, "withdrawn_in_a_row": 0, "cut_short": False, "ending": False,
    }  # fmt: skip
    return decide_retry(**(known | facts))


def test_only_exit_75_is_retried_and_only_as_often_as_allowed() -> None:
    assert end().state == "completed"
    assert end(exit_code=1).state == "failed"
    assert end(exit_code=75).again
    assert end(exit_code=75, retries_used=1).state == "failed"
    assert end(exit_code=75, retries_used=1).category == "infrastructure"
    assert end(exit_code=75, retries_allowed=0).state == "failed"
    assert end(exit_code=75, ending=True).state == "failed"


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"exit_code": 75},
        {"exit_code": None},
        {"outcome": "unknown", "exit_code": None},
        {"outcome": "spawn_failed", "exit_code": None},
    ],
)
def test_what_was_cut_short_is_cancelled_whatever_its_status(facts: dict[str, Any]) -> None:
    decision = end(cut_short=True, **facts)
    assert (decision.again, decision.state, decision.category) == (
        False,
        "cancelled",
        "interrupted",
    )


def test_a_program_that_cannot_be_executed_is_a_permanent_failure() -> None:
    decision = end(outcome="exec_failed", exit_code=None)
    assert not decision.again
    assert failure.category("exec_failed", None, None, errno.ENOENT) == "environment"
    assert failure.category("exec_failed", None, None, errno.EACCES) == "permission"


def test_a_lost_record_is_never_success() -> None:
    assert end(outcome="unknown", exit_code=None).state == "drained_unknown"


def test_an_attempt_that_never_ran_costs_nothing_but_not_for_ever() -> None:
    decision = end(outcome="never_ran", exit_code=None)
    assert decision.again
    assert not decision.consumed
    assert not end(outcome="never_ran", exit_code=None, withdrawn_in_a_row=4).again


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("a\nValueError: x\n\n  \n", "ValueError: x"),
        ("\x1b[31mred\n", "?[31mred"),
        ("", None),
        ("RuntimeError: CUDA OOM\nwandb: Synced 5 files\n", "RuntimeError: CUDA OOM"),
        ("epoch 3 done\nwandb: Synced 5 files\n", "epoch 3 done"),
        ("wandb: Synced 5 files\n", None),
        ("sh: 1: python4: not found\nbye\n", "sh: 1: python4: not found"),
        ("cp: cannot stat 'x': No such file or directory\nbye\n",
         "cp: cannot stat 'x': No such file or directory"),
        ("assert 0 errors\n12 passed\n", "12 passed"),
        ("KeyboardInterrupt\ncleaning up\n", "KeyboardInterrupt"),
        ("ready\n\r 1%|#  | 1/9 [00:01<00:08]\rfold: 99%|## | 8/9 [00:08<00:01]\n", "ready"),
        ("ready\n 9%|# | 1/9 [00:01<00:08]worker 3 is gone\n", "worker 3 is gone"),
        ("Error: painted over\r   \rdone\n", "done"),
    ],
)  # fmt: skip
def test_the_telling_line_is_the_last_that_looks_like_an_error_else_the_last(
    log: str, line: str | None
) -> None:
    assert failure.telling_line(log) == line


@pytest.mark.parametrize(
    ("facts", "category"),
    [
        (("exited", 1, None, None), "experiment"),
        (("exited", 137, None, None), "experiment"),
        (("exited", None, 9, None), "interrupted"),
        (("exited", None, 11, None), "experiment"),
        (("exited", None, 25, None), "resource"),
        (("unknown", None, None, None), "unclassified"),
    ],
)
def test_the_class_of_a_failure_is_by_the_facts_of_its_end(facts: Any, category: str) -> None:
    assert failure.category(*facts) == category


@pytest.mark.parametrize(
    ("log", "code", "hint"),
    [
        ("permission denied test passed\n", 1, None),
        ("CUDA out of memory\nbye", 1, "its log speaks of 'out of memory' (resource)"),
        ("x: Permission denied\n", 1, "its log speaks of 'permission denied' (permission)"),
        ("", 137, "exit 137 is how a shell tells a death by signal 9"),
        ("fine\n", 3, None),
    ],
)  # fmt: skip
def test_words_of_a_log_are_a_hint_beside_the_facts(log: str, code: int, hint: str | None) -> None:
    assert failure.hint(log, code, "") == hint
    seen = "disk full at its end: 0.0 MiB of 24.0 MiB are free"
    assert failure.hint(log, code, seen) == "; ".join(filter(None, (seen, hint)))


@pytest.mark.parametrize(
    ("environment", "code"),
    [
        ({"A=B": "c"}, "bad_command"),
        ({"A": "x\0y"}, "bad_command"),
        ({"A": "x" * 140_000}, "too_large"),
        ({"A": RawBytes(base64="no!")}, "bad_command"),
    ],
)
def test_an_environment_that_no_program_can_receive_is_refused(
    environment: dict[str, Any], code: str
) -> None:
    with pytest.raises(PraxistError) as caught:
        check_environment(environment)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("command", "cwd", "size", "code"),
    [
        (("",), "/", 0, "bad_command"),
        (("a", "b\0"), "/", 0, "bad_command"),
        (("a", "x" * 131_072), "/", 0, "too_large"),
        (("a",), "relative", 0, "bad_directory"),
        (("a",), "/", 2_000_000, "too_large"),
    ],
)
def test_a_command_that_cannot_be_executed_is_refused(
    command: tuple[str, ...], cwd: str, size: int, code: str
) -> None:
    with pytest.raises(PraxistError) as caught:
        check_command(command, cwd, size)
    assert caught.value.code == code


def job(number: int, work_class: Any = "ordinary", profile: str = "cpu", queued: int = 0) -> Job:
    """A queued job."""
    return Job(
        job=f"j-{number}", number=number, job_id=f"{number:032x}", identity=f"{number:064x}",
        tag=f"t{number}", peer="p", generation=0, profile=profile, work_class=work_class,
        eta_ms=None, command=("x",), cwd="/", environment_id="e", lease_id=None, uid=None,
        state="queued", submitted_at_ms=0, queue_sequence=queued or number, version=number,
    )  # fmt: skip


def test_mature_goes_first_unless_the_exploration_reserve_is_open() -> None:
    queue = Queue()
    for waiting in (job(1, "scout"), job(2, "ordinary"), job(3, "mature")):
        queue.put(waiting)
    assert [name for _, name in queue.heads()] == ["j-3", "j-2", "j-1"]
    assert [name for _, name in queue.heads(non_mature_first=True)] == ["j-1", "j-2", "j-3"]


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(CLASS_RANK)), st.sampled_from("ab"), st.booleans()),
        max_size=40,
    )
)
def test_the_queue_is_a_sorted_list_with_removals(wishes: list[tuple[Any, str, bool]]) -> None:
    queue = Queue()
    left = []
    for number, (work_class, profile, removed) in enumerate(wishes, 1):
        waiting = job(number, work_class, profile)
        queue.put(waiting)
        queue.put(waiting)
        if removed:
            assert queue.remove(waiting.job)
            assert not queue.remove(waiting.job)
        else:
            left.append(waiting)
    expected = sorted(left, key=lambda j: (CLASS_RANK[j.work_class], j.queue_sequence))
    assert list(queue.in_order()) == [j.job for j in expected]
    assert len(queue) == len(left)
    if expected:
        assert queue.heads()[0][1] == expected[0].job


def test_selectors_name_one_job_or_say_why_not() -> None:
    state = BrokerState(run_id="r", last_job_number=2)
    for found in (job(1), job(2)):
        state.jobs[found.job] = found
        state.tags[found.tag] = found.job
    assert select(state, "j-1").number == select(state, "1").number == 1
    assert select(state, "last").number == 2
    assert select(state, "tag:t1").number == 1
    assert select(state, f"{2:032x}").number == 2
    for text, code in [("j-9", "unknown_job"), ("0000", "ambiguous_job"), ("?", "unknown_job")]:
        with pytest.raises(PraxistError) as caught:
            select(state, text)
        assert caught.value.code == code


def test_an_illegal_event_raises_and_changes_nothing() -> None:
    state = BrokerState()
    with pytest.raises(IllegalTransition):
        apply(ev.AllocationReleased(at_ms=0, attempt="j-1.1"), state, 1)
    with pytest.raises(IllegalTransition):
        apply(ev.AdmissionClosed(at_ms=0, reason="x"), state, 2)
    assert state == BrokerState()


def test_a_job_that_is_put_back_keeps_its_place_and_takes_no_second_one() -> None:
    queue, first, second = Queue(), job(1), job(2)
    for _ in range(10):
        queue.put(second)
        queue.put(first)
        queue.remove("j-1")
        queue.put(first)
        queue.remove("j-2")
    queue.put(second)
    assert [name for _, name in queue.heads()] == ["j-1"]
    assert sum(len(heap) for heap in queue.lanes.values()) == 2
    queue.remove("j-1")
    first.queue_sequence = 9  # queued anew: behind the other, whatever its stale entry says
    queue.put(first)
    assert [name for _, name in queue.heads()] == ["j-2"]
    assert list(queue.in_order()) == ["j-2", "j-1"]
