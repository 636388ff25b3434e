"""Two users in one host scope that is shared on purpose: each is held to the rules, none to the
other's will."""

from __future__ import annotations

import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.host.paths import HostPaths
from praxist_zmq.protocol.claims import (
    Bind,
    DeregisterRun,
    Granted,
    RaiseLimit,
    Registered,
    RegisterRun,
    Release,
    ReportLoad,
    RunRow,
    ViewHost,
)
from tests.support.claims import exclusive, reserve, run_key, run_row
from tests.support.guest import (
    CHECKOUT,
    Guest,
    as_user,
    cannot_be_another_user,
    environment_of_others,
    interpreter_of_others,
)
from tests.support.registry_process import Asker, Process, RegistryProcess, hold_run
from tests.support.wait import wait_until

GUEST, OTHER = 64_001, 64_002


@pytest.fixture(autouse=True)
def another_user() -> None:
    reason = cannot_be_another_user()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def scope() -> Iterator[HostPaths]:
    directory = Path(tempfile.mkdtemp(prefix="pz-shared-", dir="/tmp"))
    directory.chmod(0o711)
    yield HostPaths(directory)
    shutil.rmtree(directory)


@pytest.fixture
def registry(scope: HostPaths) -> Iterator[RegistryProcess]:
    process = RegistryProcess(scope)
    assert "ready" in process.start()
    yield process
    process.kill()


@pytest.fixture
def owner(registry: RegistryProcess) -> Iterator[Asker]:
    asker = Asker(registry.host)
    yield asker
    asker.close()


@pytest.fixture
def guest(registry: RegistryProcess) -> Iterator[Guest]:
    process = Guest(registry.host, GUEST)
    yield process
    process.end()


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[RunRow]:
    """The owner's run; this process is its broker."""
    row, lock = hold_run(str(tmp_path / "ours"))
    yield row
    lock.release()


@pytest.fixture
def stranger() -> Iterator[Process]:
    """A process that is nobody's broker."""
    process = Process()
    yield process
    process.end()


def join(guest: Guest, name: str = "theirs") -> None:
    """A guest registers its run."""
    reply = guest.ask(
        RegisterRun(registration=1, run=run_row(name, 1, guest.identity), attempts=())
    )
    assert reply["kind"] == "registered", reply


def test_another_user_registers_and_is_held_to_the_rules(
    owner: Asker, guest: Guest, ours: RunRow
) -> None:
    assert isinstance(owner.ask(RegisterRun(registration=1, run=ours, attempts=())), Registered)
    assert isinstance(owner.ask(reserve(ours.run_dir, "j-1.1", exclusive("gpu0"))), Granted)
    join(guest)
    denied = guest.ask(reserve("theirs", "j-1.1", exclusive("gpu0")))
    assert denied["code"] == "conflict"
    assert guest.ask(reserve("theirs", "j-1.1", exclusive("gpu1")))["kind"] == "granted"
    seen = {run["run_id"]: run for run in guest.ask(ViewHost())["runs"]}
    assert (seen["ours"]["run_dir"], seen["ours"]["uid"]) == ("", 0)
    assert (seen["theirs"]["run_dir"], seen["theirs"]["uid"]) == ("/runs/theirs", GUEST)
    assert {run.run_id: run.run_dir for run in owner.runs()} == {"ours": ours.run_dir, "theirs": ""}
    assert all(run["run_dir"] in ("", "/runs/theirs") for run in denied["view"]["runs"])


def test_another_users_run_is_not_theirs(
    owner: Asker, guest: Guest, ours: RunRow, stranger: Process
) -> None:
    key, run = ours.run_key, ours.run_dir
    fence = RegisterRun(registration=1, run=run_row(run, 2, guest.identity), attempts=())
    assert guest.ask(fence)["code"] == "not_yours", "nor before it is known here"
    owner.ask(RegisterRun(registration=1, run=ours, attempts=()))
    owner.ask(reserve(run, "j-1.1", exclusive("gpu0")))
    owner.ask(Bind(registration=1, run_key=key, epoch=1, attempt="j-1.1", shim=stranger.identity))
    before = owner.view()
    for request in (
        fence,
        reserve(run, "j-2.1", exclusive("gpu1")),
        Bind(registration=1, run_key=key, epoch=1, attempt="j-1.1", shim=guest.identity),
        Release(registration=1, run_key=key, epoch=1, attempt="j-1.1"),
        ReportLoad(registration=1, run_key=key, epoch=1, running=0, queued=0, limit=1),
        RaiseLimit(registration=1, run_key=key, epoch=1, interval_ms=1),
        DeregisterRun(registration=1, run_key=key, epoch=1),
    ):
        assert guest.ask(request)["code"] == "not_yours"
    assert owner.view() == before


