"""Finding or starting the registry, also when twenty want it at once."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.host.paths import HostPaths
from praxist_zmq.host.runtime_dir import ScopeDirectory
from praxist_zmq.service import registry_start
from praxist_zmq.service.child import service_command
from praxist_zmq.service.registry_start import ensure_registry
from tests.support.registry_process import Asker
from tests.support.wait import wait_until


@pytest.fixture
def asker(host: HostPaths) -> Iterator[Asker]:
    asker = Asker(host)
    yield asker
    asker.close()


def test_it_is_started_once_detached_and_found_again(host: HostPaths, asker: Asker) -> None:
    ensure_registry(host)
    first = host.registry_info.read_text()
    assert asker.rows() == ()
    ensure_registry(host)
    assert host.registry_info.read_text() == first
    with open("/proc/self/stat") as stat:
        own_session = stat.read().split()[5]
    pid = int(first.split('"pid": ')[1].split(",")[0])
    assert Path(f"/proc/{pid}/stat").read_text().split()[5] != own_session
    assert os.readlink(f"/proc/{pid}/fd/2") == str(host.log / "registry.log")


def test_twenty_at_once_start_one(host: HostPaths) -> None:
    program = (
        "from praxist_zmq.service.registry_start import ensure_registry\n"
        "from praxist_zmq.host.default_scope import host_scope\n"
        "from praxist_zmq.host.paths import HostPaths\n"
        "ensure_registry(HostPaths(host_scope()))"
    )
    others = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(6)]
    with ThreadPoolExecutor(14) as threads:
        done = [threads.submit(ensure_registry, host) for _ in range(14)]
    assert [future.result() for future in done] == [ScopeDirectory(os.geteuid(), shared=False)] * 14
    assert [other.wait(60) for other in others] == [0] * 6
    assert (host.log / "registry.log").read_text().count(" serves ") == 1


def test_a_socket_left_by_a_killed_registry_is_no_registry(host: HostPaths, asker: Asker) -> None:
    ensure_registry(host)
    pid = int(host.registry_info.read_text().split('"pid": ')[1].split(",")[0])
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not registry_start.serves(host), "the killed one to be gone")
    assert host.registry_socket.exists()
    ensure_registry(host)
    assert asker.view().version == 0
    assert "epoch 2 serves" in (host.log / "registry.log").read_text()


def test_a_lock_that_somebody_keeps_is_an_error_in_bounded_time(
    host: HostPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_start, "START_MS", 2_500)
    with host.registry_lock.open("w") as lock:
        lock.write("somebody that hangs")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PraxistError) as raised:
            ensure_registry(host)
    assert raised.value.code == "start_failed"
    assert "somebody that hangs" in raised.value.detail


def test_a_starter_that_hangs_is_an_error_in_bounded_time(
    host: HostPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_start, "START_MS", 300)
    with host.registry_start_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PraxistError) as raised:
            ensure_registry(host)
    assert raised.value.code == "start_failed"


def test_a_directory_that_others_may_write_is_refused(host: HostPaths) -> None:
    host.directory.chmod(0o770)
    try:
        with pytest.raises(PraxistError) as raised:
            ensure_registry(host)
    finally:
        host.directory.chmod(0o700)
    assert raised.value.code == "unsafe_path"


def test_the_registrys_own_refusal_reaches_the_starter(host: HostPaths) -> None:
    (host.directory / "ledger").write_text("not a directory")
    with pytest.raises(PraxistError) as raised:
        ensure_registry(host)
    assert raised.value.code == "unsafe_path"


def test_nothing_of_the_working_directory_is_run(
    host: HostPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("zmq.py", "praxist_zmq.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    ensure_registry(host)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kills", [2, 3])
def test_one_that_is_killed_while_it_starts_is_started_again(
    host: HostPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    script = tmp_path / "registry"
    script.write_text(
        f'echo >> "{tmp_path}/starts"\n'
        f'[ $(wc -l < "{tmp_path}/starts") -le {kills} ] && kill -KILL $$\n'
        f'exec {" ".join(service_command("registry"))} "$@"\n'
    )
    monkeypatch.setattr(registry_start, "service_command", lambda name: ["/bin/sh", str(script)])
    if kills < registry_start.SILENT_ENDS_MAX:
        ensure_registry(host)
        assert registry_start.serves(host)
    else:
        with pytest.raises(PraxistError) as raised:
            ensure_registry(host)
        assert "without a word" in raised.value.detail
