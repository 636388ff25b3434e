"""However a run of units ends, no process of it is left that can be seen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.units import run
from praxist_zmq.units.descendants import find, tell
from tests.support.wait import wait_until
from tests.units.programs import acting

HARNESS = """
import sys
from praxist_zmq import units
from tests.units.programs import acting
units.run(["a", "b", "c"], acting(*sys.argv[1:]), grace_s=0.3, directory="d")
"""


def pids() -> list[int]:
    path = Path("pids")
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


@pytest.fixture(autouse=True)
def _no_survivor() -> Iterator[None]:
    yield
    left = [pid for pid in pids() if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


@pytest.mark.parametrize("kind", ["grandchild", "daemon"])
def test_what_a_unit_leaves_is_ended_before_its_place_is_taken_again(kind: str) -> None:
    outcome = run(["a", "b", "c"], acting(kind, "result:1"), grace_s=1.0)
    assert outcome.complete
    assert len(pids()) == 3
    assert not any(alive(pid) for pid in pids())


def test_a_deaf_unit_over_its_time_is_killed() -> None:
    outcome = run(
        ["a"], acting("deaf", "grandchild", "pid", "wait:never"), timeout_s=1.5, grace_s=0.2
    )
    (attempt,) = outcome.units[0].attempts
    assert (attempt.status, attempt.signal, attempt.left) == ("timeout", 9, ())
    assert len(pids()) == 2


def test_an_exception_of_the_worker_drains_the_rest() -> None:
    worker = acting("grandchild", "pid", "wait:never")

    def failing(unit: object) -> list[str]:
        if unit.key == "b":  # type: ignore[attr-defined]
            wait_until(lambda: len(pids()) == 2, "the first unit to work")
            raise RuntimeError("a fault of the task's")
        return worker(unit)  # type: ignore[arg-type]

    with pytest.raises(RuntimeError, match="of the task's"):
        run(["a", "b"], failing, grace_s=0.3, directory="d")
    assert not any(alive(pid) for pid in pids())
    kept = json.loads(Path("d/unit_failures.json").read_text())
    assert [one["status"] for one in kept["failures"]] == ["interrupted"]
    assert kept["not_run"] == ["b"]


@pytest.fixture
def harness() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HARNESS, "deaf", "grandchild", "daemon", "pid", "wait:never"]
    )
    wait_until(lambda: len(pids()) == 6, "two units with two descendants each")
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_everything_and_is_handed_on(
    harness: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    harness.send_signal(number)
    assert harness.wait(timeout=30) == -number
    assert not any(alive(pid) for pid in pids())
    kept = json.loads(Path("d/unit_failures.json").read_text())
    assert kept["stopped_by"] == number.name
    assert {one["status"] for one in kept["failures"]} == {"interrupted"}
    assert kept["not_run"] == ["c"]


def test_units_die_with_an_evaluator_that_was_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", HARNESS, "pid", "wait:never"])
    wait_until(lambda: len(pids()) == 2, "two units")
    process.kill()
    process.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids()), "the units to die")


def test_only_marked_processes_and_descendants_are_found() -> None:
    environ = {**os.environ, "PRAXIST_UNIT_MARK": "abc.1.1"}
    words = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"]
    process = subprocess.Popen(words, env=environ, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        found = find("abc.")
        assert list(found) == [process.pid]
        assert find("abc.1.1") == found
        assert find("nothing.", [os.getpid()]).items() >= found.items(), "as a descendant of ours"
        for other in ("abc.1.11", "abc.1", "ab.", "bc.1.1", "abc.2."):
            assert not find(other), other
        stranger = {process.pid: found[process.pid] + 1}
        assert tell(stranger, signal.SIGKILL) == [], "another start time is another process"
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
