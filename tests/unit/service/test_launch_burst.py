"""Many attempts at once, and few descriptors: they wait their turn, and none is lost for it."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from tests.support.launcher_harness import Bench
from tests.support.wait import wait_until

HOLD = 'while [ ! -e "$0" ]; do sleep 0.02; done; exit 7'


def test_more_attempts_than_descriptors_wait_for_their_turn(tmp_path: Path) -> None:
    """Neither the soft nor the hard limit leaves room for more than a few at a time."""
    bench = Bench("ulimit -n 64;")
    names = [f"j-{number}.1" for number in range(1, 13)]
    try:
        for name in names:
            bench.spawn(name, ["sh", "-c", HOLD, str(tmp_path / "end")])
        for name in names[:4]:
            bench.expect("attempt_ready", attempt=name)
            bench.go(name)
            bench.expect("attempt_started", attempt=name)
        assert not bench.seen("attempt_ready", names[4])
        (tmp_path / "end").touch()
        for name in names:
            bench.expect("attempt_ready", attempt=name)
            bench.go(name)
            assert bench.ended(name).exit_code == 7
        assert not bench.seen("spawn_failed")
        assert len(bench.seen("launcher_connected")) == 1
    finally:
        bench.close()


def test_an_attempt_that_waits_can_be_abandoned(tmp_path: Path) -> None:
    bench = Bench("ulimit -n 52;")
    try:
        bench.launch("j-1.1", ["sh", "-c", HOLD, str(tmp_path / "end")])
        bench.spawn("j-2.1", ["touch", str(tmp_path / "ran")])
        bench.stop("j-2.1")
        assert bench.ended("j-2.1").outcome == "never_ran"
        (tmp_path / "end").touch()
        assert bench.ended("j-1.1").exit_code == 7
        assert not (tmp_path / "ran").exists()
    finally:
        bench.close()


def test_the_launcher_raises_its_limit_and_the_evaluator_keeps_the_users() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard <= 200:
        pytest.skip("the hard limit leaves nothing to raise")
    bench = Bench("ulimit -Sn 200;")
    try:
        bench.launch("j-1.1", ["sh", "-c", "ulimit -Sn; ulimit -Hn"])
        bench.ended("j-1.1")
        assert bench.log("j-1.1").split() == [b"200", str(hard).encode()]
        assert resource.prlimit(bench.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        bench.close()


def test_a_burst_larger_than_the_zygotes_socket_is_started_whole(bench: Bench) -> None:
    names = [f"j-{number}.1" for number in range(1, 321)]
    zygote = bench.zygote()
    os.kill(zygote, signal.SIGSTOP)
    for name in names:
        bench.spawn(name, ["true"])
    wait_until(lambda: bench.run.attempt(names[40]).exists(), "many to be asked for")
    os.kill(zygote, signal.SIGCONT)
    wait_until(lambda: len(bench.seen("attempt_ready")) == len(names), "all at their barrier")
    assert not bench.seen("spawn_failed")
    bench.attempts = names[-1:]  # the others end with the launcher; looking for each takes long


def test_a_zygote_that_dies_with_questions_costs_no_retry(bench: Bench) -> None:
    zygote = bench.zygote()
    os.kill(zygote, signal.SIGSTOP)
    bench.spawn("j-1.1", ["true"])
    wait_until(lambda: bench.run.attempt("j-1.1").exists(), "the zygote to be asked")
    os.kill(zygote, signal.SIGKILL)
    assert bench.ended("j-1.1").outcome == "never_ran"
