"""The claim registry's process: the shell around `core.claim`, one per host scope.

    python -m praxist_zmq.service.registry HOST_DIR [--detach] [--ready-fd N]

It takes the lock, replays the ledger, and only then binds the socket (a bind takes the path from
whoever has it). A second one ends with 0 and says who holds the lock. It watches brokers and bound
shims by pidfd, looks for what is left of attempts that no run answers for, and hands the core
facts, never guesses. It ends by itself after a time with no run and no allocation
(`PRAXIST_ZMQ_REGISTRY_IDLE_S`, default 5; not in a shared scope unless that is set), or in order at
SIGTERM. When the
ledger fails it ends with that error's code: brokers ask again, and whoever needs it starts it
again. It decides nothing about claims. Source of the rules: design 3.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ..core.claim_commands import (
    BrokersGone,
    BrokerUnreachable,
    ClaimCommand,
    DevicesElsewhere,
    ProcessesProvedAbsent,
    RegistryStarted,
)
from ..core.claim_state import Watch
from ..core.decision import Send, Stamp, Undecodable
from ..errors import PraxistError
from ..host.clock import Clock, SystemClock
from ..host.default_scope import hold_scope
from ..host.device_names import DeviceNames
from ..host.fresh_place import FreshPlace
from ..host.identity import boot_id, identity_of
from ..host.paths import HostPaths, canonical
from ..host.process_watch import ProcessWatch
from ..host.resource_limits import raise_open_files
from ..host.runtime_dir import ScopeDirectory, ensure_private, ensure_scope
from ..host.signal_pipe import SignalPipe
from ..host.stdio import ensure_open
from ..host.unclaimed_names import UnclaimedNames
from ..ledger.files import remove_leftovers, write_atomically
from ..ledger.lock import OwnerLock
from ..ledger.log import Ledger
from ..ledger.named_file import NamedFile
from ..ledger.snapshot import Snapshots
from ..protocol.claims import (
    CLAIMS_VERSION,
    ClaimLease,
    ClaimReplyEnvelope,
    Denied,
    DeviceElsewhere,
    RegisterRun,
    Reserve,
    ViewHost,
)
from ..protocol.codec import decode_claim_request, encode
from ..transport.bounded_door import BoundedDoor
from ..transport.correlation import peek_request_id
from ..transport.front import Incoming
from ..transport.poller import Poller
from .orphan_trees import OrphanTrees
from .registry_recovery import recovered
from .registry_start import of_another
from .run_proof import as_seen, forged
from .service_log import configure_log
from .standing import Standing
from .step import Step

IDLE_EXIT_S = 5.0
IDLE_EXIT_S_MAX = 86_400.0
COMPACT_RETRY_MS = 30_000
"""Between two tries of a snapshot that the disk has no room for."""
SCOPE_WAIT_MS = 1_000
"""For an earlier registry of the scope to give up the user's name."""
PROGRAM = "registry"
LEDGER_OWNER = "host"
"""What the ledger's header names in place of a run."""

_log = logging.getLogger(__name__)


