"""Forged evidence, reused numbers and other boots: a stop takes none of them for its own."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.core.proof import judge
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.host.identity import identity_of, own_namespace
from praxist_zmq.host.lineage import FIRST_PID_NAMESPACE
from praxist_zmq.host.paths import RunPaths
from praxist_zmq.host.stop_search import KnownAttempt, StopSearch
from praxist_zmq.protocol.process import ProcessIdentity
from praxist_zmq.service.stop_sweep import StopSweep


@dataclasses.dataclass(frozen=True)
class Stranger:
    """A process that no run started."""

    process: subprocess.Popen[bytes]
    identity: ProcessIdentity


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    run = RunPaths.of(tmp_path / "run")
    run.attempt("j-1.1").mkdir(parents=True)
    return run


@pytest.fixture
def stranger(run: RunPaths) -> Iterator[Stranger]:
    """It stands in a group of its own and has the environment of the attempt."""
    environment = {"PRAXIST_EXPERIMENT_ATTEMPT_DIR": str(run.attempt("j-1.1"))}
    process = subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True)
    identity = identity_of(process.pid)
    assert identity is not None
    yield Stranger(process, identity)
    process.kill()
    process.wait()


def _sweep(run: RunPaths, known: KnownAttempt) -> StopSweep:
    sweep = StopSweep(StopSearch(run, [known]), SystemClock())
    sweep.run(0)
    return sweep


def test_evidence_that_names_a_stranger_points_no_signal_at_it(
    run: RunPaths, stranger: Stranger
) -> None:
    line = {"kind": "ready", "attempt": "j-1.1", "shim": stranger.identity.model_dump()}
    (run.attempt("j-1.1") / "evidence.jsonl").write_text(json.dumps(line) + "\n")
    swept = _sweep(run, KnownAttempt("j-1.1")).swept
    assert stranger.process.poll() is None
    assert (swept.matched, swept.terminated, swept.killed) == (set(), set(), set())
    assert [left.pid for left in swept.left] == [stranger.process.pid]


@pytest.mark.parametrize("changed", [{"boot_id": "another"}, {"start_ticks": 1}])
def test_a_number_that_changed_hands_or_boots_is_nobody_s(
    run: RunPaths, stranger: Stranger, changed: dict[str, object]
) -> None:
    leader = stranger.identity.model_copy(update=changed)
    swept = _sweep(run, KnownAttempt("j-1.1", leader, leader)).swept
    assert stranger.process.poll() is None
    assert not swept.terminated | swept.killed
    assert not swept.remaining


def test_another_namespace_is_told_as_out_of_sight(run: RunPaths, stranger: Stranger) -> None:
    shim = stranger.identity.model_copy(update={"pid_namespace": 1})
    search = StopSearch(run, [KnownAttempt("j-1.1", shim)])
    told = {known.attempt: judge(seen).state for known, seen in search.out_of_sight}
    first = own_namespace() == FIRST_PID_NAMESPACE
    assert told == {"j-1.1": "gone" if first else "unseen"}, "no namespace has that number"
    assert not search.look().members
    ours = stranger.identity.model_copy(update={"boot_id": "another"})
    ((_, seen),) = StopSearch(run, [KnownAttempt("j-1.1", ours)]).out_of_sight
    assert judge(seen) == ("gone", "other_boot")


def test_the_ledger_s_word_ends_exactly_that_process_and_what_is_below_it(run: RunPaths) -> None:
    words = ["sh", "-c", "trap '' TERM; sleep 600 & wait"]
    process = subprocess.Popen(words, env={"PATH": os.environ["PATH"]}, start_new_session=True)
    leader = identity_of(process.pid)
    assert leader is not None
    try:
        known = KnownAttempt("j-1.1", leader.model_copy(update={"start_ticks": 1}), leader)
        swept = _sweep(run, known).swept
        assert process.pid in swept.matched
        assert process.pid in swept.terminated & swept.killed
        assert not swept.remaining
        process.wait()
    finally:
        process.kill()
