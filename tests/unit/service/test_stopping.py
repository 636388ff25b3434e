"""Whom a stop may signal once the shim is gone. The orphan is a real process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.core.launch import Life, Phase
from praxist_zmq.host import tree
from praxist_zmq.host.attempt_files import AttemptFiles
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.host.ending import Fallen, Members, without_shim
from praxist_zmq.host.identity import ProcStat, identity_of, stat_of
from praxist_zmq.host.paths import RunPaths
from praxist_zmq.protocol.process import ProcessIdentity
from praxist_zmq.protocol.reports import AttemptJudged, AttemptLingers
from praxist_zmq.service.attempt_handle import Handle
from praxist_zmq.service.attempts import Attempts
from praxist_zmq.service.stopping import EndingByOrder
from praxist_zmq.service.wakeups import Wakeups
from tests.support.wait import wait_until


class FakeNursery:
    """A fake: there is no zygote."""

    pid = -1


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Attempts]:
    wakeups = Wakeups()
    files = AttemptFiles(RunPaths.of(tmp_path / "run"))
    nursery: Any = FakeNursery()
    yield Attempts(files, SystemClock(), nursery, wakeups, 1024, "scope")
    wakeups.close()


@pytest.fixture
def orphan() -> Iterator[subprocess.Popen[bytes]]:
    """A process that fell to this launcher: it is our child, and neither zygote nor shim."""
    process = subprocess.Popen(["sleep", "100"], start_new_session=True, env={})
    yield process
    process.kill()
    process.wait()


def identity(pid: int) -> ProcessIdentity:
    found = identity_of(pid)
    assert found is not None
    return found


def gone() -> ProcessIdentity:
    """The shim that was destroyed: nobody has this identity any more."""
    return identity(os.getpid()).model_copy(update={"pid": 2**22 + 1})


def put(attempts: Attempts, name: str, phase: Phase, shim: ProcessIdentity) -> Handle:
    handle = Handle(life=Life(name, phase=phase, shim=shim))
    attempts.handles[name] = handle
    return handle


def test_the_only_attempt_without_a_shim_owns_the_orphan(
    attempts: Attempts, orphan: subprocess.Popen[bytes]
) -> None:
    handle = put(attempts, "j-1.1", Phase.SWEEPING, gone())
    put(attempts, "j-2.1", Phase.RUNNING, identity(os.getpid()))
    ending = EndingByOrder(attempts, lambda known: [])
    ending.stop(handle, 0)
    assert handle.stop is not None
    ending.stop_step(handle, handle.stop, attempts.clock.mono_ms())
    assert orphan.wait(20) == -9


def test_an_orphan_that_may_be_anothers_is_not_signalled_but_holds(
    attempts: Attempts, orphan: subprocess.Popen[bytes]
) -> None:
    """The other shim's death was not told yet: its attempt still counts as running."""
    handle = put(attempts, "j-1.1", Phase.SWEEPING, gone())
    put(attempts, "j-2.1", Phase.RUNNING, gone().model_copy(update={"start_ticks": 1}))
    ending = EndingByOrder(attempts, lambda known: [])
    ending.stop(handle, 0)
    assert handle.stop is not None
    ending.stop_step(handle, handle.stop, handle.stop.stuck_at_ms)
    assert handle.life.stuck == (orphan.pid,)
    assert orphan.poll() is None


def test_anothers_evaluator_is_left_out(
    attempts: Attempts, orphan: subprocess.Popen[bytes]
) -> None:
    handle = put(attempts, "j-1.1", Phase.SWEEPING, gone())
    leader = identity(orphan.pid)
    life = Life("j-2.1", phase=Phase.SWEEPING, shim=gone(), leader=leader)
    attempts.handles["j-2.1"] = Handle(life=life)
    ending = EndingByOrder(attempts, lambda known: [])
    for _ in range(2):
        ending.sweep_step(handle, attempts.clock.mono_ms())
    assert handle.life.phase is Phase.ENDED
    assert orphan.poll() is None


def test_what_was_seen_below_the_shim_stays_the_attempts(
    attempts: Attempts, orphan: subprocess.Popen[bytes]
) -> None:
    """Its parent is nobody that is asked, its environment empty: only the look before tells."""
    handle = put(attempts, "j-1.1", Phase.SWEEPING, gone())
    put(attempts, "j-2.1", Phase.SWEEPING, gone().model_copy(update={"pid": 2**22 + 2}))
    handle.seen = {identity(orphan.pid)}
    ending = EndingByOrder(attempts, lambda known: [])
    ending.stop(handle, 0)
    assert handle.stop is not None
    ending.stop_step(handle, handle.stop, attempts.clock.mono_ms())
    wait_until(lambda: orphan.poll() is not None, "the orphan to end")


