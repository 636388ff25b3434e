"""Who is left of an attempt whose shim is gone: what is proved, and what only seems so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from praxist_zmq.host.ending import Fallen, Members, without_shim
from praxist_zmq.host.identity import identity_of, read_stat
from praxist_zmq.protocol.process import ProcessIdentity
from tests.support.wait import wait_until

DIRECTORY = "/run/of/a/test/attempts/j-1.1"
NAMED = {"PRAXIST_EXPERIMENT_ATTEMPT_DIR": DIRECTORY}
WITH_CHILD = """
import subprocess, sys
subprocess.Popen(["sleep", "100"])
sys.stdin.read()
"""
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process in a session of its own; ended with all below it whatever happens."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*command: str, **options: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command or ("sleep", "100"),
            start_new_session=True,
            stdin=subprocess.PIPE,
            **options,  # type: ignore[call-overload]
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def _shim() -> ProcessIdentity:
    """Stands for a shim that is gone: only its start counts."""
    found = identity_of(os.getpid())
    assert found is not None
    return found


def _left(leader: ProcessIdentity | None, fallen: Fallen, group: int | None = None) -> Members:
    return without_shim(DIRECTORY, _shim(), leader, group, fallen)


def _pids(members: Members) -> tuple[set[int], set[int]]:
    return {stat.pid for stat in members.ours}, {stat.pid for stat in members.doubtful}


def test_a_copied_environment_makes_nothing_ours(start: Start) -> None:
    stranger = start(env=NAMED)
    assert _pids(_left(None, Fallen(only_one=True))) == (set(), {stranger.pid})
    hinted = _left(None, Fallen(only_one=True), group=stranger.pid)
    assert _pids(hinted) == (set(), {stranger.pid}), "a file's word bears nothing out"


def test_the_group_of_a_proved_evaluator_bears_the_environment_out(start: Start) -> None:
    evaluator = start(sys.executable, "-c", WITH_CHILD, env={**os.environ, **NAMED})
    leader = identity_of(evaluator.pid)
    assert leader is not None

    def below() -> set[int]:
        return _pids(_left(leader, Fallen()))[0] - {evaluator.pid}

    wait_until(below, "the child")
    ours, doubtful = _pids(_left(leader, Fallen()))
    assert (len(ours), doubtful) == (2, set())
    (child,) = below()
    evaluator.kill()
    evaluator.wait()
    assert _pids(_left(leader, Fallen())) == ({child}, set()), "its leader is gone"


def test_what_fell_from_an_attempt_of_the_run_bears_the_environment_out(start: Start) -> None:
    orphan = start(env=NAMED)
    stat = read_stat(orphan.pid)
    assert stat is not None
    for fallen in (Fallen(to_launcher=(stat,)), Fallen(to_supervisor=(stat,))):
        assert _pids(_left(None, fallen)) == ({orphan.pid}, set())
