"""Everything around the supervisor: from a run directory to a served run, and back.

The order is the point. The contract is read before anything is made. The owner lock comes before
anything another scheduler of this run could see or lose; sockets, registry and children come after
it; what was made is removed in reverse order once no child is left. Never touches the ledger, and
never decides about jobs.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .. import __version__
from ..errors import PraxistError
from ..host import stdio
from ..host.clock import SystemClock, pause_ms
from ..host.default_scope import host_scope, refuse_second
from ..host.fresh_place import FreshPlace
from ..host.identity import identity_of
from ..host.paths import RUNTIME_VARIABLE, HostPaths, RunPaths, RunSockets, runtime_root
from ..host.runtime_dir import ensure_private
from ..host.spawn import PASSED_FD, READY_FD
from ..ledger.files import remove_leftovers, write_atomically
from ..ledger.lock import OwnerLock
from ..protocol.policy import SchedulerPolicy
from ..protocol.process import ProcessIdentity
from ..transport.context import endpoint_of
from .child import Child, service_command
from .child_config import ChildConfig, PeerCap, ResultsCommand
from .device_choice import DeviceChoice, DeviceRequest, choose, remember
from .owner import find_owner, find_without_lock
from .policy_file import read_policy
from .process_report import ProcessReport
from .registry_watch import RegistryWatch
from .results_choice import ReaderRequest, choose_reader, remember_reader
from .run_directory import missing, prepare, remove_made
from .run_standing import RunStanding
from .secret_keeper import VaultHolder
from .service_log import configure_log, open_log
from .supervisor import Supervisor
from .supervisor_links import RunFiles

CHILDREN = ("sampler", "broker", "gateway", "launcher", "supply")
"""In the order of their start; each is ready before the next one is started. The sampler comes
first, because the broker looks at the host before it opens the run."""

READER = "results"
"""The last child, where the run has a command that reads the task's result store."""
UNSATISFIABLE_HELP = (
    "mend the host or the contract: no CPU profile stands in for a GPU profile",
    "`praxist-zmq up --allow-unsatisfiable` starts all the same, for the other profiles",
    "to try it without such devices: `praxist-zmq up --sim gpus=2,memory=80` simulates them",
)
TOO_SMALL_HELP = "more or larger simulated devices: `praxist-zmq up --sim gpus=N,memory=GIB`"
HOLDER_BOUND_MS = 1000
"""How long the loser of a start waits for the winner's name."""
Announce = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What `up` was asked to do."""

    run: RunPaths
    contract: Path | None = None
    """The contract's file; None keeps the run's contract, at first the documented defaults."""
    sim: DeviceRequest = None
    """Simulated devices, `device_choice.REAL`, or None: as at the last start."""
    generation: int | None = None
    cohort_size: int | None = None
    deadline_seconds: float | None = None
    """Time that the generation has from now on."""
    max_per_peer: PeerCap = None
    """Running jobs of one peer, "none" for no cap, or None: as at the last start."""
    results: ReaderRequest = None
    """The command that reads the task's result store, "none", or None: as at the last start."""
    accept_lost_records: bool = False
    """Whether to start although the ledger is missing, or older than it was."""
    allow_unsatisfiable: bool = False
    """Whether to start although the default profile can never run on this host."""


