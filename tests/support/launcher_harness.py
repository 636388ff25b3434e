"""A real launcher with real shims, behind a link that is a fake: the broker's end is the test."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from praxist_zmq.host.clock import SystemClock
from praxist_zmq.host.identity import ProcStat
from praxist_zmq.host.paths import RunPaths
from praxist_zmq.host.tree import living, names_attempt, processes
from praxist_zmq.protocol.codec import decode_launcher_report, encode
from praxist_zmq.protocol.orders import (
    AdoptAttempt,
    ForgetAttempt,
    ReleaseAttempt,
    SpawnAttempt,
    StopAttempt,
    Welcome,
)
from praxist_zmq.protocol.process import ProcessIdentity
from praxist_zmq.protocol.reports import AttemptEnded, LauncherConnected
from praxist_zmq.protocol.text import from_bytes

from .wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
CHILD = (
    "import sys; from tests.support.launcher_harness import child_main;"
    " child_main(sys.argv[1], int(sys.argv[2]))"
)


def daemon_code(then: str) -> str:
    """An evaluator that leaves a daemon behind which kept nothing of it, and does `then`."""
    return f"""
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, 256)
        os.chdir("/")
        os.execve("/bin/sleep", ["sleep", "300"], {{}})
    os._exit(0)
{then}
"""


class FakeLink:
    """A fake of the launcher's link: a socketpair of length-free datagrams (SEQPACKET)."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._end.setblocking(False)
        self._fresh = True

    def fileno(self) -> int:
        return self._end.fileno()

    def receive(self) -> tuple[bool, list[bytes]]:
        fresh, self._fresh = self._fresh, False
        found: list[bytes] = []
        while True:
            try:
                body = self._end.recv(8 * 1024 * 1024)
            except (BlockingIOError, ConnectionError):
                return fresh, found
            if not body:
                return fresh, found
            found.append(body)

    def send(self, bodies: list[bytes]) -> bool:
        try:
            for body in bodies:
                self._end.send(body)
        except OSError:
            return False
        return True


def child_main(run_dir: str, fd: int) -> None:
    """The launcher process of `Bench`."""
    from praxist_zmq.service.launching import Launcher

    launcher = Launcher(RunPaths(Path(run_dir)), FakeLink(socket.socket(fileno=fd)), SystemClock())
    try:
        launcher.serve(until_closed=0)
    finally:
        launcher.close()


