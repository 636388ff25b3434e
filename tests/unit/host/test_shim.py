"""What the shim records, with the kernel's answers chosen by the test."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from praxist_zmq.host import shim as module
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.host.shim import Barred, Shim, go_frame, launch_frame

USAGE = SimpleNamespace(ru_utime=0.0, ru_stime=0.0, ru_maxrss=0)


def test_a_descendant_that_gets_the_leaders_number_does_not_change_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    directory = os.open(tmp_path, os.O_RDONLY)
    recorded: list[int | None] = []
    try:
        shim = Shim("j-1.1", b"nonce", theirs, directory, -1)
        answers = iter([(50, 3 << 8, USAGE), (0, 0, USAGE), (50, 0, USAGE)])

        def wait4(pid: int, flags: int) -> tuple[int, int, object]:
            found = next(answers, None)
            if found is None:
                raise ChildProcessError
            return found

        monkeypatch.setattr(module.os, "wait4", wait4)
        monkeypatch.setattr(
            shim, "record_exit", lambda outcome, status, *rest: recorded.append(status)
        )
        shim.watch(50)
    finally:
        os.close(directory)
        ours.close()
        theirs.close()
    assert recorded == [3 << 8]


def _take_go(until_ms: int, *, called_back: bool) -> list[bytes]:
    """What a shim makes of a GO that lay in its channel."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.send(launch_frame([b"true"], b"/", {}) + go_frame(b"nonce", until_ms))
        if called_back:
            ours.shutdown(socket.SHUT_WR)
        return Shim("j-1.1", b"nonce", theirs, -1, -1).wait_for_go()


def test_a_go_is_taken_while_it_holds_and_is_not_called_back() -> None:
    now_ms = SystemClock().mono_ms()
    assert _take_go(now_ms + 600_000, called_back=False) == [b"/", b"1", b"true"]
    with pytest.raises(Barred):
        _take_go(now_ms + 600_000, called_back=True)
    with pytest.raises(Barred):
        _take_go(now_ms - 1, called_back=False)