@dataclass(slots=True)
class _Start:
    """What one start of the supervisor made up."""

    request: RunRequest
    sockets: RunSockets
    host: HostPaths
    supervisor: ProcessIdentity
    policy: SchedulerPolicy | None = None
    """None: the broker keeps the contract of its ledger."""
    deadline_at_ms: int | None = None
    """Counted from this start, not from a later one of the broker's."""
    warnings: list[str] = field(default_factory=list)
    nonce: str = field(default_factory=lambda: secrets.token_hex(4))
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    devices: DeviceChoice = field(default=DeviceChoice(None, remembered=False))
    reader: ResultsCommand | None = None
    vault: VaultHolder = field(default_factory=VaultHolder)
    reopen: bool = True
    """Whether the next broker may open what a stop or a close ended: the first of this start."""

    def config(self, name: str) -> ChildConfig:
        """The configuration of one child."""
        run = self.request.run
        broker = name == "broker"
        first = broker and self.reopen
        return ChildConfig(
            run_dir=str(run.run_dir),
            run_id=run.run_id,
            front=str(self.sockets.front(self.nonce)),
            events=str(self.sockets.events(self.nonce)),
            core=str(self.sockets.core),
            samples=str(self.sockets.samples),
            host_dir=str(self.host.directory),
            secret=self.secret,
            ready_fd=READY_FD,
            supervisor=self.supervisor,
            vault_fd=PASSED_FD if broker and self.vault.descriptor is not None else None,
            policy=self.policy if broker else None,
            # A broker that is started again keeps what was opened, frozen or changed meanwhile.
            generation=self.request.generation if first else None,
            cohort_size=self.request.cohort_size if first else None,
            deadline_at_ms=self.deadline_at_ms if first else None,
            max_per_peer=self.request.max_per_peer if broker else None,
            accept_lost_records=first and self.request.accept_lost_records,
            preflight=self._preflight() if broker else "skip",
            reopen=self.reopen and broker,
            sim=self.devices.sim if broker or name == "sampler" else None,
            results=self.reader if name == READER else None,
        )

    def _preflight(self) -> Literal["skip", "tell", "refuse"]:
        """Only a start is refused: a broker that is started again has a run to go on with."""
        if not self.reopen:
            return "skip"
        return "tell" if self.request.allow_unsatisfiable else "refuse"

    def facts(self, told_by_broker: dict[str, Any]) -> dict[str, Any]:
        """What `up` says once the run is ready."""
        sim = self.devices.sim
        return {
            "run_id": self.request.run.run_id,
            "run_dir": str(self.request.run.run_dir),
            "pid": os.getpid(),
            "endpoint": endpoint_of(self.sockets.front(self.nonce)),
            "simulated": sim is not None,
            "devices": {
                "simulated": None if sim is None else sim.model_dump(),
                "remembered": self.devices.remembered,
            },
            "contract": self._contract_facts(told_by_broker),
            "warnings": [*self.warnings, *filter(None, (told_by_broker.get("unsatisfiable"),))],
        }

    def _contract_facts(self, told: dict[str, Any]) -> dict[str, Any]:
        """Which contract is in force, in the words of the broker, which alone knows."""
        file = self.request.contract
        kept = "default" if told.get("is_default_contract") else "kept"
        return {
            "source": kept if file is None else "file",
            "file": None if file is None else str(file),
            "profiles": told.get("profiles", []),
            "profiles_count": told.get("profiles_count", 0),
            "max_concurrent_experiments": told.get("max_concurrent_experiments"),
            "max_parallel_runs_per_peer": told.get("max_parallel_runs_per_peer"),
        }


def serve_run(
    request: RunRequest,
    announce: Announce,
    command_of: Callable[[str], list[str]] = service_command,
) -> bool:
    """Start the scheduler of a run and serve until it is ended. Call `announce` once it is ready.

    Blocks. Says whether it ended because the run was stopped. Raises PraxistError when it could
    not start or gave up: `already_running`, `unsafe_path`, `path_unusable`, `contract_invalid`,
    `profile_unsatisfiable`, `start_failed`, `restart_limit`, or the reason of the child that could
    not go on.
    """
    stdio.ensure_open()
    stdio.keep_from_children()
    run = request.run
    identity = identity_of(os.getpid())
    if identity is None:
        raise PraxistError("start_failed", "/proc does not show this process")
    start = _plan(request, identity)
    new = missing(run)
    prepare(run)
    lock = _own(run, identity)
    try:
        _log_to(run.service_logs / "supervisor.log")
        remove_leftovers(run.devices, run.last_failure, run.results_command)
        start.devices = choose(run.devices, request.sim)
        start.reader = choose_reader(run.results_command, request.results)
        with _announced(run, start, lock):
            return _supervise(start, lock, announce, command_of)
    except PraxistError as error:
        if error.code == "profile_unsatisfiable":
            # Nothing was recorded; a scheduler's directory would make the run central for good.
            remove_made(run, new)
        raise
    finally:
        lock.release()


def _own(run: RunPaths, identity: ProcessIdentity) -> OwnerLock:
    """The owner lock; else `already_running` that names the holder as it was proved."""
    holder = {**identity.model_dump(), "program": "supervisor", "version": __version__}
    clock = SystemClock()
    give_up_ms = clock.mono_ms() + HOLDER_BOUND_MS
    while True:
        try:
            lock = OwnerLock.acquire(run.owner_lock, holder)
            _refuse_beside(run, lock)
            return lock
        except PraxistError as error:
            if error.code != "already_running":
                raise
            pid = _proved_owner(run)
            if pid is not None:
                raise PraxistError(
                    "already_running", f"process {pid} serves {run.run_dir}"
                ) from None
            if clock.mono_ms() >= give_up_ms:
                raise
        # The winner has not written its name yet, or whoever had the lock is just ending.
        pause_ms(20)


def _refuse_beside(run: RunPaths, lock: OwnerLock) -> None:
    """Raise `already_running` when another serves the run whose lock file was removed under it."""
    other = find_without_lock(run)
    if other is not None:
        os.close(other.pidfd)
        lock.release()
        raise PraxistError(
            "already_running",
            f"process {other.identity.pid} serves {run.run_dir}; its lock {run.owner_lock} was "
            "removed, so it ends by itself within seconds",
        )


def _proved_owner(run: RunPaths) -> int | None:
    try:
        owner = find_owner(run)
    except PraxistError:
        return None  # held, but not by the process that the file names
    if owner is None:
        return None
    os.close(owner.pidfd)
    return owner.identity.pid


def _log_to(path: Path) -> None:
    descriptor = open_log(path)
    configure_log("supervisor", path, descriptor)


