"""The protocol between the supervisor and its children, from the child's side.

A child reads its configuration as the first line of stdin. Stdin then stays open as long as the
supervisor lives: end of file means that it is gone, and the child ends in order. On `ready_fd` it
writes JSON lines:

    {"progress": "TEXT"}                 still starting; the readiness bound starts anew
    {"ready": {...facts}}                serving; the child closes the descriptor
    {"fatal": {"code", "detail"}}        it cannot serve, with a code of the error table

Once the descriptor is closed, the last words go to the log as a line with a `fatal` key. The exit
status is the code's own; the supervisor does not restart after 65, 73, 74 and 78. The broker exits
with 0 only once a stop of the run is complete, with the fence in place, and with
`STOPPED_WITHOUT_FENCE` when the file could not be written: the ledger alone says it then.
"""

from __future__ import annotations

import json
import logging
import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from pydantic import Field, PrivateAttr, ValidationError

from ..errors import PraxistError
from ..host.paths import HostPaths, RunPaths
from ..host.spawn import CONFIG_BYTES_MAX
from ..protocol.base import Frozen
from ..protocol.codec import explain
from ..protocol.ids import RunId
from ..protocol.policy import SchedulerPolicy
from ..protocol.process import ProcessIdentity
from .service_log import configure_log

STOPPED_WITHOUT_FENCE = 144
PEER_CAP_MAX = 1_000_000
PeerCap = Annotated[int, Field(ge=1, le=PEER_CAP_MAX)] | Literal["none"] | None
"""Running jobs of one peer that a start asks for; None is nothing: as at the last start."""


class SimulatedDevices(Frozen):
    """The devices of `up --sim`."""

    gpus: int = Field(ge=0, le=1024, description="Number of devices")
    memory_gib: float = Field(gt=0, le=100_000, description="Memory of each, GiB")


class ResultsCommand(Frozen):
    """The command that prints a task's published results."""

    command: tuple[str, ...] = Field(min_length=1, max_length=1_000, description="Words")
    cwd: str = Field(min_length=1, max_length=4_096, description="Where it is run")


class ChildConfig(Frozen):
    """What the supervisor tells a child at its start."""

    run_dir: str = Field(min_length=1, description="Canonical run directory")
    run_id: RunId = Field(description="Run")
    front: str = Field(description="Socket path: the door for peers")
    events: str = Field(description="Socket path: publications for peers")
    core: str = Field(description="Socket path: the broker's private link")
    samples: str = Field(description="Socket path: the sampler's publications")
    host_dir: str = Field(description="Directory of the host scope")
    secret: str = Field(pattern=r"^[0-9a-f]{32,128}$", description="Link secret, hex")
    ready_fd: int = Field(ge=3, le=65_535, description="Descriptor for readiness messages")
    supervisor: ProcessIdentity = Field(description="The supervisor")
    vault_fd: int | None = Field(
        default=None, ge=3, le=65_535, description="Broker: descriptor of the credentials' memory"
    )
    policy: SchedulerPolicy | None = Field(default=None, description="Broker: the contract")
    generation: int | None = Field(
        default=None, ge=0, le=1_000_000, description="Broker: absent keeps the run's current one"
    )
    cohort_size: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Broker: peers of the generation"
    )
    deadline_at_ms: int | None = Field(
        default=None,
        ge=0,
        le=253_402_300_799_000,  # the last second that a time stamp can name
        description="Broker: when the generation is to end, Unix time in ms",
    )
    max_per_peer: PeerCap = Field(default=None, description="Broker: running jobs of one peer")
    preflight: Literal["skip", "tell", "refuse"] = Field(
        default="skip",
        description="Broker: what to do when the default profile can never run on this host",
    )
    accept_lost_records: bool = Field(
        default=False, description="Broker: go on where the ledger is missing or older than it was"
    )
    reopen: bool = Field(default=False, description="Broker: open the run again if it was stopped")
    sim: SimulatedDevices | None = Field(
        default=None, description="Sampler, broker: simulated devices"
    )
    results: ResultsCommand | None = Field(
        default=None, description="Reader of results: the task's command"
    )
    _told_ready: bool = PrivateAttr(default=False)
    """Then `ready_fd` is closed, and its number may belong to another file by now."""

    @property
    def opens_generation(self) -> bool:
        """Broker: whether this start named a generation, or gave it time."""
        return self.generation is not None or self.deadline_at_ms is not None

    @property
    def hop(self) -> Path:
        """Socket path: between gateway and broker."""
        return Path(self.core).with_name("hop.sock")

    @property
    def run(self) -> RunPaths:
        """The files of the run."""
        return RunPaths(Path(self.run_dir))

    @property
    def host(self) -> HostPaths:
        """The files of the host scope."""
        return HostPaths(Path(self.host_dir))

    @property
    def secret_bytes(self) -> bytes:
        """The link secret."""
        return bytes.fromhex(self.secret)

    def log_path(self, name: str) -> Path:
        """The log of one of our processes."""
        return self.run.service_logs / f"{name}.log"


