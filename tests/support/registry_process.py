"""A real claim registry for tests, and stand-in brokers and shims that are real processes."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from praxist_zmq.host.clock import SystemClock
from praxist_zmq.host.identity import identity_of
from praxist_zmq.host.paths import HostPaths, RunPaths
from praxist_zmq.ledger.lock import OwnerLock
from praxist_zmq.protocol.claims import (
    AllocationRow,
    ClaimReplyEnvelope,
    ClaimRequestEnvelope,
    HostView,
    RunRow,
    ViewHost,
)
from praxist_zmq.protocol.codec import adapter, encode
from praxist_zmq.protocol.process import ProcessIdentity
from praxist_zmq.transport.request import Requester

from .claims import run_row

_numbers = itertools.count(1)


def hold_run(run_dir: str) -> tuple[RunRow, OwnerLock]:
    """Be the broker of a run: its directory is made, and the lock of its ledger taken."""
    path = RunPaths(Path(run_dir)).ledger_lock
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = OwnerLock.acquire(path, {"pid": os.getpid()})
    return run_row(run_dir, broker=identity_of(os.getpid())), lock


class Process:
    """A process that does nothing, in the place of a broker or a shim."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(["sleep", "600"])
        found = identity_of(self._popen.pid)
        assert found is not None
        self.identity: ProcessIdentity = found

    def end(self) -> None:
        """SIGKILL and reap; safe to call twice."""
        self._popen.kill()
        self._popen.wait()


class RegistryProcess:
    """`python -m praxist_zmq.service.registry`, not detached, so that a test may reap it."""

    def __init__(self, host: HostPaths, idle_s: float = 60.0) -> None:
        self.host = host
        self.idle_s = idle_s
        self.popen: subprocess.Popen[bytes] | None = None

    def start(self) -> dict[str, Any]:
        """Start it; its one line of readiness. Empty when it said nothing."""
        read_end, write_end = os.pipe()
        log = self.host.directory / "test.log"
        with log.open("ab") as output:
            self.popen = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "praxist_zmq.service.registry",
                    str(self.host.directory),
                    "--ready-fd",
                    str(write_end),
                ],
                env={**os.environ, "PRAXIST_ZMQ_REGISTRY_IDLE_S": str(self.idle_s)},
                pass_fds=[write_end],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            line = pipe.readline()
        told: dict[str, Any] = json.loads(line) if line else {}
        return told

    def kill(self) -> None:
        """SIGKILL and reap; safe to call twice."""
        if self.popen is not None:
            self.popen.kill()
            self.popen.wait(60)

    def terminate(self) -> int:
        """SIGTERM; its exit status."""
        assert self.popen is not None
        self.popen.terminate()
        return self.popen.wait(60)


class Asker:
    """One connection to the registry that asks and understands."""

    def __init__(self, host: HostPaths) -> None:
        clock = SystemClock()
        self._requester = Requester(os.fspath(host.registry_socket), clock.mono_ms, pings=False)

    def ask(self, request: Any, request_id: str | None = None, timeout_s: float = 10.0) -> Any:
        """The reply as a model."""
        chosen = request_id or f"request-{next(_numbers)}"
        body = encode(ClaimRequestEnvelope(request_id=chosen, request=request))
        reply = self._requester.request(body, chosen, timeout_s=timeout_s, patience_s=timeout_s)
        text = json.dumps({"request_id": chosen, "reply": reply})
        envelope: ClaimReplyEnvelope = adapter(ClaimReplyEnvelope).validate_json(text)
        return envelope.reply

    def view(self) -> HostView:
        """Everything."""
        view = self.ask(ViewHost())
        assert isinstance(view, HostView)
        return view

    def rows(self) -> tuple[AllocationRow, ...]:
        """All allocations."""
        return self.view().allocations

    def runs(self) -> tuple[RunRow, ...]:
        """All registered runs."""
        return self.view().runs

    def close(self) -> None:
        """Close the connection."""
        self._requester.close()
