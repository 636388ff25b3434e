"""The broker's process: the run's ledger, its private link, its files. Decides nothing.

Reads what waits on the link, the samples and the registry's answers, gives it to the machine, and
sends what comes out once it is on disk (`service.step`). Source: design 3.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable
from typing import Any

from pydantic import BaseModel

from .. import __version__
from ..core.broker import Broker
from ..core.commands import (
    AudienceChanged,
    ClientRequest,
    FenceSeen,
    LauncherLost,
    LauncherSaid,
    LedgerMeasured,
    RegistryConnected,
    RegistryLost,
    RegistrySaid,
    SupplyLost,
    SupplySaid,
)
from ..core.decision import Send, Stamp, Undecodable
from ..core.invariants import check_state
from ..errors import PraxistError
from ..host.clock import SystemClock
from ..host.give_way import give_way
from ..host.identity import boot_id, identity_of, own_pid, own_user
from ..host.limits_in_force import disk_room
from ..host.resource_limits import forbid_core, raise_open_files
from ..host.signal_pipe import SignalPipe
from ..ledger.files import remove_leftovers
from ..ledger.log import Ledger
from ..protocol import codec
from ..protocol.orders import SampleNow, WriteClosingSignal
from ..protocol.policy import SchedulerPolicy
from ..protocol.replies import LeaseReply, LeasesAlive, Refusal
from ..protocol.reports import HostSampled, ProcessesSeen, StoreRead
from ..protocol.supply import LeasesPlanned
from ..transport.context import REPLY_BYTES_MAX
from ..transport.correlation import peek_request_id
from ..transport.hop import HopServer, LinkMessage
from ..transport.poller import Item, Poller
from ..transport.request import AsyncRequester
from .attention import Attention
from .broker_files import BrokerFiles
from .broker_store import credentials_key, open_ledger
from .child_config import (
    STOPPED_WITHOUT_FENCE,
    ChildConfig,
    report_ready,
    serve_child,
    supervisor_gone,
)
from .compaction import Compaction
from .patient_lock import acquire_patiently
from .preflight import look, policy_in_force, preflight, with_cap
from .sample_link import SampleLink
from .secret_keeper import SecretKeeper
from .step import Step
from .young_objects import keep_rest, watch_young

STDIN = 0
MAINTENANCE_MS = 1_000
LOCK_PATIENCE_MS = 10_000
LEAVE_PATIENCE_MS = 500
PROFILES_TOLD = 6

Address = tuple[bytes, bytes]
"""(the gateway's address on the hop, the peer's routing id at the gateway)."""


class BrokerShell:
    """The machine's links, and how messages become commands and sends become messages."""

    def __init__(self, config: ChildConfig, ledger: Ledger, broker: Broker) -> None:
        self._config = config
        self._ledger = ledger
        self._broker = broker
        self._clock = SystemClock()
        self._log = logging.getLogger(__name__)
        self.link = HopServer(config.core, config.secret_bytes)
        self.hop = HopServer(config.hop, config.secret_bytes)
        self.samples = SampleLink(config.samples, config.secret_bytes, self._clock.mono_ms)
        self.registry = AsyncRequester(config.host.registry_socket, self._clock.mono_ms)
        self._registry_up = False
        self._lost: list[LauncherLost | SupplyLost] = []
        self._measured: LedgerMeasured | None = None
        self._gateway: bytes | None = None
        self._supervisor = b""
        self.files = BrokerFiles(config, broker)
        broker.soft.fenced = self.files.fenced()
        self._maintained_at_ms = 0
        self._key = broker.soft.credentials_key
        self._attention = Attention()
        self.vault = SecretKeeper(config.vault_fd, broker.soft)
        self.step = Step(broker, ledger, self._send, self._refuse, self._rouse, self.vault)

    def stamp(self) -> Stamp:
        """Now."""
        return Stamp(at_ms=self._clock.wall_ms(), mono_ms=self._clock.mono_ms())

    def turn(self, ready: Collection[Item]) -> None:
        """Everything that waits on what is `ready`, decided, on disk, answered.

        The rest is not looked at: looking at a socket that has nothing costs as much as reading
        a message, and the poller tells of it in the next turn.
        """
        stamp = self.stamp()
        self.step.turn(self._commands(ready, stamp), stamp)
        self.files.write_status(stamp)

    def wait(self, poller: Poller) -> set[Item]:
        """Until something has come, or is due."""
        looked = self._attention.look_on(poller, self._clock.mono_ms())
        return looked or poller.wait(self._timeout_ms())

    def _timeout_ms(self) -> int:
        """How long nothing needs to be done."""
        wake = self._broker.wake_at_ms()
        due = self.files.status_due_ms()
        held = self.step.due_ms()
        again = self.registry.resend_at_ms()
        due = min([due, *(at for at in (wake, held, again) if at is not None)])
        if self._lost:
            return 0
        return max(0, due - self._clock.mono_ms())

    # -- in -------------------------------------------------------------------------------

    def _commands(self, ready: Collection[Item], stamp: Stamp) -> list[Any]:
        commands: list[Any] = list(self._lost)
        self._lost.clear()
        # First: what is sent after the sentinel or a close file is there is refused.
        if self.files.fenced() != self._broker.soft.fenced:
            commands.append(FenceSeen(not self._broker.soft.fenced))
        commands += self.files.seen()
        again_at_ms = self.registry.resend_at_ms()
        if self.registry in ready or (again_at_ms is not None and again_at_ms <= stamp.mono_ms):
            commands += self._registry_commands()
        if self.samples in ready:
            for body in self.samples.drain():
                commands += self._decoded(HostSampled, body)
        if self.hop in ready:
            for message in self.hop.drain():
                commands += self._from_gateway(message)
        if self.link in ready:
            for message in self.link.drain():
                commands += self._from_link(message)
        commands += self._measure(stamp)
        return commands

    def _from_gateway(self, message: LinkMessage) -> Iterable[Any]:
        if message.channel == b"requests":
            parts = message.parts
            for routing, sender, body in zip(parts[::3], parts[1::3], parts[2::3], strict=False):
                yield from self._request((message.address, routing), sender, body)
        elif message.channel == b"audience":
            # Publications go out through the gateway that speaks of listeners.
            self._gateway = message.address
            events, leases = (*message.parts, b"", b"")[:2]
            yield AudienceChanged(events == b"1", leases == b"1")
        else:
            self._broker.soft.count("link_unknown_channel")

    def _from_link(self, message: LinkMessage) -> Iterable[Any]:
        if message.channel == b"report":
            for body in message.parts:
                try:
                    report = codec.decode_launcher_report(body)
                except PraxistError as error:
                    self._log.error("a report of the launcher's: %s", error)
                    continue
                yield LauncherSaid(message.address, report)
        elif message.channel == b"supply":
            for body in message.parts:
                plans = self._decoded(LeasesPlanned, body) if body else (None,)
                yield from (SupplySaid(message.address, plan) for plan in plans)
        elif message.channel == b"processes":
            self._supervisor = message.address
            for body in message.parts:
                yield from self._decoded(ProcessesSeen, body)
        elif message.channel == b"results":
            for body in message.parts:
                yield from self._decoded(StoreRead, body)
        else:
            self._broker.soft.count("link_unknown_channel")

    def _request(self, address: Address, sender: bytes, body: bytes) -> Iterable[Any]:
        try:
            envelope = codec.decode_request(body)
        except PraxistError as error:
            yield Undecodable(address, peek_request_id(body), error)
            return
        uid, _, pid = sender.partition(b":")
        yield ClientRequest(
            address=address,
            request_id=envelope.request_id,
            # Keyed: it is kept, and the body holds the credentials that somebody might guess.
            digest=hashlib.blake2b(body, key=self._key, digest_size=32).hexdigest(),
            request=envelope.request,
            uid=int(uid) if uid.isdigit() else None,
            pid=int(pid) if pid.isdigit() else None,
        )

    def _registry_commands(self) -> Iterable[Any]:
        if self.registry.connected_again():
            self.registry.forget()
            self._registry_up = True
            yield RegistryConnected()
        elif self._registry_up and not self.registry.connected:
            self._registry_up = False
            self.registry.forget()
            yield RegistryLost()
        for body in self.registry.drain():
            try:
                answer = codec.decode_claim_reply(body)
            except PraxistError as error:
                self._log.error("an answer of the registry's: %s", error)
                continue
            yield RegistrySaid(answer.request_id, answer.reply)
        if again := self.registry.resend():
            self._log.warning("asked the registry again: %d requests were not answered", again)

    def _decoded(self, kind: Any, body: bytes) -> Iterable[Any]:
        try:
            yield codec.decode(kind, body)
        except PraxistError as error:
            self._log.error("a %s: %s", kind.__name__, error)

    def _measure(self, stamp: Stamp) -> Iterable[Any]:
        if stamp.mono_ms - self._maintained_at_ms >= MAINTENANCE_MS:
            self._maintained_at_ms = stamp.mono_ms
            self._ledger.maintain()
            self.files.make_again()
            keep_rest()
            size, room = self._ledger.bytes_on_disk, disk_room(self._config.run.run_dir)
        else:
            size, room = self._broker.soft.ledger_bytes, self._broker.soft.disk
        measured = LedgerMeasured(self._ledger.low_space, size, room)
        if measured != self._measured:
            self._measured = measured
            yield measured

    # -- out ------------------------------------------------------------------------------

    def _rouse(self, outbox: list[Send]) -> None:
        """A lease comes after a time in which nothing did, and those it passes need as long to wake
        as the disk to work. So its peer hears a keep-alive on its topic that tells it nothing."""
        told = [(send.address, send.message) for send in outbox if send.to == "leases"]
        leases = [(t, m) for t, m in told if isinstance(m, LeaseReply) and m.lease is not None]
        if not leases or self._gateway is None:
            return
        # The sequence is that of all peers' facts: any but 0 may be news, and make it ask.
        alive = codec.encode(LeasesAlive(epoch=leases[0][1].epoch, sequence=0))
        parts = [part for topic, _ in leases for part in (topic, alive)]
        self.hop.send(self._gateway, b"publish", parts, group=2)

    def _send(self, outbox: list[Send]) -> None:
        """Answers first: somebody waits for them. What follows takes its time anyway. Only close
        files come before: who is told of a close looks for them."""
        replies: dict[bytes, list[bytes]] = {}
        publications: list[bytes] = []
        for send in outbox:
            if send.to == "client":
                gateway, routing = send.address
                body = reply_body(send.request_id, send.message)
                replies.setdefault(gateway, []).extend((routing, body))
            elif send.to == "events":
                publications += (b"events", codec.encode(send.message))
            elif send.to == "leases":
                publications += (send.address, codec.encode(send.message))
            elif isinstance(send.message, WriteClosingSignal):
                self.files.write_closing_signal(send.message)
        for gateway, parts in replies.items():
            self.hop.send(gateway, b"replies", parts, group=2)
        if publications and self._gateway is not None:
            self.hop.send(self._gateway, b"publish", publications, group=2)
        if replies or publications:
            # The kernel put the gateway behind us, on our processor: it expects us to sleep. Orders
            # wait for that too: microseconds, or a time slice where others compute on it.
            give_way()
            self.files.answered(self._clock.mono_ms())
            self._attention.answered(sum(map(len, replies.values())) // 2)
        self._send_inward(outbox)

    def _send_inward(self, outbox: list[Send]) -> None:
        orders: dict[bytes, list[bytes]] = {}
        for send in outbox:
            if send.to == "launcher":
                orders.setdefault(send.address, []).append(codec.encode(send.message))
            elif send.to == "registry":
                body = codec.encode_request(send.request_id or "", send.message)
                self.registry.send(send.request_id or "", body)
            elif send.to == "supply":
                if not self.link.send(send.address, b"supply", [codec.encode(send.message)]):
                    self._lost.append(SupplyLost(send.address))
            elif send.to == "supervisor":
                self.link.send(self._supervisor, b"restart", [codec.encode(send.message)])
            elif isinstance(send.message, SampleNow):
                self.samples.ask()
        if orders or self.registry.unanswered:
            self._attention.busy(self._clock.mono_ms())
        for address, parts in orders.items():
            if not self.link.send(address, b"order", parts):
                self._lost.append(LauncherLost(address))

    def _refuse(self, command: Any) -> Send | None:
        if not isinstance(command, ClientRequest):
            return None
        refusal = Refusal(code="internal", detail="the request could not be decided; see the log")
        return Send("client", refusal, command.address, command.request_id)

    def _leave_registry(self) -> None:
        """Tell the registry that we end, and give it a moment to say that it has heard.

        Nothing depends on the answer: a registry that did not hear sees that we are gone.
        """
        last = self._broker.end(self.stamp())
        self.step.finish(last.events, last.outbox)
        wanted = {send.request_id for send in last.outbox}
        poller = Poller()
        poller.register(self.registry)
        deadline_ms = self._clock.mono_ms() + LEAVE_PATIENCE_MS
        while wanted and self.registry.connected:
            left_ms = deadline_ms - self._clock.mono_ms()
            if left_ms <= 0:
                return
            poller.wait(left_ms)
            answers = self._registry_commands()
            wanted -= {said.request_id for said in answers if isinstance(said, RegistrySaid)}

    def close(self) -> None:
        """Last words, then the sockets."""
        self.step.flush()
        self.files.write_status(self.stamp(), last=True)
        self.files.remove_endpoint()
        self._leave_registry()
        self.registry.close()
        self.samples.close()
        self.hop.close()
        self.link.close()


def serve(config: ChildConfig) -> int:
    """Serve until the supervisor is gone, a signal asks to end, or a stop is complete."""
    raise_open_files()
    forbid_core()
    signals = SignalPipe()
    me = identity_of(own_pid())
    holder: dict[str, object] = {"process": "broker", "pid": own_pid()}
    lock = acquire_patiently(config.run.ledger_lock, holder, SystemClock(), LOCK_PATIENCE_MS)
    run = config.run
    remove_leftovers(run.status, run.endpoint, run.credentials_key, run.shutdown_fence)
    ledger, broker = open_ledger(config)
    broker.soft.run_dir = config.run_dir
    broker.soft.run_key = config.run.run_key
    broker.soft.user = own_user()
    broker.soft.broker = me
    broker.soft.simulated = config.sim is not None
    broker.soft.credentials_key = credentials_key(config.run.credentials_key)
    for fault in check_state(broker.state):
        logging.getLogger(__name__).error("after recovery: %s", fault)
        broker.soft.warnings[f"state {fault}"] = f"after recovery: {fault}"
    policy = policy_in_force(config, broker.state.policy)
    # Before anything is recorded, bound or told.
    sample = look(config, policy)
    unsatisfiable = preflight(config, policy, sample, in_hand=len(broker.state.attempts))
    shell = BrokerShell(config, ledger, broker)
    generation = broker.state.generation if config.generation is None else config.generation
    decision = broker.begin(
        shell.stamp(),
        run_id=config.run_id,
        boot_id=boot_id(),
        version=__version__,
        policy=policy,
        generation=generation,
        reopen=config.reopen,
        cohort_size=config.cohort_size,
        deadline_at_ms=config.deadline_at_ms,
        open_generation=config.reopen and config.opens_generation,
        remembered=shell.vault.load(),
    )
    shell.step.finish(decision.events, decision.outbox)
    shell.step.turn([] if sample is None else [sample], shell.stamp())
    shell.files.write_endpoint()
    poller = Poller()
    for item in (shell.hop, shell.link, shell.samples, shell.registry, signals, STDIN):
        poller.register(item)
    compaction = Compaction(ledger, config.log_path("compact"), poller)
    report_ready(
        config,
        epoch=broker.state.epoch,
        profiles=sorted(policy.profiles)[:PROFILES_TOLD],
        profiles_count=len(policy.profiles),
        max_concurrent_experiments=policy.max_concurrent_experiments,
        max_parallel_runs_per_peer=policy.max_parallel_runs_per_peer,
        is_default_contract=with_cap(policy, None) == SchedulerPolicy(),
        unsatisfiable=unsatisfiable,
    )
    shell.files.fence()
    watch_young()
    while not broker.stopped:
        ready = shell.wait(poller)
        if STDIN in ready and supervisor_gone(STDIN):
            break
        if signals in ready and "end" in signals.drain():
            break
        compaction.ended(set(ready))
        shell.turn(ready)
        shell.files.fence()
        compaction.consider()
    fenced = shell.files.fence()
    shell.close()
    ledger.close()
    lock.release()
    if not broker.stopped:
        return ENDED_IN_ORDER
    return 0 if fenced else STOPPED_WITHOUT_FENCE


def reply_body(request_id: str | None, message: BaseModel) -> bytes:
    """A reply as it is sent; a refusal in the place of one that is larger than what is carried,
    which no repetition would bring to its sender."""
    body = codec.encode_reply(request_id, message)
    if len(body) <= REPLY_BYTES_MAX:
        return body
    detail = f"the answer has {len(body)} bytes, and {REPLY_BYTES_MAX} are carried: ask for less"
    return codec.encode_reply(request_id, Refusal(code="too_large", detail=detail))


ENDED_IN_ORDER = 143
"""The exit status after an end that was asked for; 0 is kept for a completed stop of the run."""


def main() -> None:
    """`python -m praxist_zmq.service.broker`, started by the supervisor."""
    serve_child("broker", serve)


if __name__ == "__main__":
    main()
