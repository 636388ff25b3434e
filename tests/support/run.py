"""A run of the real scheduler, driven through the installed command and the Python client.

Every process is started as a user starts it: `python -m praxist_zmq --run-dir DIR ...`. Whatever a
test does to it, `close` leaves no process behind: they are found by this test's host scope in
their environment, or by the run's directory in their arguments.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from praxist_zmq import Client
from praxist_zmq.client.views import JobInfo, SubmitResult
from praxist_zmq.errors import PraxistError
from praxist_zmq.host.paths import RunPaths

from .canaries import Canaries
from .evaluator import INTERPRETER
from .wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
EVALUATOR = ROOT / "tests" / "support" / "evaluator.py"
SERVICES = ("supervisor", "broker", "gateway", "launcher", "sampler", "supply")
CONTRACT = """
compute_budget:
  resource_scheduler:
    mode: central
    initial_concurrent_experiments: {slots}
    min_concurrent_experiments: {slots}
    max_concurrent_experiments: {slots}
    infrastructure_retries: {retries}
    infrastructure_retry_pause_seconds: 0
    default_profile: cpu
    profiles:
      cpu:
        accelerator: cpu
        pressure_domains: []
      gpu:
        accelerator: gpu
        gpu_count: 1
        pressure_domains: []
"""


@dataclass(frozen=True, slots=True)
class Command:
    """How one command line ended."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document on stdout."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    def ok(self) -> Command:
        """Itself, if it ended with 0."""
        assert self.status == 0, self
        return self