def _plan(request: RunRequest, identity: ProcessIdentity) -> _Start:
    """Everything that can be found wrong before anything is made."""
    refuse_second()
    sockets = RunSockets.of(request.run)
    host = HostPaths(host_scope())
    start = _Start(request, sockets, host, identity)
    if request.deadline_seconds is not None:
        start.deadline_at_ms = SystemClock().wall_ms() + round(request.deadline_seconds * 1000)
    if request.contract is not None:
        reading = read_policy(request.contract)
        start.policy, start.warnings = reading.policy, list(reading.warnings)
    for path in (sockets.front(start.nonce), sockets.events(start.nonce), host.registry_socket):
        endpoint_of(path)  # too long a path is told now, by name
    return start


@contextmanager
def _announced(run: RunPaths, start: _Start, lock: OwnerLock) -> Iterator[None]:
    """The run's directory of sockets with its `run.json`, while the run is up."""
    directory = start.sockets.directory
    _make_place(start)
    _remove_sockets(directory)
    run_file = start.sockets.announcement
    remove_leftovers(run_file)
    _announce(start)
    try:
        yield
    finally:
        # Without our lock all of it may be another's by now.
        if lock.named.is_there():
            run.endpoint.unlink(missing_ok=True)
            run_file.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                _remove_sockets(directory)
                _remove_if_empty(directory)


def _make_place(start: _Start) -> None:
    try:
        ensure_private(runtime_root())  # itself no link; so nothing is made behind one below
        ensure_private(start.sockets.directory)
    except PraxistError as error:
        error.help = [
            "mend what the detail names, or ask who made it to remove it",
            f"or name another directory of yours for sockets: {RUNTIME_VARIABLE}=DIR, the same for "
            "all your runs on this host",
        ]
        raise


def _announce(start: _Start) -> None:
    run = start.request.run
    content = {
        "run_dir": str(run.run_dir),
        "run_id": run.run_id,
        "host_dir": str(start.host.directory),
        "supervisor": start.supervisor.model_dump(),
    }
    body = json.dumps(content).encode() + b"\n"
    write_atomically(start.sockets.announcement, body, durable=False)


def _announce_again(start: _Start) -> None:
    """After a cleaner: the directory and the file, where they are not there."""
    _make_place(start)
    if not start.sockets.announcement.exists():
        _announce(start)


def _remove_sockets(directory: Path) -> None:
    """Sockets of an earlier start, whose scheduler is gone: we hold the owner lock."""
    for entry in directory.iterdir():
        if entry.suffix == ".sock" and not entry.is_dir():
            entry.unlink(missing_ok=True)


def _remove_if_empty(directory: Path) -> None:
    """What is not ours in there stays, and so does the directory then."""
    try:
        directory.rmdir()
    except OSError as error:
        logging.getLogger(__name__).warning("%s stays: %s", directory, error.strerror)


def _supervise(
    start: _Start, lock: OwnerLock, announce: Announce, command_of: Callable[[str], list[str]]
) -> bool:
    """Serve to the end; whether the run was stopped. Raises the failure that ended it."""
    run = start.request.run
    children = {
        name: Child(name, command_of(name), run.service_logs / f"{name}.log")
        for name in (*CHILDREN, *([READER] if start.reader is not None else []))
    }
    children["broker"].passed = start.vault.descriptor

    standing = RunStanding(run, lock.named, start.config("gateway"), lambda: _announce_again(start))

    def child_ready(name: str) -> None:
        standing.ready(name)
        if name != "broker":
            return
        # Kept before the first job can meet a device, and not for a start that was refused.
        remember(run.devices, start.devices)
        remember_reader(run.results_command, start.reader)
        # The broker has recorded the reopening before it says that it is ready. From here on a
        # restarted broker must not reopen what a later `stop` closes.
        if start.reopen:
            start.reopen = False
            try:
                run.shutdown_fence.unlink(missing_ok=True)
            except OSError as error:
                raise PraxistError(
                    "path_unusable", f"{run.shutdown_fence}: {error.strerror}"
                ) from error

    root = runtime_root()
    place = FreshPlace([root, root / "runs"], start.sockets.directory, SystemClock().mono_ms())
    report = ProcessReport(start.sockets.core, bytes.fromhex(start.secret))
    try:
        supervisor = Supervisor(
            children=list(children.values()),
            first_line=lambda name: start.config(name).model_dump_json().encode() + b"\n",
            link=report,
            registry=RegistryWatch(start.host),
            files=RunFiles(run.last_failure, run.shutdown_fence),
            clock=SystemClock(),
            own_pid=os.getpid(),
            on_ready=lambda: announce(start.facts(children["broker"].facts)),
            on_child_ready=child_ready,
            place=place,
            standing=standing,
        )
        failure = supervisor.run()
    finally:
        report.close()
        place.close()
        start.vault.close()
    if failure is not None:
        if failure.code == "profile_unsatisfiable":
            simulated = start.devices.sim is not None
            last = TOO_SMALL_HELP if simulated else UNSATISFIABLE_HELP[-1]
            failure.help = [*UNSATISFIABLE_HELP[:-1], last]
        raise failure
    return supervisor.stopped