def test_one_in_doubt_is_looked_at_again_while_it_lives(
    attempts: Attempts, orphan: subprocess.Popen[bytes]
) -> None:
    """A claim registry that starts falls to the supervisor, and has no lock yet."""
    handle = put(attempts, "j-1.1", Phase.SWEEPING, gone())
    put(attempts, "j-2.1", Phase.RUNNING, gone().model_copy(update={"start_ticks": 1}))
    found = stat_of(identity(orphan.pid))
    assert found is not None
    strays = [found]

    class OnlyStrays(EndingByOrder):
        """As if no orphan had fallen to us: the stray alone is in doubt."""

        def members(self, handle: Handle) -> Members:
            return Members(doubtful=tuple(strays))

    ending = OnlyStrays(attempts, lambda known: [])
    now = attempts.clock.mono_ms()
    ending.sweep_step(handle, now)
    assert handle.wake_at_ms is not None
    ending.look_who_lingers(handle, now)
    (told,) = [r for r in attempts.outbox if isinstance(r, AttemptLingers)]
    assert [(one.pid, one.name) for one in told.processes] == [(orphan.pid, "sleep")]
    assert not told.proved
    strays.clear()
    for _ in range(2):
        ending.sweep_step(handle, now)
    assert handle.life.phase is Phase.ENDED
    judged = [r.evidence for r in attempts.outbox if isinstance(r, AttemptJudged)]
    assert judged == ["members", "nothing_found"]
    assert orphan.poll() is None


@pytest.mark.parametrize("hint", [False, True])
def test_a_copied_environment_holds_the_attempt_and_is_never_signalled(
    attempts: Attempts, tmp_path: Path, hint: bool
) -> None:
    """Anybody can copy an environment, and forge the evidence that names a group."""
    directory = str(RunPaths.of(tmp_path / "run").attempt("j-1.1"))
    copied = subprocess.Popen(
        ["setsid", "sleep", "100"], env={"PRAXIST_EXPERIMENT_ATTEMPT_DIR": directory}
    )
    try:
        wait_until(lambda: tree.names_attempt(copied.pid, directory), "its environment")
        shim = gone().model_copy(update={"start_ticks": 1})
        left = without_shim(directory, shim, None, copied.pid if hint else None, Fallen())
        assert [stat.pid for stat in left.doubtful] == [copied.pid]
        assert left.ours == ()
        leader = gone().model_copy(
            update={"pid": 2**22 + 2}
        )  # proved; the copy is not of its group
        left = without_shim(directory, shim, leader, None, Fallen())
        assert copied.pid not in {stat.pid for stat in left.ours}
        of_its_own = identity(copied.pid)
        left = without_shim(directory, shim, of_its_own, None, Fallen())
        assert [stat.pid for stat in left.ours] == [copied.pid], "the kernel's word and its own"
    finally:
        copied.kill()
        copied.wait()


def test_all_of_proc_is_read_only_when_somebody_ended(
    attempts: Attempts, orphan: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = 0
    every = tree.processes

    def counted() -> Iterator[ProcStat]:
        nonlocal scans
        scans += 1
        return every()

    monkeypatch.setattr(tree, "processes", counted)
    handle = put(attempts, "j-1.1", Phase.SWEEPING, gone())
    ending = EndingByOrder(attempts, lambda known: [])
    for now in range(0, 600_000, 1_000):
        ending.sweep_step(handle, now)
    assert scans == 1
    assert handle.wake_at_ms is None
    orphan.kill()
    attempts.wakeups.wait(20)
    assert handle.wake_at_ms is not None
    orphan.wait()
    for now in range(2):
        ending.sweep_step(handle, now)
    assert handle.life.phase is Phase.ENDED
    assert handle.orphan_fd is None


def test_what_will_not_end_is_told_once_a_minute(attempts: Attempts) -> None:
    """A tree that forks has other members at every look."""
    handle = put(attempts, "j-1.1", Phase.SWEEPING, gone())
    ending = EndingByOrder(attempts, lambda known: [])
    ending.stop(handle, 0)
    assert handle.stop is not None
    start = handle.stop.stuck_at_ms
    forks = iter(range(1_000))

    class FakeMembers(EndingByOrder):
        """A fake of a tree that changes at every look and cannot be ended."""

        def members(self, handle: Handle) -> Members:
            stat = ProcStat(2**22 + next(forks), "D", 1, 1, 1, 1)
            return Members(doubtful=(stat,))

    ending = FakeMembers(attempts, lambda known: [])
    for now in range(start, start + 119_000, 1_000):
        ending.stop_step(handle, handle.stop, now)
    assert len(attempts.outbox) == 2
