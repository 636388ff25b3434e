"""The host's registry is watched from whenever it is found, also when it ends just then."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.host.identity import read_stat
from praxist_zmq.host.paths import HostPaths
from praxist_zmq.host.runtime_dir import ScopeDirectory
from praxist_zmq.service import registry_watch
from praxist_zmq.service.registry_start import ensure_registry
from praxist_zmq.service.registry_watch import RegistryWatch
from praxist_zmq.transport.poller import Poller


@pytest.fixture
def host(host_directory: Path) -> Iterator[HostPaths]:
    yield HostPaths(host_directory)
    pid = _pid(HostPaths(host_directory))
    if pid is not None:
        _end(pid)


def _pid(host: HostPaths) -> int | None:
    if not host.registry_info.exists():
        return None
    pid: int = json.loads(host.registry_info.read_text())["pid"]
    stat = read_stat(pid)
    return pid if stat is not None and stat.state not in "ZX" else None


def _end(pid: int) -> None:
    """SIGKILL, and wait for the last thread: a process whose first one ended is a zombie already
    while the others still hold its sockets."""
    pidfd = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert poll.poll(60_000), "the registry is gone"
    finally:
        os.close(pidfd)


@pytest.mark.parametrize("orderly", [True, False])
def test_one_that_ends_between_two_looks_is_started_again_and_watched(
    host: HostPaths, monkeypatch: pytest.MonkeyPatch, orderly: bool
) -> None:
    ended = []

    def ensure_and_end_it(paths: HostPaths) -> ScopeDirectory:
        scope = ensure_registry(paths)
        pid = _pid(paths)
        assert pid is not None
        if not ended:
            ended.append(pid)
            _end(pid)
            if orderly:
                paths.registry_info.unlink()
        return scope

    monkeypatch.setattr(registry_watch, "ensure_registry", ensure_and_end_it)
    watch, poller = RegistryWatch(host), Poller()
    watch.ensure(poller)
    process = watch.process()
    assert process is not None
    assert process[0] == _pid(host) != ended[0]
    assert not watch.ended(poller)
    _end(process[0])
    assert watch.ended(poller)
    assert not watch.ended(poller)


def test_a_process_with_its_number_is_not_taken_for_it(host: HostPaths) -> None:
    ensure_registry(host)
    info = json.loads(host.registry_info.read_text())
    own = read_stat(os.getpid())
    assert own is not None
    stale = {**info["process"], "pid": os.getpid(), "start_ticks": own.start_ticks + 1}
    host.registry_info.write_text(json.dumps({**info, "process": stale}))
    watch = RegistryWatch(host)
    watch.ensure(Poller())
    assert watch.process() is None
    host.registry_info.write_text(json.dumps(info))
