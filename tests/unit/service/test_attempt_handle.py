"""What a shim says, taken as what any process might say. The shim's end is the test's."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.core.launch import Life, Phase
from praxist_zmq.host.attempt_files import AttemptFiles
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.host.identity import identity_of
from praxist_zmq.host.paths import RunPaths
from praxist_zmq.service.attempt_handle import Handle
from praxist_zmq.service.attempts import Attempts
from praxist_zmq.service.wakeups import Wakeups

MALFORMED = (
    b"{", b"null", b"[1]", b"\xff", b"[" * 30_000, b"{}", b'{"kind":"ready"}',
    b'{"kind":"ready","shim":7}', b'{"kind":"started","leader":{},"at_ms":1}',
    b'{"kind":"ended","drained":true}', b'{"kind":1}',
)  # fmt: skip


@pytest.fixture
def handle() -> Iterator[tuple[Handle, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    made = Handle(life=Life("j-1.1"), channel=ours)
    yield made, theirs
    theirs.close()
    made.close()


@pytest.mark.parametrize("line", MALFORMED, ids=lambda line: repr(line[:30]))
@pytest.mark.parametrize("phase", [Phase.SPAWNING, Phase.RELEASED])
def test_a_malformed_line_changes_nothing(
    handle: tuple[Handle, socket.socket], line: bytes, phase: Phase, tmp_path: Path
) -> None:
    class FakeNursery:
        """A fake: there is no zygote."""

        pid = -1

    made, shim = handle
    own = identity_of(os.getpid()) if phase is Phase.RELEASED else None
    made.life = before = Life("j-1.1", phase=phase, shim=own)
    wakeups = Wakeups()
    files = AttemptFiles(RunPaths.of(tmp_path / "run"))
    attempts = Attempts(files, SystemClock(), FakeNursery(), wakeups, 1024, "scope")  # type: ignore[arg-type]
    shim.sendall(line + b"\n")
    attempts._on_channel(made, 1)
    assert made.life == before
    assert made.channel is not None
    wakeups.close()