def test_what_a_dead_run_holds_stays_its_users(
    owner: Asker, guest: Guest, ours: RunRow, stranger: Process
) -> None:
    owner.ask(RegisterRun(registration=1, run=ours, attempts=()))
    owner.ask(reserve(ours.run_dir, "j-1.1", exclusive("gpu0")))
    owner.ask(
        Bind(registration=1, run_key=ours.run_key, epoch=1, attempt="j-1.1", shim=stranger.identity)
    )
    owner.ask(DeregisterRun(registration=1, run_key=ours.run_key, epoch=1))
    row = run_row(ours.run_dir, 2, guest.identity)
    taken = guest.ask(RegisterRun(registration=1, run=row, attempts=("j-1.1",)))
    assert taken["code"] == "not_yours"
    assert len(owner.rows()) == 1
    stranger.end()
    wait_until(lambda: not owner.rows(), "the shim to be seen gone")


def test_only_own_processes_may_be_named(guest: Guest, stranger: Process) -> None:
    named = RegisterRun(registration=1, run=run_row("theirs", 1, stranger.identity), attempts=())
    assert guest.ask(named)["code"] == "not_yours"
    join(guest)
    plan = reserve("theirs", "j-1.1", exclusive("gpu1"))
    guest.ask(plan)
    key = run_key("theirs")
    elsewhere = stranger.identity.model_copy(update={"pid_namespace": 1})
    for shim in (stranger.identity, elsewhere):
        bind = Bind(registration=1, run_key=key, epoch=1, attempt="j-1.1", shim=shim)
        assert guest.ask(bind)["code"] == "not_yours"
        assert guest.ask(plan.model_copy(update={"shim": shim}))["code"] == "not_yours"
    own = guest.ask(
        Bind(registration=1, run_key=key, epoch=1, attempt="j-1.1", shim=guest.identity)
    )
    assert own["kind"] == "granted"


def test_a_killed_guests_run_ends_and_what_cannot_be_seen_of_it_stays_held(
    owner: Asker, guest: Guest
) -> None:
    join(guest)
    guest.ask(reserve("theirs", "j-1.1", exclusive("gpu1")))
    guest.ask(
        Bind(
            registration=1, run_key=run_key("theirs"), epoch=1, attempt="j-1.1", shim=guest.identity
        )
    )
    guest.end()
    wait_until(lambda: not owner.runs(), "the guest to be seen gone")
    assert [row.attempt for row in owner.rows()] == ["j-1.1"]


def test_noise_of_another_user_disturbs_nobody(
    owner: Asker, guest: Guest, registry: RegistryProcess
) -> None:
    join(guest)
    program = (
        "import os, socket, sys\n"
        "for number in range(200):\n"
        "    with socket.socket(socket.AF_UNIX) as noise:\n"
        "        noise.connect(sys.argv[1])\n"
        "        noise.settimeout(0.2)\n"
        "        try:\n"
        "            noise.sendall(os.urandom(4096) * (1 + number % 9))\n"
        "        except OSError:\n"
        "            pass\n"
    )
    done = subprocess.run(
        [
            *as_user(OTHER),
            interpreter_of_others() or "",
            "-c",
            program,
            str(registry.host.registry_socket),
        ],
        timeout=60,
    )
    assert done.returncode == 0
    assert [run.run_id for run in owner.runs()] == ["theirs"]
    assert guest.ask(reserve("theirs", "j-1.1", exclusive("gpu0")))["kind"] == "granted"
    assert registry.popen is not None
    assert registry.popen.poll() is None


