"""The registry as a real process: its lock, its ledger, its socket, its end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.core import proof
from praxist_zmq.core.claim_state import Unserved, Watch
from praxist_zmq.errors import PraxistError
from praxist_zmq.host import signals, tree
from praxist_zmq.host.attempt_files import AttemptFiles
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.host.fresh_place import FreshPlace
from praxist_zmq.host.identity import identity_of, read_stat, stat_of
from praxist_zmq.host.paths import HostPaths, RunPaths
from praxist_zmq.host.remains import lock_of
from praxist_zmq.host.runtime_dir import ensure_scope
from praxist_zmq.ledger.lock import OwnerLock
from praxist_zmq.ledger.snapshot import Snapshots
from praxist_zmq.protocol.claims import (
    Bind,
    ClaimRequestEnvelope,
    Denied,
    DeregisterRun,
    Granted,
    Registered,
    RegisterRun,
    Release,
    RunRow,
)
from praxist_zmq.protocol.codec import decode_claim_reply, encode
from praxist_zmq.protocol.process import ProcessIdentity
from praxist_zmq.service.orphan_trees import OrphanTrees
from praxist_zmq.service.registry import RegistryService
from praxist_zmq.transport.request import Connection, Requester
from tests.support.claims import command, exclusive, reserve, run_key, run_row
from tests.support.guest import Guest
from tests.support.registry_process import Asker, Process, RegistryProcess, hold_run
from tests.support.wait import wait_until


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Callable[[str], RunRow]]:
    """Runs that this very process is the broker of."""
    locks: list[OwnerLock] = []

    def make(name: str) -> RunRow:
        row, lock = hold_run(str(tmp_path / name))
        locks.append(lock)
        return row

    yield make
    for lock in locks:
        lock.release()


@pytest.fixture
def brokers(registry: RegistryProcess, tmp_path: Path) -> Iterator[Callable[[str], Guest]]:
    """Brokers of one run each, in processes of their own; all are registered."""
    made: list[Guest] = []

    def make(name: str) -> Guest:
        run = str(tmp_path / name)
        guest = Guest(registry.host, runs=(run,))
        made.append(guest)
        row = run_row(run, broker=guest.identity)
        told = guest.ask(RegisterRun(registration=1, run=row, attempts=()))
        assert told["kind"] == "registered", told
        return guest

    yield make
    for guest in made:
        guest.end()


@pytest.fixture
def asker(registry: RegistryProcess) -> Iterator[Asker]:
    asker = Asker(registry.host)
    yield asker
    asker.close()


@pytest.fixture
def process() -> Iterator[Callable[[], Process]]:
    made: list[Process] = []

    def make() -> Process:
        made.append(Process())
        return made[-1]

    yield make
    for one in made:
        one.end()


def test_two_runs_share_the_host(asker: Asker, ours: Callable[[str], RunRow]) -> None:
    a, b = ours("a"), ours("b")
    for row in (a, b):
        assert isinstance(asker.ask(RegisterRun(registration=1, run=row, attempts=())), Registered)
    assert isinstance(asker.ask(reserve(a.run_dir, "j-1.1", exclusive("gpu0"))), Granted)
    denied = asker.ask(reserve(b.run_dir, "j-1.1", exclusive("gpu0")))
    assert isinstance(denied, Denied)
    assert denied.view is not None
    assert {run.run_key for run in denied.view.runs} == {a.run_key, b.run_key}


def test_only_the_process_that_holds_a_runs_lock_registers_it(
    asker: Asker, brokers: Callable[[str], Guest], tmp_path: Path
) -> None:
    """Another process of the same user fences nobody, and frees nothing that another holds."""
    victim, run = brokers("a"), str(tmp_path / "a")
    assert victim.ask(reserve(run, "j-1.1", exclusive("gpu0")))["kind"] == "granted"
    me = identity_of(os.getpid())
    mine = run_row(run, 1_000_000, me)
    for row, told in (
        (mine, "does not hold"),
        (run_row(run, 1_000_000, victim.identity), "another one is named"),
        (mine.model_copy(update={"run_dir": "/"}), "key"),
    ):
        denied = asker.ask(RegisterRun(registration=1, run=row, attempts=()))
        assert (denied.code, told in denied.detail) == ("not_yours", True), denied.detail
    release = Release(registration=1, run_key=mine.run_key, epoch=1, attempt="j-1.1")
    assert asker.ask(release).code == "not_yours"
    assert len(asker.rows()) == 1
    victim.end()
    wait_until(lambda: not asker.runs(), "the dead broker's run to end")
    row, lock = hold_run(run)
    assert isinstance(asker.ask(RegisterRun(registration=1, run=row, attempts=())), Registered)
    lock.release()


def test_a_dead_brokers_run_ends_and_its_rows_stay_until_the_shim_is_gone(
    asker: Asker,
    brokers: Callable[[str], Guest],
    process: Callable[[], Process],
    tmp_path: Path,
) -> None:
    broker, shim, run = brokers("a"), process(), str(tmp_path / "a")
    broker.ask(reserve(run, "j-1.1", exclusive("gpu0")))
    assert broker.ask(bound(run, shim.identity))["kind"] == "granted"
    broker.end()
    wait_until(lambda: not asker.runs(), "the dead broker's run to end")
    assert [row.attempt for row in asker.rows()] == ["j-1.1"]
    shim.end()
    wait_until(lambda: not asker.rows(), "the row of the shim that is gone to end")


def bound(run: str, shim: ProcessIdentity) -> Bind:
    """The first attempt of a run gets its shim."""
    return Bind(registration=1, run_key=run_key(run), epoch=1, attempt="j-1.1", shim=shim)


class ShimWithEvaluator:
    """A stand-in for a shim, with one for its evaluator below it that outlives it."""

    def __init__(self, directory: str, *, named: bool, log: str | None) -> None:
        environment = dict(os.environ)
        if named:
            environment["PRAXIST_EXPERIMENT_ATTEMPT_DIR"] = directory
        output = ">/dev/null" if log is None else f">>{log}"
        self._popen = subprocess.Popen(
            ["setsid", "-w", "bash", "-c", f"setsid sleep 600 {output} 2>&1 & echo $!; read -r x"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._popen.stdout is not None
        found = identity_of(int(self._popen.stdout.readline()))
        assert found is not None
        stat = stat_of(found)
        assert stat is not None
        shim = identity_of(stat.parent)
        assert shim is not None
        self.evaluator, self.shim = found, shim

    def kill_shim(self) -> None:
        signals.send(self.shim, signals.KILL)
        self._popen.wait()
        self._popen.communicate()

    def end(self) -> None:
        signals.send(self.evaluator, signals.KILL)
        self.kill_shim()


@pytest.mark.parametrize("order", ["down first", "everything at once"])
def test_a_row_stays_until_the_evaluator_is_gone_though_its_shim_is(
    tmp_path: Path,
    registry: RegistryProcess,
    asker: Asker,
    brokers: Callable[[str], Guest],
    ours: Callable[[str], RunRow],
    order: str,
) -> None:
    """By descent while the shim lived, or by what the environment names."""
    broker, run = brokers("a"), tmp_path / "a"
    directory = str(RunPaths(run).attempt("j-1.1"))
    at_once = order != "down first"
    tree = ShimWithEvaluator(directory, named=at_once, log=None)
    try:
        broker.ask(reserve(str(run), "j-1.1", exclusive("gpu0")))
        assert broker.ask(bound(str(run), tree.shim))["kind"] == "granted"
        if at_once:
            registry.kill()
            tree.kill_shim()
            broker.end()
            registry.start()
        else:
            broker.end()
            wait_until(lambda: not asker.runs(), "the dead broker's run to end")
            asker.view()  # it looks below the shim before it listens again
            tree.kill_shim()
        log = registry.host.directory / "test.log"
        words = proof.EVIDENCE["members"]
        wait_until(lambda: words in log.read_text(), "the registry to see that it lives")
        other = ours("b")
        asker.ask(RegisterRun(registration=1, run=other, attempts=()))
        assert isinstance(asker.ask(reserve(other.run_dir, "j-1.1", exclusive("gpu0"))), Denied)
    finally:
        tree.end()
    wait_until(lambda: not asker.rows(), "the row to end with the evaluator")
    reply = asker.ask(reserve(other.run_dir, "j-1.1", exclusive("gpu0")))
    assert isinstance(reply, Granted)


def test_a_held_lock_keeps_a_row_of_which_nothing_else_is_found(
    tmp_path: Path,
    asker: Asker,
    brokers: Callable[[str], Guest],
    process: Callable[[], Process],
) -> None:
    """Whoever has closed, cleared and left everything, but for its output."""
    broker, shim, run = brokers("a"), process(), RunPaths(tmp_path / "a")
    broker.ask(reserve(str(run.run_dir), "j-1.1", exclusive("gpu0")))
    broker.ask(bound(str(run.run_dir), shim.identity))
    log = AttemptFiles(run).create_log("j-1.1")
    heir = subprocess.Popen(["sleep", "600"], stdout=log, env={})
    os.close(log)
    try:
        assert lock_of(run.attempt_log("j-1.1")) == "held"
        shim.end()
        broker.end()
        wait_until(lambda: not asker.runs(), "the dead broker's run to end")
        trees = OrphanTrees(lambda fd: None, lambda fd: None)
        watch = Watch(run.run_key, "j-1.1", shim.identity)
        trees.follow({watch: Unserved(str(run.run_dir), own=True)}, 0)
        assert [trees.look((), at_ms) for at_ms in (0, 60_000, 120_000)] == [(), (), ()]
        trees.close()
    finally:
        heir.kill()
        heir.wait()
    assert lock_of(run.attempt_log("j-1.1")) == "free"
    wait_until(lambda: not asker.rows(), "the row to end with the last holder of the lock")


FORKS_ON_WORD = """
import subprocess, sys
for _ in sys.stdin:
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    below = subprocess.Popen(["sleep", "600"], env={}, start_new_session=True, **quiet)
    print(below.pid, flush=True)