class RegistryService:
    """One registry that holds the lock. `serve` returns when it may end."""

    def __init__(
        self,
        host: HostPaths,
        scope: ScopeDirectory,
        clock: Clock,
        idle_exit_s: float | None,
        place: FreshPlace,
    ) -> None:
        self._host = host
        self._place = place
        self._scope = scope
        self._clock = clock
        self._idle_exit_ms = None if idle_exit_s is None else int(idle_exit_s * 1000)
        self._ledger = Ledger.open(host.ledger, PROGRAM, LEDGER_OWNER, boot_id())
        self._machine = recovered(self._ledger)
        self._step = Step(self._machine, self._ledger, self._send, refusal)
        self._poller = Poller()
        self._watch: ProcessWatch[Watch] = ProcessWatch(
            self._poller.register, self._poller.unregister
        )
        self._trees = OrphanTrees(self._poller.register, self._poller.unregister)
        self._names = DeviceNames(host.directory, self._poller.register, self._poller.unregister)
        self._unclaimed = UnclaimedNames(self._poller.register, self._poller.unregister)
        self._elsewhere: tuple[DeviceElsewhere, ...] = ()
        self._facts: list[Any] = [RegistryStarted(boot_id(), os.geteuid())]
        self._door: BoundedDoor | None = None
        self._watched_version = -1
        self._compact_at_ms = 0
        self._busy_at_ms = clock.mono_ms()
        self._standing = Standing()

    @property
    def epoch(self) -> int:
        """Of this registry; grows with every start."""
        return self._machine.state.epoch

    def open(self, lock: OwnerLock) -> None:
        """Make the start durable, learn who died meanwhile, then let brokers in."""
        self._unclaimed.find(self._host.directory, self._clock.mono_ms())
        self._turn([])
        while self._facts:
            self._turn([])
        self._door = BoundedDoor(
            self._host.registry_socket,
            everybody=self._scope.shared,
            mono_ms=self._clock.mono_ms if self._scope.shared else None,
        )
        self._poller.register(self._door)
        me = identity_of(os.getpid())
        info = {
            "pid": os.getpid(),
            "epoch": self.epoch,
            "version": CLAIMS_VERSION,
            "process": None if me is None else me.model_dump(),
            "idle_exit_s": None if self._idle_exit_ms is None else self._idle_exit_ms / 1000,
        }
        host = self._host
        write_atomically(host.registry_info, json.dumps(info).encode() + b"\n", durable=False)
        found = map(NamedFile.found, (host.registry_socket, host.registry_info))
        self._standing.hold(PROGRAM, [lock.named, *found])

    def serve(self, signals: SignalPipe) -> str:
        """Answer until a signal or idleness ends it. Returns why it ends. Raises PraxistError
        `file_lost` when nobody could find it any more: whoever needs it starts the next one."""
        assert self._door is not None
        self._poller.register(signals)
        while True:
            readable = self._poller.wait(self._timeout_ms())
            if signals in readable and "end" in signals.drain():
                return "asked to end"
            self._note_gone(self._watch.ended(readable))
            messages = self._door.drain()
            if messages or not self._machine.idle:
                self._busy_at_ms = self._clock.mono_ms()
            self._turn(messages)
            self._look_for_trees(readable)
            self._compact()
            self._place.keep(self._clock.mono_ms())
            for path in self._standing.lost(self._clock.mono_ms()).values():
                raise PraxistError("file_lost", f"{path} was removed or replaced")
            limit_ms = self._idle_exit_ms
            if limit_ms is not None and not self._facts and self._idle_ms() >= limit_ms:
                return f"no run and no allocation for {limit_ms / 1000:g} s"

    def close(self) -> None:
        """Unbind, close the ledger; the lock is the caller's."""
        self._step.flush()
        if self._door is not None:
            counts = {"refused": self._machine.refused, "door": self._door.counters}
            _log.info("served until now", extra={"fields": counts})
            self._door.close()
            self._host.registry_info.unlink(missing_ok=True)
        self._watch.close()
        self._trees.close()
        self._names.close()
        self._unclaimed.close()
        self._ledger.close()

    # -- one turn --------------------------------------------------------------------------

    def _turn(self, messages: Sequence[Incoming]) -> None:
        """Facts before messages: a dead broker must not keep its successor out."""
        stamp = Stamp(at_ms=self._clock.wall_ms(), mono_ms=self._clock.mono_ms())
        commands = [_command(message) for message in messages]
        self._take_names(commands, stamp.mono_ms)
        facts, self._facts = self._facts, []
        self._step.turn([*facts, *commands], stamp)
        self._names.keep(self._machine.state.placed)
        if self._machine.state.version != self._watched_version:
            self._watched_version = self._machine.state.version
            self._unclaimed.claimed(self._machine.state.shims)
            self._note_gone(self._watch.update(self._machine.state.watches))

    def _take_names(self, commands: Sequence[Any], now_ms: int) -> None:
        """Before anything is decided: what is placed, and what is asked for, is ours, or it is told
        to be another scope's."""
        requests = [c.request for c in commands if isinstance(c, ClaimCommand)]
        self._names.refresh(now_ms)
        if any(isinstance(request, RegisterRun | ViewHost) for request in requests):
            self._names.look(now_ms)
        asked = (r.envelope.device_uuids for r in requests if isinstance(r, Reserve | ClaimLease))
        self._names.take({*self._machine.state.placed, *chain.from_iterable(asked)}, now_ms)
        self._unclaimed.refresh(now_ms)
        before, self._elsewhere = self._elsewhere, self._names.elsewhere + self._unclaimed.devices
        if self._elsewhere != before:
            self._facts.append(DevicesElsewhere(self._elsewhere))

    def _send(self, outbox: list[Send]) -> None:
        """A peer that is gone or does not read loses the message, and asks or registers again."""
        if self._door is None:
            return
        for send in outbox:
            reply: Any = send.message
            body = encode(ClaimReplyEnvelope(request_id=send.request_id, reply=reply))
            if not self._door.send(send.address, body):
                _log.info("a broker was not there for its %s", reply.kind)
                self._facts.append(BrokerUnreachable(send.address))

    def _note_gone(self, gone: Sequence[Watch]) -> None:
        """Brokers that ended. That a shim ended only wakes us: its tree may live."""
        brokers = tuple(watch for watch in gone if watch.attempt is None)
        if brokers:
            self._facts.append(BrokersGone(brokers))
        self._trees.shims_gone(gone)

    def _look_for_trees(self, readable: Iterable[object]) -> None:
        """After the turn: a run that has just gone down is followed while its shims live."""
        now_ms = self._clock.mono_ms()
        self._note_gone(self._trees.ended_elsewhere(self._watch.unjudged, now_ms))
        self._trees.follow(self._machine.state.unserved(self._machine.disowned), now_ms)
        gone = self._trees.look(readable, now_ms)
        if gone:
            self._facts.append(ProcessesProvedAbsent(gone))

    def _compact(self) -> None:
        """Replace sealed segments by a snapshot; the state is small, so it is done in between."""
        now = self._clock.mono_ms()
        if self._ledger.sealed_since_snapshot and now >= self._compact_at_ms:
            data = encode(self._machine.snapshot())
            try:
                Snapshots(self._host.ledger).write(self._ledger.last_sequence, data)
                self._ledger.drop_covered()
            except PraxistError as error:
                if error.code != "no_space":
                    raise
                # Nothing is lost: the segments it would replace are kept.
                self._compact_at_ms = now + COMPACT_RETRY_MS
                _log.error("no snapshot: %s", error)
        self._ledger.maintain()

    def _idle_ms(self) -> int:
        return self._clock.mono_ms() - self._busy_at_ms if self._machine.idle else -1

    def _timeout_ms(self) -> int:
        if self._facts:
            return 0
        now_ms = self._clock.mono_ms()
        due = [self._standing.look_at_ms - now_ms]
        wakes = (
            self._machine.wake_at_ms(),
            self._step.due_ms(),
            self._place.due_ms,
            self._trees.due_ms(),
            self._names.due_ms(),
            self._unclaimed.due_ms(),
        )
        due.extend(wake - now_ms for wake in wakes if wake is not None)
        if self._machine.idle and self._idle_exit_ms is not None:
            due.append(self._idle_exit_ms - self._idle_ms())
        return max(0, min(due))


