"""What the shim records, with the kernel's answers chosen by the test."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from praxist_zmq.host import shim as module
from praxist_zmq.host.shim import Shim

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