"""


def test_what_a_shim_has_below_it_late_is_remembered_too(tmp_path: Path) -> None:
    """An escapee that was forked long after its run went down, and keeps nothing of the attempt."""
    pipe = subprocess.PIPE
    shim = subprocess.Popen([sys.executable, "-c", FORKS_ON_WORD], stdin=pipe, stdout=pipe)
    assert shim.stdin is not None
    assert shim.stdout is not None
    opened: list[int] = []
    trees = OrphanTrees(opened.append, opened.remove)
    run, identity = RunPaths(tmp_path / "a"), identity_of(shim.pid)
    assert identity is not None
    watch = Watch(run.run_key, "j-1.1", identity)
    unserved = {watch: Unserved(str(run.run_dir), own=True)}
    trees.follow(unserved, 0)
    shim.stdin.write(b"fork\n")
    shim.stdin.flush()
    escapee = int(shim.stdout.readline())
    try:
        now_ms = trees.due_ms()
        assert now_ms is not None
        assert trees.look((), now_ms) == ()
        shim.kill()
        shim.wait()
        trees.shims_gone([watch])
        assert [trees.look((), now_ms + after_ms) for after_ms in (0, 60_000, 120_000)] == [()] * 3
    finally:
        os.kill(escapee, signals.KILL)
    wait_until(lambda: not tree.living(filter(None, [read_stat(escapee)])), "its end")
    looks = [trees.look(tuple(opened), now_ms + after_ms) for after_ms in (180_000, 240_000)]
    assert looks[-1] == (watch,)
    trees.close()
    for pipe_end in (shim.stdin, shim.stdout):
        pipe_end.close()


def test_kill_keeps_everything_and_finds_who_died_meanwhile(
    registry: RegistryProcess,
    asker: Asker,
    brokers: Callable[[str], Guest],
    process: Callable[[], Process],
    tmp_path: Path,
) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    lives, dies, shim = brokers("a"), brokers("b"), process()
    lives.ask(reserve(a, "j-1.1", exclusive("gpu0")))
    dies.ask(reserve(b, "j-1.1", exclusive("gpu1")))
    dies.ask(bound(b, shim.identity))
    before = asker.view().allocations
    registry.kill()
    assert registry.start()["ready"]["epoch"] == 2
    assert asker.view().allocations == before
    registry.kill()
    dies.end()
    shim.end()
    registry.start()
    assert [run.run_key for run in asker.runs()] == [run_key(a)]
    # The broker of the other one might come back, and know more of what its shim has left.
    assert {row.run_key for row in asker.rows()} == {run_key(a), run_key(b)}
    wait_until(
        lambda: [row.run_key for row in asker.rows()] == [run_key(a)], "the orphan's row to end"
    )


def test_a_second_registry_says_who_holds_the_lock_and_ends_well(
    registry: RegistryProcess, asker: Asker
) -> None:
    assert registry.popen is not None
    second = RegistryProcess(registry.host)
    told = second.start()
    assert second.popen is not None
    assert second.popen.wait(60) == 0
    assert str(registry.popen.pid) in told["held"]
    assert asker.rows() == (), "the first one still serves"


def test_it_ends_in_order_when_asked(registry: RegistryProcess) -> None:
    info = json.loads(registry.host.registry_info.read_text())
    assert registry.popen is not None
    assert info["pid"] == registry.popen.pid
    assert registry.terminate() == 0
    assert not registry.host.registry_socket.exists()
    assert not registry.host.registry_info.exists()


def test_it_ends_by_itself_only_when_nothing_is_held(
    host: HostPaths, process: Callable[[], Process], ours: Callable[[str], RunRow]
) -> None:
    registry = RegistryProcess(host, idle_s=0.3)
    registry.start()
    asker = Asker(host)
    try:
        assert registry.popen is not None
        row, shim = ours("a"), process()
        asker.ask(RegisterRun(registration=1, run=row, attempts=()))
        asker.ask(reserve(row.run_dir, "j-1.1", exclusive("gpu0")))
        asker.ask(bound(row.run_dir, shim.identity))
        asker.ask(DeregisterRun(registration=1, run_key=row.run_key, epoch=1))
        clock = SystemClock()
        since = clock.mono_ms()
        wait_until(lambda: clock.mono_ms() - since > 600, "twice the idle time to pass")
        assert registry.popen.poll() is None
        shim.end()
        assert registry.popen.wait(60) == 0
    finally:
        asker.close()
        registry.kill()


def test_malformed_requests_are_refused_and_nothing_changes(
    registry: RegistryProcess, asker: Asker
) -> None:
    raw = Requester(os.fspath(registry.host.registry_socket), SystemClock().mono_ms, pings=False)
    try:
        for body, code in (
            (b'{"request_id":"request-x1","request":{"kind":"nonsense"}}', "unknown_request"),
            (b'{"request_id":"request-x1","request":{"kind":"reserve"}}', "malformed_request"),
            (b'{"request_id":"request-x1","request":' + b"[" * 5000, "malformed_request"),
        ):
            reply = raw.request(body, "request-x1", timeout_s=5, patience_s=5)
            assert (reply["kind"], reply["code"]) == ("denied", code)
    finally:
        raw.close()
    assert asker.view().version == 0


@pytest.mark.parametrize("name", ["registry.lock", "registry.sock", "registry.json", "ledger"])
def test_a_registry_that_nobody_would_find_ends_and_is_followed(
    registry: RegistryProcess, name: str
) -> None:
    path = registry.host.directory / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert registry.popen is not None
    assert registry.popen.wait(20) == 74
    assert "was removed or replaced" in (registry.host.directory / "test.log").read_text()
    assert "ready" in registry.start()
    assert registry.popen.poll() is None


def test_an_unregistered_run_is_denied(asker: Asker) -> None:
    denied = asker.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    assert denied.code == "unknown_run"


@pytest.mark.parametrize(
    ("words", "idle", "status"),
    [
        ([], "5", 2),
        (["--ready-fd", "x", "DIR"], "5", 2),
        (["DIR"], "soon", 2),
        (["DIR"], "-1", 2),
    ],
)
def test_wrong_arguments_are_told(
    host: HostPaths, words: list[str], idle: str, status: int
) -> None:
    named = [str(host.directory) if word == "DIR" else word for word in words]
    done = subprocess.run(
        [sys.executable, "-m", "praxist_zmq.service.registry", *named],
        env={**os.environ, "PRAXIST_ZMQ_REGISTRY_IDLE_S": idle},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status
    assert b"wrong usage" in done.stderr


def test_a_directory_that_others_may_write_is_refused(host: HostPaths) -> None:
    host.directory.chmod(0o775)
    registry = RegistryProcess(host)
    told = registry.start()
    host.directory.chmod(0o700)
    assert told["error"]["code"] == "unsafe_path"
    assert registry.popen is not None
    assert registry.popen.wait(60) == 73


def test_damage_in_the_ledger_stops_the_start(registry: RegistryProcess) -> None:
    registry.kill()
    registry.start()  # a second record, so that damage to the first is not a torn tail
    registry.kill()
    segments = [p for p in registry.host.ledger.iterdir() if b"registry_opened" in p.read_bytes()]
    segment = segments[0]
    data = segment.read_bytes()
    at = data.index(b"registry_opened")
    segment.write_bytes(data[:at] + b"REGISTRY" + data[at + 8 :])
    told = registry.start()
    assert told["error"]["code"] == "ledger_damaged"
    assert registry.popen is not None
    assert registry.popen.wait(60) == 74


def test_views_are_pushed_to_registered_brokers(
    registry: RegistryProcess, asker: Asker, ours: Callable[[str], RunRow]
) -> None:
    broker = Connection(os.fspath(registry.host.registry_socket))
    got: list[Any] = []

    def receive() -> list[Any]:
        got.extend(decode_claim_reply(body) for body in broker.receive())
        return got

    try:
        asked = command(
            RegisterRun(registration=1, run=ours("a"), attempts=()),
            "register-1",
        )
        body = encode(ClaimRequestEnvelope(request_id="register-1", request=asked.request))
        wait_until(lambda: broker.send(body), "the connection")
        wait_until(lambda: any(e.request_id == "register-1" for e in receive()), "the answer")
        asker.ask(RegisterRun(registration=1, run=ours("b"), attempts=()))
        wait_until(
            lambda: any(e.request_id is None and len(e.reply.runs) == 2 for e in receive()),
            "the pushed view",
        )
    finally:
        broker.close()


class FakeFullLedger:
    """A ledger with something to compact."""

    sealed_since_snapshot = 1
    last_sequence = 1
    low_space = False

    def maintain(self) -> None:
        """Nothing to bring back."""

    def close(self) -> None:
        """Nothing is open."""


def test_a_snapshot_that_the_disk_has_no_room_for_does_not_end_it(
    host: HostPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def full(self: Snapshots, sequence: int, data: bytes) -> None:
        tried.append(sequence)
        raise PraxistError("no_space", "the fake disk is full")

    clock = SystemClock()
    place = FreshPlace([], host.directory, clock.mono_ms())
    service = RegistryService(host, ensure_scope(host.directory), clock, 60.0, place)
    real = service._ledger
    try:
        monkeypatch.setattr(Snapshots, "write", full)
        monkeypatch.setattr(service, "_ledger", FakeFullLedger())
        service._compact()
        service._compact()
        assert tried == [1], "tried once, and then not in every turn"
    finally:
        monkeypatch.undo()
        assert service._ledger is real
        service.close()
        place.close()