def _command(message: Incoming) -> ClaimCommand | Undecodable:
    try:
        envelope = decode_claim_request(message.body)
    except PraxistError as error:
        return Undecodable(message.routing_id, peek_request_id(message.body), error)
    request = as_seen(envelope.request, message.pid)
    return ClaimCommand(
        address=message.routing_id,
        request_id=envelope.request_id,
        request=request,
        uid=message.uid,
        pid=message.pid,
        forged=forged(request, message.uid, message.pid),
    )


def refusal(command: Any) -> Send | None:
    """The answer to a request that a fault of ours made undecidable; facts have no sender."""
    if not isinstance(command, ClaimCommand):
        return None
    reply = Denied(code="internal", detail="a fault of ours; the registry's log says more")
    return Send("broker", reply, command.address, command.request_id)


def idle_exit_s(shared: bool) -> float | None:
    """The configured time until an unused registry ends. Raises `usage` when it is malformed.

    One that other users need, and may not start, stays unless a time is set.
    """
    text = os.environ.get("PRAXIST_ZMQ_REGISTRY_IDLE_S", "")
    if shared and not text:
        return None
    try:
        value = float(text) if text else IDLE_EXIT_S
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= IDLE_EXIT_S_MAX:
        raise PraxistError(
            "usage", f"PRAXIST_ZMQ_REGISTRY_IDLE_S={text[:40]!r}: 0 to {IDLE_EXIT_S_MAX:g} seconds"
        )
    return value


