"""Where everything lives: the files of a run, of the host scope, and the sockets.

Standard library only: the command line's fast verbs import this module.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import PraxistError


def canonical(directory: str | os.PathLike[str]) -> Path:
    """One spelling of a directory: absolute, links resolved. Every spelling is the same run."""
    return Path(os.path.realpath(os.path.abspath(os.fspath(directory))))


def check_working_directory(cwd: str | bytes | os.PathLike[Any], option: str) -> None:
    """Refuse what a command cannot run in, which its sender calls `option`. Raises
    `bad_directory`."""
    if os.path.isdir(cwd):
        return
    there = os.path.lexists(cwd)
    what = "is no directory" if there else "does not exist"
    mend = f"give a directory with {option}" if there else "create it, or name another"
    raise PraxistError("bad_directory", f"{option} {os.fsdecode(cwd)} {what}", [mend])


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The files of one run. `run_dir` must be canonical; use `RunPaths.of`."""

    run_dir: Path

    @classmethod
    def of(cls, directory: str | os.PathLike[str]) -> RunPaths:
        """The paths of the run in `directory`, in any spelling."""
        return cls(canonical(directory))

    @property
    def run_id(self) -> str:
        """The run's name: its directory's base name."""
        return self.run_dir.name or "root"

    @property
    def run_key(self) -> str:
        """sha256 of the canonical directory: the run's name between runs."""
        return hashlib.sha256(os.fsencode(self.run_dir)).hexdigest()

    @property
    def scheduler(self) -> Path:
        """Everything the scheduler owns in the run."""
        return self.run_dir / "resource_scheduler"

    @property
    def endpoint(self) -> Path:
        """Where clients find the scheduler."""
        return self.scheduler / "endpoint.json"

    @property
    def status(self) -> Path:
        """The derived view."""
        return self.scheduler / "status.json"

    @property
    def ledger(self) -> Path:
        """The broker's ledger directory."""
        return self.scheduler / "ledger"

    @property
    def ledger_mark(self) -> Path:
        """What the run remembers of its ledger."""
        return self.scheduler / "ledger.mark"

    @property
    def owner_lock(self) -> Path:
        """Held by the supervisor; never deleted or replaced."""
        return self.scheduler / "owner.lock"

    @property
    def ledger_lock(self) -> Path:
        """Held by the broker; never deleted or replaced."""
        return self.scheduler / "ledger.lock"

    @property
    def launcher_lock(self) -> Path:
        """Held by the launcher; never deleted or replaced."""
        return self.scheduler / "launcher.lock"

    @property
    def credentials_key(self) -> Path:
        """The key of the keyed hashes of credential values, mode 0600."""
        return self.scheduler / "credentials.key"

    @property
    def devices(self) -> Path:
        """Which devices the last start used: simulated ones, or real ones."""
        return self.scheduler / "devices.json"

    @property
    def results_command(self) -> Path:
        """Which command reads the task's own result store."""
        return self.scheduler / "results_command.json"

    @property
    def last_failure(self) -> Path:
        """Why the supervisor gave up, or what it waits for."""
        return self.scheduler / "last_failure.json"

    @property
    def attempts(self) -> Path:
        """One directory an attempt."""
        return self.scheduler / "attempts"

    @property
    def service_logs(self) -> Path:
        """Logs of our own processes."""
        return self.scheduler / "log"

    @property
    def experiment_logs(self) -> Path:
        """Logs of attempts."""
        return self.run_dir / "logs" / "experiments"

    @property
    def shutdown_fence(self) -> Path:
        """Its presence keeps anything new from starting."""
        return self.run_dir / "ORCHESTRATOR_SHUTDOWN"

    @property
    def protected_pids(self) -> Path:
        """Protected-process manifests, one a running attempt."""
        return self.run_dir / "protected_pids"

    def attempt(self, attempt: str) -> Path:
        """The directory of one attempt."""
        return self.attempts / attempt

    def attempt_log(self, attempt: str) -> Path:
        """The log of one attempt."""
        return self.experiment_logs / f"{attempt}.log"


SCOPE_VARIABLE = "PRAXIST_ZMQ_HOST_DIR"
RUNTIME_VARIABLE = "PRAXIST_ZMQ_RUNTIME_DIR"


def runtime_root() -> Path:
    """The user's directory for sockets and the default host scope: short, not shared with others.

    A function of the user alone, unless `PRAXIST_ZMQ_RUNTIME_DIR` names another: XDG_RUNTIME_DIR
    and HOME differ between a login, cron, su and a container's exec, and may go at a logout.
    """
    named = os.environ.get(RUNTIME_VARIABLE)
    return Path(os.path.abspath(named)) if named else user_root()


def user_root() -> Path:
    """The runtime root of a user who names none."""
    return Path(f"/tmp/praxist-zmq-{os.getuid()}")


def runtime_roots() -> list[Path]:
    """Where a live run of ours may have its sockets: the root, and those of earlier releases."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    earlier = [f"/run/user/{os.getuid()}", *([base] if os.path.isabs(base) else [])]
    if os.environ.get(RUNTIME_VARIABLE):
        earlier = []
    return [runtime_root(), *(Path(place) / "praxist-zmq" for place in dict.fromkeys(earlier))]


@dataclass(frozen=True, slots=True)
class RunSockets:
    """The sockets of one run, in a short directory, whatever the depth of the run's own."""

    directory: Path

    @classmethod
    def of(cls, run: RunPaths) -> RunSockets:
        """The sockets of `run`."""
        return cls(runtime_root() / "runs" / run.run_key[:16])

    @property
    def core(self) -> Path:
        """The broker's private link: gateway and launcher connect here."""
        return self.directory / "core.sock"

    @property
    def samples(self) -> Path:
        """The sampler's publications."""
        return self.directory / "samples.sock"

    @property
    def announcement(self) -> Path:
        """Which run this is, and who serves it."""
        return self.directory / "run.json"

    def front(self, nonce: str) -> Path:
        """The door for peers; a fresh name for every start."""
        return self.directory / f"front-{nonce}.sock"

    def events(self, nonce: str) -> Path:
        """Publications for peers; a fresh name for every start."""
        return self.directory / f"events-{nonce}.sock"


@dataclass(frozen=True, slots=True)
class HostPaths:
    """The files of the host scope."""

    directory: Path

    @property
    def registry_lock(self) -> Path:
        """Held by the registry; never deleted or replaced."""
        return self.directory / "registry.lock"

    @property
    def registry_start_lock(self) -> Path:
        """Held by whoever starts the registry, until it serves; never deleted or replaced."""
        return self.directory / "registry.start.lock"

    @property
    def registry_socket(self) -> Path:
        """Where brokers find the registry."""
        return self.directory / "registry.sock"

    @property
    def registry_info(self) -> Path:
        """Process id and epoch of the registry, for people."""
        return self.directory / "registry.json"

    @property
    def ledger(self) -> Path:
        """The registry's ledger directory."""
        return self.directory / "ledger"

    @property
    def log(self) -> Path:
        """The registry's log."""
        return self.directory / "log"

    @property
    def simulation(self) -> Path:
        """Foreign load and faults of simulated devices."""
        return self.directory / "simulation.json"