class Bench:
    """One run with a launcher process that can be killed and started again."""

    def __init__(self, before: str = "") -> None:
        """`before` is shell that runs ahead of the launcher, in its process."""
        self.before = before
        self.welcomes = True
        """Whether the broker of this fake answers an introduction."""
        self.directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="pzl-"))
        self.run = RunPaths.of(self.directory / "run")
        self.run.run_dir.mkdir()
        self.reports: list[Any] = []
        self._lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.attempts: list[str] = []
        self.start()

    # -- the launcher process

    def start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
        self.end = ours
        self.process = subprocess.Popen(
            [
                *("sh", "-c", f'{self.before} exec "$@"', "sh"),
                *(sys.executable, "-c", CHILD, str(self.run.run_dir), str(theirs.fileno())),
            ],
            stdin=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        theirs.close()
        threading.Thread(target=self._listen, args=(ours,), daemon=True).start()
        self.expect("launcher_connected", lambda r: r.launcher.pid == self.pid)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def _listen(self, end: socket.socket) -> None:
        while True:
            try:
                body = end.recv(1 << 20)
            except OSError:
                return
            if not body:
                return
            report = decode_launcher_report(body)
            if self.welcomes and isinstance(report, LauncherConnected):
                with suppress(OSError):  # it was killed meanwhile
                    end.send(encode(Welcome(epoch=1)))
            with self._lock:
                self.reports.append(report)

    def kill(self) -> None:
        """SIGKILL the launcher."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.end.close()

    def zygotes(self) -> list[int]:
        found = [p for p in processes() if p.parent == self.pid and _is_zygote(p.pid)]
        return [p.pid for p in living(found)]

    def zygote(self) -> int:
        return self.zygotes()[0]

    # -- orders and reports

    def order(self, order: BaseModel) -> None:
        self.end.send(encode(order))

    def seen(self, kind: str, attempt: str | None = None) -> list[Any]:
        with self._lock:
            reports = list(self.reports)
        return [
            r
            for r in reports
            if r.kind == kind and (attempt is None or getattr(r, "attempt", None) == attempt)
        ]

    def expect(self, kind: str, match: Any = None, attempt: str | None = None) -> Any:
        def look() -> Any:
            return next((r for r in self.seen(kind, attempt) if match is None or match(r)), None)

        try:
            return wait_until(look, f"{kind} of {attempt}", timeout_s=60)
        except AssertionError as error:
            raise AssertionError(f"{error}; got {self.reports[-4:]}") from None

    def spawn(
        self,
        attempt: str,
        command: Iterable[bytes | str],
        environment: dict[str, bytes | str] | None = None,
        cwd: bytes | str = "/",
    ) -> None:
        self.attempts.append(attempt)
        variables = environment if environment is not None else {"PATH": "/usr/bin:/bin"}
        variables = {"PRAXIST_EXPERIMENT_ATTEMPT_DIR": str(self.run.attempt(attempt)), **variables}
        self.order(
            SpawnAttempt(
                attempt=attempt,
                command=tuple(from_bytes(_raw(item)) for item in command),
                cwd=from_bytes(_raw(cwd)),
                environment={k: from_bytes(_raw(v)) for k, v in variables.items()},
            )
        )

    def ready(self, attempt: str, command: Iterable[bytes | str], **more: Any) -> ProcessIdentity:
        self.spawn(attempt, command, **more)
        shim: ProcessIdentity = self.expect("attempt_ready", attempt=attempt).shim
        return shim

    def go(self, attempt: str, holds_ms: int = 600_000) -> None:
        until_ms = SystemClock().mono_ms() + holds_ms
        self.order(ReleaseAttempt(attempt=attempt, until_ms=until_ms))

    def launch(self, attempt: str, command: Iterable[bytes | str], **more: Any) -> tuple[Any, Any]:
        """(shim, leader) of a running attempt."""
        shim = self.ready(attempt, command, **more)
        self.go(attempt)
        return shim, self.expect("attempt_started", attempt=attempt).leader

    def stop(self, attempt: str, grace_ms: int = 0) -> None:
        self.order(StopAttempt(attempt=attempt, grace_ms=grace_ms))

    def adopt(
        self, attempt: str, shim: ProcessIdentity | None, leader: ProcessIdentity | None = None
    ) -> None:
        self.order(AdoptAttempt(attempt=attempt, shim=shim, leader=leader))

    def forget(self, attempt: str) -> None:
        self.order(ForgetAttempt(attempt=attempt))

    def ended(self, attempt: str) -> AttemptEnded:
        report: AttemptEnded = self.expect("attempt_ended", attempt=attempt)
        return report

    def log(self, attempt: str) -> bytes:
        return self.run.attempt_log(attempt).read_bytes()

    # -- the end

    def close(self) -> None:
        """Leave nothing: launcher, zygote, shims, experiments, files."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.end.close()
        for stat in self.leftovers():
            os.kill(stat.pid, signal.SIGKILL)
        wait_until(lambda: not self.leftovers(), "leftovers of the test to go")
        shutil.rmtree(self.directory, ignore_errors=True)

    def leftovers(self) -> list[ProcStat]:
        """Live processes of this test's attempts, and whatever works below its directory."""
        return [
            stat
            for stat in living(processes())
            if any(names_attempt(stat.pid, str(self.run.attempt(a))) for a in self.attempts)
            or _mentions(stat.pid, str(self.directory).encode())
        ]


def _is_zygote(pid: int) -> bool:
    return _mentions(pid, b"host.zygote")


def _mentions(pid: int, needle: bytes) -> bool:
    if pid == os.getpid():
        return False
    try:
        return needle in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _raw(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode()