def run(host: HostPaths, tell: Any) -> int:
    """Everything from the lock to the end. Returns the exit status. Raises PraxistError."""
    scope = own_scope(host)
    idle = idle_exit_s(scope.shared)
    me = identity_of(os.getpid())
    holder = {"pid": os.getpid(), "process": None if me is None else me.model_dump()}
    try:
        lock = OwnerLock.acquire(host.registry_lock, holder)
    except PraxistError as error:
        if error.code != "already_running":
            raise
        _log.info(error.detail)
        tell({"held": error.detail})
        return 0
    try:
        remove_leftovers(host.registry_info)
        signals = SignalPipe()
        name = hold_scope(host.directory, SCOPE_WAIT_MS)
        clock = SystemClock()
        place = FreshPlace([host.directory.parent] if name else [], host.directory, clock.mono_ms())
        service = RegistryService(host, scope, clock, idle, place)
        try:
            service.open(lock)
            tell({"ready": {"pid": os.getpid(), "epoch": service.epoch}})
            _log.info("epoch %d serves %s", service.epoch, host.directory)
            _log.info("ends: %s", service.serve(signals))
        finally:
            service.close()
            place.close()
            if name is not None:
                name.close()
    finally:
        lock.release()
    return 0


def own_scope(host: HostPaths) -> ScopeDirectory:
    """The scope's directory, when we may serve it. Raises `unsafe_path`, `not_yours`."""
    scope = ensure_scope(host.directory)
    if not scope.ours:
        raise PraxistError("not_yours", of_another(host, scope.owner))
    return scope


class _Starter:
    """Whoever started us and waits for one line on a descriptor."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def tell(self, message: dict[str, Any]) -> None:
        """Say it once and close; a starter that went away is no fault."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            os.write(descriptor, json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            _log.info("whoever started this has not waited")
        finally:
            os.close(descriptor)


def arguments(argv: Sequence[str]) -> tuple[HostPaths, bool, int | None]:
    """(host scope, whether to detach, readiness descriptor). Raises `usage`."""
    words, detach, ready = list(argv), False, None
    if "--detach" in words:
        words.remove("--detach")
        detach = True
    if "--ready-fd" in words:
        at = words.index("--ready-fd")
        number = words[at + 1] if at + 1 < len(words) else ""
        if not number.isdigit() or not 3 <= int(number) <= 65_535:
            raise PraxistError("usage", f"--ready-fd {number!r} is not a descriptor")
        ready = int(number)
        del words[at : at + 2]
    if len(words) != 1 or not words[0] or words[0].startswith("-"):
        raise PraxistError("usage", "give one host directory")
    return HostPaths(canonical(words[0])), detach, ready


def main(argv: Sequence[str]) -> int:
    """The process. Returns the exit status."""
    ensure_open()
    os.umask(0o077)
    try:
        host, detach, ready = arguments(argv)
        if ready is not None:
            os.set_inheritable(ready, False)
    except (PraxistError, OSError) as error:
        configure_log(PROGRAM).error(str(error))
        return 2
    if detach and os.fork():
        os._exit(0)  # the starter waits for this one only; nothing is open yet
    starter = _Starter(ready)
    configure_log(PROGRAM)
    try:
        own_scope(host)
        ensure_private(host.log)
        configure_log(PROGRAM, _log_behind_stderr(host.log / f"{PROGRAM}.log"))
        raise_open_files()
        return run(host, starter.tell)
    except PraxistError as error:
        _log.error(str(error), extra={"fields": {"code": error.code}})
        starter.tell({"error": {"code": error.code, "detail": error.detail}})
        return error.exit_code
    except Exception as fault:
        logging.getLogger(__name__).exception("a fault of ours")
        starter.tell({"error": {"code": "internal", "detail": repr(fault)[:500]}})
        raise SystemExit(70) from None


def _log_behind_stderr(path: Path) -> Path | None:
    """The path when stderr is that very file, so that it may be turned over; else None."""
    try:
        there, ours = os.stat(path), os.fstat(2)
    except FileNotFoundError:
        return None
    return path if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) else None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