def test_a_message_without_end_of_another_user_fills_no_memory(
    owner: Asker, registry: RegistryProcess
) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom tests.support.zmtp import RawPeer, frame\n"
        "peer = RawPeer(Path(sys.argv[1]))\nassert peer.handshake()\n"
        "piece = frame(b'x' * 250, more=True) * 4096\nsent = 0\n"
        "while sent < 200 and peer.send(piece):\n    sent += 1\n"
        "print(sent)\n"
    )
    assert registry.popen is not None
    done = subprocess.run(
        [*as_user(OTHER), interpreter_of_others() or "", "-c", program,
         str(registry.host.registry_socket)],
        cwd=CHECKOUT, env=environment_of_others(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert int(done.stdout) < 200, done.stderr
    status = Path(f"/proc/{registry.popen.pid}/status").read_text()
    peak_kib = int(status.partition("VmHWM:")[2].split()[0])
    assert peak_kib < 120 * 1024
    assert owner.view().runs == ()


def test_what_lies_in_the_scope_is_its_owners(registry: RegistryProcess, guest: Guest) -> None:
    host = registry.host
    assert stat.S_IMODE(host.registry_socket.lstat().st_mode) == 0o666
    for private in (host.registry_lock, host.ledger, host.registry_info):
        assert stat.S_IMODE(private.lstat().st_mode) & 0o077 == 0
    program = (
        "import os, sys\n"
        "for act in (lambda: os.unlink(sys.argv[1]), lambda: os.rename(sys.argv[1], '/tmp/x'),\n"
        "            lambda: os.mkdir(sys.argv[1] + '2'), lambda: os.listdir(sys.argv[2])):\n"
        "    try:\n"
        "        act()\n"
        "    except PermissionError:\n"
        "        continue\n"
        "    raise SystemExit(1)\n"
    )
    done = subprocess.run(
        [
            *as_user(OTHER),
            interpreter_of_others() or "",
            "-c",
            program,
            str(host.registry_socket),
            str(host.ledger),
        ],
        timeout=60,
    )
    assert done.returncode == 0
    assert guest.ask(ViewHost())["runs"] == []


def test_only_the_owner_starts_a_registry(scope: HostPaths) -> None:
    program = (
        "from praxist_zmq.errors import PraxistError\n"
        "from praxist_zmq.host.paths import HostPaths\n"
        "from praxist_zmq.service.registry_start import ensure_registry\n"
        "from pathlib import Path\nimport sys\n"
        "try:\n    ensure_registry(HostPaths(Path(sys.argv[1])))\n"
        "except PraxistError as error:\n    print(error.code, error.detail)\n"
    )
    start = [*as_user(GUEST), interpreter_of_others() or ""]
    told = subprocess.run(
        [*start, "-c", program, str(scope.directory)],
        cwd=CHECKOUT, env=environment_of_others(), capture_output=True, text=True, timeout=60,
    ).stdout  # fmt: skip
    assert told.startswith(f"no_registry {scope.directory} belongs to user 0, who alone may serve")
    assert f"`python -m praxist_zmq.service.registry {scope.directory} --detach`" in told
    done = subprocess.run(
        [*start, "-m", "praxist_zmq.service.registry", str(scope.directory)],
        cwd=CHECKOUT, env=environment_of_others(), capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 77
    assert list(scope.directory.iterdir()) == []


def test_a_private_scope_lets_nobody_else_in(registry: RegistryProcess, owner: Asker) -> None:
    registry.kill()
    registry.host.directory.chmod(0o700)
    assert "ready" in registry.start()
    registry.host.directory.chmod(0o711)  # the door itself must hold
    assert stat.S_IMODE(registry.host.registry_socket.lstat().st_mode) == 0o600
    program = "import socket, sys\nsocket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    python = interpreter_of_others() or ""
    done = subprocess.run(
        [*as_user(GUEST), python, "-c", program, str(registry.host.registry_socket)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "PermissionError" in done.stderr
    assert owner.view().runs == ()


def test_one_user_cannot_take_all_of_the_tables(guest: Guest, owner: Asker, ours: RunRow) -> None:
    replies = [
        guest.ask(RegisterRun(registration=1, run=run_row(f"r{n}", 1, guest.identity), attempts=()))
        for n in range(70)
    ]
    assert [reply["kind"] for reply in replies[:64]] == ["registered"] * 64
    assert {reply["code"] for reply in replies[64:]} == {"busy"}
    reply = owner.ask(RegisterRun(registration=1, run=ours, attempts=()))
    assert isinstance(reply, Registered)
