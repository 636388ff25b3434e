"""The launcher process: configuration from its supervisor, its lock, its link, its loop.

It ends in order when its supervisor does (end of file on stdin); running experiments go on.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import PraxistError
from ..host import signals
from ..host.clock import Clock, SystemClock, pause_ms
from ..host.paths import RunPaths
from ..protocol.codec import explain
from .launching import Launcher
from .service_log import configure_log

CONFIGURATION_BYTES_MAX = 1_048_576
LOCK_WAIT_MS = 5_000
LOG = logging.getLogger("launcher")


class LauncherConfiguration(BaseModel):
    """What the supervisor tells the launcher; keys for other processes are passed over."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    run_dir: str = Field(min_length=1, description="Canonical directory of the run")
    core: str = Field(min_length=1, description="Socket of the broker's private link")
    secret: str = Field(pattern=r"^([0-9a-f]{2}){16,64}$", description="The link's secret, hex")
    ready_fd: int = Field(ge=3, description="Descriptor for the one line that says ready")


def read_configuration(fd: int) -> LauncherConfiguration:
    """The first line of `fd`. Raises PraxistError `start_failed`."""
    line = bytearray()
    while not line.endswith(b"\n"):
        part = os.read(fd, 1)
        if not part or len(line) > CONFIGURATION_BYTES_MAX:
            raise PraxistError("start_failed", "no configuration line on stdin")
        line += part
    try:
        return LauncherConfiguration.model_validate_json(bytes(line))
    except ValidationError as error:
        raise PraxistError("start_failed", f"configuration: {explain(error)}") from None


def lock(run: RunPaths, clock: Clock) -> int:
    """Hold the launcher's lock of the run; the descriptor is the hold.

    An earlier launcher that is ending gets a moment. Raises PraxistError `already_running`.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        run.scheduler.mkdir(mode=0o755, parents=True, exist_ok=True)
        fd = os.open(run.launcher_lock, flags, 0o600)
    except OSError as error:
        raise PraxistError("path_unusable", f"{run.launcher_lock}: {error}") from error
    deadline = clock.mono_ms() + LOCK_WAIT_MS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock.mono_ms() > deadline:
                os.close(fd)
                raise PraxistError("already_running", "another launcher serves this run") from None
            pause_ms(20)
        else:
            return fd


class _LinkClient(Protocol):
    """What this process uses of `transport.link.LinkClient`."""

    def fileno(self) -> int: ...

    def drain(self) -> list[tuple[bytes, list[bytes]]]: ...

    def send(self, channel: bytes, parts: Sequence[bytes]) -> bool: ...

    def connected_again(self) -> bool: ...


class CoreLink:
    """The launcher's channels on the private link: orders in, reports out."""

    def __init__(self, client: _LinkClient) -> None:
        self._client = client

    def fileno(self) -> int:
        """Wakes the loop."""
        return self._client.fileno()

    def receive(self) -> list[bytes]:
        """Bodies of the orders that wait."""
        found: list[bytes] = []
        for channel, parts in self._client.drain():
            if channel == b"order":
                found.extend(parts)
            else:
                LOG.warning("a message on channel %r was not for a launcher", channel)
        return found

    def send(self, bodies: list[bytes]) -> bool:
        """One message of reports; False when it was dropped."""
        return self._client.send(b"report", bodies)

    def connected_again(self) -> bool:
        """True once after each handshake."""
        return self._client.connected_again()


def announce(fd: int) -> None:
    """One JSON line on the descriptor of the supervisor: ready."""
    os.write(fd, json.dumps({"ready": "launcher", "pid": os.getpid()}).encode() + b"\n")
    os.close(fd)


def serve(configuration: LauncherConfiguration, stdin: int) -> None:
    """Be the launcher until the supervisor ends. Raises PraxistError."""
    from ..transport.link import LinkClient

    clock = SystemClock()
    run = RunPaths(Path(configuration.run_dir))
    held = lock(run, clock)
    client = LinkClient(Path(configuration.core), bytes.fromhex(configuration.secret))
    launcher = Launcher(run, CoreLink(client), clock)
    signals.on_term(launcher.finish)
    try:
        announce(configuration.ready_fd)
        launcher.serve(until_closed=stdin)
    finally:
        launcher.close()
        client.close()
        os.close(held)


def main() -> int:
    """`python -m praxist_zmq.service.launcher`; the exit status."""
    signals.outlive_terminal()
    configure_log("launcher")
    try:
        configuration = read_configuration(0)
        run = RunPaths(Path(configuration.run_dir))
        configure_log("launcher", run.service_logs / "launcher.log")
        serve(configuration, 0)
    except PraxistError as error:
        last_words = {"code": error.code, "detail": error.detail}
        LOG.error(str(error), extra={"fields": {"fatal": last_words}})
        return error.exit_code
    except Exception:
        LOG.exception("a fault of ours")
        return os.EX_SOFTWARE
    return 0


if __name__ == "__main__":
    sys.exit(main())
