"""The files that the broker writes for others: where its door is, what it knows, what is fenced.

All are derived from the ledger and written after it; none is read back as a fact, except that a
close or stop file of a generation, whoever wrote it, freezes that generation.
Source: interface "Files and environment"; seed 000 "Timing And Close".
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..core.broker import Broker
from ..core.commands import RemnantsSeen, SignalSeen
from ..core.decision import Stamp
from ..core.queries import status
from ..core.timestamps import timestamp
from ..core.turn import Turn
from ..errors import PraxistError
from ..host.clock import SystemClock
from ..ledger.files import open_regular, write_atomically
from ..protocol import codec
from ..protocol.envelope import PROTOCOL_VERSION
from ..protocol.orders import WriteClosingSignal
from ..transport.context import endpoint_of
from .broker_store import write_key
from .child_config import ChildConfig
from .ledger_mark import leave_mark
from .remnants import look_again
from .run_fence import RunFence, exists

STATUS_BUSY_MS = 1_000
STATUS_IDLE_MS = 5_000
QUIET_MS = 10
"""The view is not written in the wake of an answer: whom it passes would queue behind us for a
processor, as long as all the rest takes."""
NO_QUIET_MS = 250
"""So long at most after the first answer since it was written: there may be answers all the time.
"""
REMNANTS_MS = 1_000
CLOSING_SIGNAL = "CLOSING_SIGNAL"
SIGNALS = (CLOSING_SIGNAL, "STOP_SIGNAL", "STOP_SIGNAL_POSTGEN")
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BrokerFiles:
    """One run's files of the broker's."""

    def __init__(self, config: ChildConfig, broker: Broker) -> None:
        self._config = config
        self._broker = broker
        self._clock = SystemClock()
        self._log = logging.getLogger(__name__)
        self._fence = RunFence(config.run.shutdown_fence, reopened=config.reopen)
        self._status_at_ms = 0
        self._status_sequence = -1
        self._remnants_at_ms = 0
        self._answered_at_ms = 0
        self._first_answer_ms: int | None = None
        """Of those since the view was written."""
        self._unwritten: dict[int, WriteClosingSignal] = {}

    # -- the door and the view --------------------------------------------------------------

    def write_endpoint(self) -> None:
        """Tell clients where the door is. Raises `no_space`, `path_unusable`."""
        config = self._config
        document = {
            "format_version": "1.0",
            "endpoint": endpoint_of(config.front),
            "events_endpoint": endpoint_of(config.events),
            "protocol_version": PROTOCOL_VERSION,
            "epoch": self._broker.state.epoch,
            "run_id": config.run_id,
            "run_dir": config.run_dir,
            "server_key": None,
            "supervisor": config.supervisor.model_dump(),
            "started_at": timestamp(self._clock.wall_ms()),
        }
        body = json.dumps(document, indent=1).encode() + b"\n"
        write_atomically(config.run.endpoint, body, 0o644)
        leave_mark(config.run, self._broker.state.epoch)

    def make_again(self) -> None:
        """What somebody removed meanwhile: without it clients find no door, and the next start
        cannot tell whether a credential is still the same."""
        warnings, run = self._broker.soft.warnings, self._config.run
        try:
            if not exists(str(run.endpoint)):
                self.write_endpoint()
            if not exists(str(run.credentials_key)):
                write_key(run.credentials_key, self._broker.soft.credentials_key)
            warnings.pop("removed", None)
        except PraxistError as error:
            warnings["removed"] = f"a file was removed and cannot be made again: {error}"

    def remove_endpoint(self) -> None:
        """Orderly end: nobody is to look for us."""
        self._config.run.endpoint.unlink(missing_ok=True)

    def status_due_ms(self) -> int:
        """When the derived view is to be written again, CLOCK_BOOTTIME milliseconds."""
        changed = self._status_sequence != self._broker.state.last_sequence
        due = self._status_at_ms + (STATUS_BUSY_MS if changed else STATUS_IDLE_MS)
        if self._first_answer_ms is None:
            return due
        quiet = self._answered_at_ms + QUIET_MS
        return max(due, min(quiet, self._first_answer_ms + NO_QUIET_MS))

    def answered(self, now_ms: int) -> None:
        """Somebody was answered; CLOCK_BOOTTIME milliseconds."""
        if self._first_answer_ms is None:
            self._first_answer_ms = now_ms
        self._answered_at_ms = now_ms

    def write_status(self, stamp: Stamp, *, last: bool = False) -> None:
        """The derived view, when it is due. A failure to write it is told and stops nothing."""
        if not last and stamp.mono_ms < self.status_due_ms():
            return
        self._status_at_ms = stamp.mono_ms
        self._first_answer_ms = None
        self._status_sequence = self._broker.state.last_sequence
        for order in list(self._unwritten.values()):
            self.write_closing_signal(order)
        view = status(Turn(self._broker.state, self._broker.soft, stamp))
        try:
            body = codec.encode(view) + b"\n"
            write_atomically(self._config.run.status, body, 0o644, durable=False)
            self._broker.soft.warnings.pop("status.json", None)
        except (OSError, PraxistError) as error:
            self._broker.soft.warnings["status.json"] = f"status.json is old: {error}"

    # -- fences -------------------------------------------------------------------------------

    def fenced(self) -> bool:
        """Whether the shutdown sentinel is there now, whoever put it there."""
        return self._fence.is_set()

    def fence(self) -> bool:
        """Once a stop is on disk: the file that keeps anything from starting here. False when it
        is not to be had, which stops nothing."""
        soft = self._broker.soft
        fenced = not soft.stopping or self._fence.ensure(self._clock.mono_ms())
        if not fenced:
            soft.warnings["sentinel"] = self._fence.failure
        return fenced

    def write_closing_signal(self, order: WriteClosingSignal) -> None:
        """Write `gen_<N>/CLOSING_SIGNAL`, or remove all close and stop files; only after the freeze
        or the opening is on disk. A failure is told as a warning and tried again with the next
        view: the freeze holds without the file."""
        name = f"gen_{order.generation}"
        warnings = self._broker.soft.warnings
        try:
            with _opened(self._config.run.run_dir, name, make=order.present) as directory:
                if directory is not None and order.present:
                    # By the descriptor: what a name stands for may have changed since.
                    path = Path(f"/proc/self/fd/{directory}") / CLOSING_SIGNAL
                    text = f"{timestamp(self._clock.wall_ms())} {_own_mark(order.generation)}\n"
                    write_atomically(path, text.encode(), 0o644)
                elif directory is not None:
                    for signal in SIGNALS:
                        _remove(directory, signal)
            warnings.pop(name, None)
            self._unwritten.pop(order.generation, None)
        except (OSError, PraxistError) as error:
            self._unwritten[order.generation] = order
            what = "written" if order.present else "removed"
            why = error.strerror if isinstance(error, OSError) else str(error)
            warnings[name] = f"{name}/{CLOSING_SIGNAL} cannot be {what}: {why}"
            self._log.error(warnings[name])

    def seen(self) -> Iterator[SignalSeen | RemnantsSeen]:
        """What lies in the run's directory, where that is news."""
        yield from self.closing_signals()
        known, now_ms = self._broker.soft.remnants, self._clock.mono_ms()
        if known and now_ms >= self._remnants_at_ms:
            self._remnants_at_ms = now_ms + REMNANTS_MS
            now = look_again(self._config.run, known)
            if now != known:
                yield RemnantsSeen(now)

    def closing_signals(self) -> Iterator[SignalSeen]:
        """Close and stop files of generations that take work."""
        for generation in list(self._broker.state.generations.values()):
            if generation.phase not in ("open", "assessment"):
                continue
            directory = f"{self._config.run_dir}/gen_{generation.number}"
            if not exists(directory):
                continue
            for name in SIGNALS:
                path = f"{directory}/{name}"
                if not exists(path):
                    continue
                if name == CLOSING_SIGNAL and _is_own(Path(path), generation.number):
                    # Of the close before it was opened again: the end came before its removal.
                    order = WriteClosingSignal(generation=generation.number, present=False)
                    self.write_closing_signal(order)
                else:
                    yield SignalSeen(generation.number, name)


@contextmanager
def _opened(run_dir: Path, name: str, *, make: bool) -> Iterator[int | None]:
    """A descriptor of a directory of the run, never through a link; None when it is not there."""
    top = os.open(run_dir, _OPEN_DIRECTORY)
    try:
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=top)
        try:
            directory = os.open(name, _OPEN_DIRECTORY, dir_fd=top)
        except FileNotFoundError:
            directory = None
    finally:
        os.close(top)
    try:
        yield directory
    finally:
        if directory is not None:
            os.close(directory)


def _own_mark(generation: int) -> str:
    return f"closed by the scheduler: generation {generation}"


def _is_own(path: Path, generation: int) -> bool:
    """Whether a close file is the one that this program writes."""
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except (OSError, PraxistError):
        return False
    try:
        return os.read(descriptor, 200).rstrip().endswith(_own_mark(generation).encode())
    finally:
        os.close(descriptor)


def _remove(directory: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