class Run:
    """One run directory with its scheduler."""

    def __init__(
        self,
        run_dir: Path,
        *,
        slots: int = 2,
        retries: int = 1,
        sim: str | None = None,
        host_dir: Path | None = None,
        settings: Sequence[str] = (),
    ) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        self.paths = RunPaths.of(run_dir)
        self.dir = self.paths.run_dir
        self.sim = sim
        self.contract = run_dir.parent / f"{run_dir.name}.contract.yaml"
        more = "".join(f"    {line}\n" for line in settings)
        self.contract.write_text(CONTRACT.format(slots=slots, retries=retries) + more)
        self.slots = slots
        self.lines = run_dir.parent / f"{run_dir.name}.lines"
        self.lines.touch()
        self.gates = run_dir.parent / f"{run_dir.name}.gates"
        self.gates.mkdir(exist_ok=True)
        self.host_dir = Path(host_dir or os.environ["PRAXIST_ZMQ_HOST_DIR"])
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(run_dir.parent),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            "PRAXIST_ZMQ_RUNTIME_DIR": os.environ["PRAXIST_ZMQ_RUNTIME_DIR"],
            "PRAXIST_ZMQ_HOST_DIR": str(self.host_dir),
        }
        self.acknowledged: dict[str, str] = {}
        """Tag to job of every submission that was acknowledged."""
        self.canaries = Canaries(str(self.dir))
        self._children: list[subprocess.Popen[str]] = []

    # -- the command -----------------------------------------------------------------------

    def words(self, *arguments: str) -> list[str]:
        """The command line of one verb."""
        return [sys.executable, "-m", "praxist_zmq", "--run-dir", str(self.dir), *arguments]

    def cli(
        self,
        *arguments: str,
        timeout_s: float = 60.0,
        env: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> Command:
        """Run one verb to its end."""
        process = self.start(*arguments, env=env, prefix=prefix)
        out, err = process.communicate(timeout=timeout_s)
        return Command(process.returncode, out, err)

    def start(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> subprocess.Popen[str]:
        """Start one verb."""
        process = subprocess.Popen(
            [*prefix, *self.words(*arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
            env={**self.environment, **(env or {})},
            cwd=self.dir.parent,
        )
        self._children.append(process)
        return process

    def try_up(self, *more: str, prefix: Sequence[str] = (), bare: bool = False) -> Command:
        """`up --detach`, however it ends. Its output goes through files: daemons keep pipes.

        `bare` gives it neither contract nor devices.
        """
        sim = ["--sim", self.sim] if self.sim else []
        told = [] if bare else ["--config", str(self.contract), *sim]
        words = self.words("up", "--detach", *told, *more)
        out, err = self.dir.parent / "up.out", self.dir.parent / "up.err"
        with out.open("w") as stdout, err.open("w") as stderr:
            done = subprocess.run(
                [*prefix, *words],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=self.environment,
                cwd=self.dir.parent,
                timeout=60,
                check=False,
            )
        return Command(done.returncode, out.read_text(), err.read_text())

    def up(self, *more: str, prefix: Sequence[str] = ()) -> Command:
        """`up --detach`; it must get ready."""
        command = self.try_up(*more, prefix=prefix)
        assert command.status == 0, (command, self.service_logs())
        return command

    def down(self) -> Command:
        """`down`; it must go well."""
        return self.cli("down").ok()

    def client(self, **options: Any) -> Client:
        """A client of this run."""
        return Client(self.dir, **options)

    def service_logs(self) -> str:
        """The ends of our processes' logs, for failures."""
        logs = sorted(self.paths.service_logs.glob("*.log"))
        return "\n".join(f"-- {path.name}\n{path.read_text()[-2000:]}" for path in logs)

    # -- experiments -----------------------------------------------------------------------

    def evaluator(self, *actions: str) -> list[str]:
        """The command of an experiment, see `tests.support.evaluator`."""
        return [*INTERPRETER, str(EVALUATOR), str(self.lines), *actions]

    def gate(self, name: str) -> str:
        """The path that an experiment may wait for."""
        return str(self.gates / name)

    def open_gate(self, name: str) -> None:
        """Let those go on that wait for it."""
        (self.gates / name).touch()

    def submit(
        self, client: Client, tag: str, *actions: str, peer: str = "p1", **options: Any
    ) -> SubmitResult:
        """Submit an experiment through the client, and note the acknowledgement."""
        options.setdefault("environment", self.environment)
        options.setdefault("cwd", str(self.dir))
        options.setdefault("command", self.evaluator(*actions))
        result = client.submit(tag=tag, peer=peer, **options)
        self.acknowledge(tag, result.job.job)
        return result

    def acknowledge(self, tag: str, job: str) -> None:
        """Note that the scheduler said: this tag is this job."""
        known = self.acknowledged.setdefault(tag, job)
        assert known == job, f"{tag} was {known} and is now {job}"

    def launch(self, tag: str, *actions: str, options: Sequence[str] = ()) -> Command:
        """`launch` an experiment and wait for its end."""
        return self.cli(*self.launch_words(tag, *actions, options=options))

    def launch_words(
        self, tag: str, *actions: str, options: Sequence[str] = (), peer: str = "p1"
    ) -> list[str]:
        """The verb's words."""
        return [
            "launch", "--peer", peer, "--tag", tag, *options, "--", *self.evaluator(*actions)
        ]  # fmt: skip

    def show(self, job: str) -> JobInfo:
        """One job, on a connection of its own."""
        with self.client() as client:
            return client.show(job)

    def until_started(self, *attempts: str, timeout_s: float = 20.0) -> None:
        """Until these attempts have done their first act."""
        wanted = set(attempts)
        wait_until(
            lambda: wanted <= {words[1] for words in self.read_lines("start")},
            f"the start of {sorted(wanted)}; lines: {self.lines.read_text()[-500:]}",
            timeout_s,
        )

    def read_lines(self, kind: str | None = None) -> list[list[str]]:
        """The experiments' lines, split into words."""
        rows = [row.split() for row in self.lines.read_text().splitlines()]
        return [row for row in rows if kind is None or row[0] == kind]

    # -- processes -------------------------------------------------------------------------

    def processes(self) -> dict[str, int]:
        """Our processes by name, from /proc: services, registry, zygote; shims as `shim:PID`."""
        found: dict[str, int] = {}
        for pid in _pids():
            words = _words(pid)
            module = next((w for w in words if w.startswith(b"praxist_zmq.service.")), None)
            if module == b"praxist_zmq.service.registry":
                if os.fsencode(self.host_dir) in words:
                    found["registry"] = pid
            elif not self._holds_our_files(pid):
                continue
            elif module is not None:
                found[module.decode().rpartition(".")[2]] = pid
            elif any(b"host.zygote" in word for word in words):
                forked = _words(_parent(pid)) == words or not _is_service(_parent(pid), b"launcher")
                found[f"shim:{pid}" if forked else "zygote"] = pid
            elif b"up" in words and os.fsencode(self.dir) in words:
                found["supervisor"] = pid
        return found

    def _holds_our_files(self, pid: int) -> bool:
        """Whether it has a file of this run's scheduler open: log, lock or attempt directory."""
        own = f"{self.paths.scheduler}/"
        try:
            numbers = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            return False
        links = []
        for number in numbers:
            with contextlib.suppress(OSError):  # closed since the listing
                links.append(os.readlink(f"/proc/{pid}/fd/{number}"))
        return any(link.startswith(own) for link in links)

    def kill(self, name: str) -> bool:
        """SIGKILL one of our processes. False when it is not there."""
        pid = self.processes().get(name)
        return pid is not None and send(pid, signal.SIGKILL)

    def kill_all(self, shuffle: random.Random | None = None, *, registry: bool = False) -> None:
        """SIGKILL all services and the zygote at once, shims not; with `shuffle` one after another,
        so that some see others end."""
        found = self.processes()
        names = [n for n in found if not n.startswith("shim") and (registry or n != "registry")]
        if shuffle:
            shuffle.shuffle(names)
            for name in names:
                send(found[name], signal.SIGKILL)
        else:
            kill_at_once(found[name] for name in names)
        wait_until(
            lambda: not (set(self.processes()) & set(names) - {"registry"}),
            "killed processes to be gone",
        )

    def answers(self, timeout_s: float = 1.0) -> bool:
        """Whether the scheduler answers."""
        try:
            with self.client(timeout_s=timeout_s) as client:
                client.ping()
        except PraxistError:
            return False
        return True

    def until_healthy(self, timeout_s: float = 20.0) -> None:
        """Until the scheduler answers again."""
        wait_until(self.answers, f"the scheduler to answer\n{self.service_logs()}", timeout_s)

    def leftovers(self) -> list[int]:
        """Live processes that belong to this test: by host scope, or by a path of the run."""
        mark = f"PRAXIST_ZMQ_HOST_DIR={self.host_dir}\0".encode()
        path = os.fsencode(self.dir.parent)
        found = []
        for pid in _pids():
            if pid == os.getpid() or pid in self.canaries.pids:
                continue
            try:
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
                environment = Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
                state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if state != b"Z" and (
                mark in environment or path in arguments or self._holds_our_files(pid)
            ):
                found.append(pid)
        return found

    def experiments(self) -> list[int]:
        """Live evaluators and what they left."""
        return [pid for pid in self.leftovers() if os.fsencode(EVALUATOR) in _words(pid)]

    # -- the end ---------------------------------------------------------------------------

    def close(self) -> None:
        """End everything, whatever state it is in."""
        for process in self._children:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self.canaries.close()

        def killed() -> bool:
            left = self.leftovers()
            for pid in left:
                send(pid, signal.SIGCONT)
                send(pid, signal.SIGKILL)
            return not left

        wait_until(killed, "all processes of the test to be gone")


def send(pid: int, number: int) -> bool:
    """Signal a process. False when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def kill_at_once(pids: Iterable[int]) -> None:
    """SIGKILL them at one instant: none does anything more because another has ended.

    Stopped first, and the youngest are killed first: the kernel continues a stopped process whose
    group is orphaned, by the end of its parent as a rule.
    """
    chosen = sorted(pids)
    for pid in chosen:
        send(pid, signal.SIGSTOP)
    for pid in reversed(chosen):
        send(pid, signal.SIGKILL)


def _pids() -> Iterable[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _is_service(pid: int, name: bytes) -> bool:
    return b"praxist_zmq.service." + name in _words(pid)
