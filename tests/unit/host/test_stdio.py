"""Output nobody reads, the service manager's socket, and the environment of our processes."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from praxist_zmq.host import service_manager, spawn, stdio


def test_a_line_for_nobody_is_lost_and_the_next_meets_no_error() -> None:
    read_end, write_end = os.pipe()
    assert stdio.say("heard \udcff", write_end)
    assert os.read(read_end, 100) == b"heard \\udcff\n"
    os.close(read_end)
    assert not stdio.say("nobody", write_end)
    assert stdio.say("to /dev/null", write_end)
    os.close(write_end)
    assert not stdio.say("closed", write_end)


def test_a_full_disk_loses_the_line() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    assert not stdio.say("no room", full)
    os.close(full)


def test_inherited_descriptors_are_not_passed_on() -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    stdio.keep_from_children()
    assert not os.get_inheritable(write_end)
    os.close(read_end)
    os.close(write_end)


def test_tells_the_service_manager_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not service_manager.notify("READY=1")
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        path = str(Path(directory) / "notify")
        manager.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        assert service_manager.notify("READY=1", "STATUS=serving")
        assert manager.recv(100) == b"READY=1\nSTATUS=serving"
    assert not service_manager.notify("READY=1"), "a socket that is gone is no failure"


@pytest.mark.parametrize(
    ("allowed", "meant", "expected"),
    [("", "", None), ("4000000", "", 2000), ("4000000", "1", None), ("x", "", None)],
)
def test_the_watchdog_is_fed_twice_as_often_as_needed(
    monkeypatch: pytest.MonkeyPatch, allowed: str, meant: str, expected: int | None
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", allowed)
    monkeypatch.setenv("WATCHDOG_PID", meant)
    assert service_manager.watchdog_interval_ms() == expected


def test_the_operators_environment_stays_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    monkeypatch.setenv("PYTHONPATH", "relative")
    monkeypatch.setenv("PRAXIST_ZMQ_HOST_DIR", "/h")
    found = spawn.service_environment()
    assert "SECRET_TOKEN" not in found
    assert found["PRAXIST_ZMQ_HOST_DIR"] == "/h"
    package, operators = found["PYTHONPATH"].split(os.pathsep)
    assert (Path(package) / "praxist_zmq" / "errors.py").exists()
    assert os.path.isabs(operators)