def read_child_config(descriptor: int = 0) -> ChildConfig:
    """Read the first line of stdin, unbuffered, so that nothing after it is consumed.

    Raises `start_failed` when it is missing, too long or invalid.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        if len(line) > CONFIG_BYTES_MAX:
            raise PraxistError("start_failed", "the configuration line is too long")
        piece = os.read(descriptor, 65_536)
        if not piece:
            raise PraxistError(
                "start_failed",
                "no configuration on stdin; this process is started by `praxist-zmq up`",
            )
        line += piece
    try:
        config = ChildConfig.model_validate_json(bytes(line))
        os.set_inheritable(config.ready_fd, False)
        if config.vault_fd is not None:
            os.set_inheritable(config.vault_fd, False)
    except ValidationError as error:
        raise PraxistError("start_failed", f"configuration: {explain(error)}") from None
    except OSError as error:
        raise PraxistError("start_failed", f"inherited descriptor: {error.strerror}") from None
    return config


def supervisor_gone(descriptor: int = 0) -> bool:
    """Whether stdin is at its end. Never blocks; call it when the poller says it is readable."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0)) and not os.read(descriptor, 4096)


def report_progress(config: ChildConfig, text: str) -> None:
    """Say that the start goes on, so that the supervisor waits longer."""
    _tell(config, {"progress": text[:500]})


def report_ready(config: ChildConfig, **facts: object) -> None:
    """Say that this process serves, and close the descriptor. Call once."""
    _tell(config, {"ready": facts})
    config._told_ready = True
    os.close(config.ready_fd)


def report_fatal(config: ChildConfig, error: PraxistError) -> None:
    """Leave the reason why this process ends: on the descriptor while it is open, and in the log.

    The caller then exits with `error.exit_code`.
    """
    last_words = {"code": error.code, "detail": error.detail}
    logging.getLogger(__name__).error(str(error), extra={"fields": {"fatal": last_words}})
    _tell(config, {"fatal": last_words})


def _tell(config: ChildConfig, message: dict[str, object]) -> None:
    if config._told_ready:
        return
    try:
        os.write(config.ready_fd, json.dumps(message).encode() + b"\n")
    except OSError as error:
        # The supervisor is gone; end of file on stdin says so too.
        logging.getLogger(__name__).debug("ready_fd: %s", error.strerror)


def serve_child(name: str, body: Callable[[ChildConfig], int]) -> NoReturn:
    """The whole `main` of a child: configuration, log, `body`, last words, exit status.

    `body` returns the exit status; a PraxistError ends the process with its code.
    """
    try:
        config = read_child_config()
    except PraxistError as error:
        configure_log(name).error(str(error))
        raise SystemExit(error.exit_code) from None
    log = configure_log(name, config.log_path(name))
    try:
        status = body(config)
    except PraxistError as error:
        report_fatal(config, error)
        raise SystemExit(error.exit_code) from None
    except Exception:
        log.exception("a fault of ours")
        raise SystemExit(70) from None
    raise SystemExit(status)
