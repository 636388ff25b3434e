"""A run in one thread: the real broker and registry machines, a fake launcher, a fake disk.

Messages wait in queues, so a test decides what arrives when and what is lost in a crash. The disk
keeps exactly what was made durable. The launcher is a fake: it plays attempts as processes that
wait, run and end, and its evidence survives its own death as the files of real shims do.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from praxist_zmq.core import broker_snapshot
from praxist_zmq.core.broker import Broker
from praxist_zmq.core.claim import ClaimMachine
from praxist_zmq.core.claim_commands import ClaimCommand, RegistryStarted
from praxist_zmq.core.commands import (
    ClientRequest,
    LauncherSaid,
    RegistryConnected,
    RegistrySaid,
)
from praxist_zmq.core.decision import Decision, Stamp
from praxist_zmq.core.plan import SAMPLE_PAUSE_MS
from praxist_zmq.core.soft import SoftState
from praxist_zmq.core.state import BrokerState
from praxist_zmq.protocol import orders, reports
from praxist_zmq.protocol.codec import decode_event, encode
from praxist_zmq.protocol.evidence import Remnant
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from praxist_zmq.protocol.process import ProcessIdentity

BOOT = "boot-1"
SAMPLE_MS = 1_000
RUN_KEY = "a" * 64


def identity(pid: int) -> ProcessIdentity:
    """A process of this boot."""
    return ProcessIdentity(boot_id=BOOT, pid_namespace=1, pid=pid, start_ticks=pid)


def policy(limit: int = 2, retries: int = 1) -> SchedulerPolicy:
    """Two profiles: one CPU, one GPU."""
    return SchedulerPolicy(
        max_concurrent_experiments=limit,
        min_concurrent_experiments=limit,
        initial_concurrent_experiments=limit,
        infrastructure_retries=retries,
        infrastructure_retry_pause_seconds=0,
        default_profile="cpu",
        profiles={
            "cpu": Profile(),
            "gpu": Profile(accelerator="gpu", gpu_count=1),
            "pair": Profile(accelerator="gpu", gpu_count=2),
        },
    )


def host_sample(
    devices: int, probe: str = "available", sampled_at_mono_ms: int = 0
) -> reports.HostSampled:
    """A sample with idle simulated devices."""
    return reports.HostSampled(
        sampled_at_mono_ms=sampled_at_mono_ms,
        cpu_pct=1.0,
        memory_pct=1.0,
        io_pct=0.0,
        cpus=64.0,
        probe_state=probe,  # type: ignore[arg-type]
        probe_reason=None,
        devices=tuple(
            reports.DeviceSample(
                index=n,
                uuid=f"GPU-{n}",
                state="available",
                memory_total_mib=81920,
                memory_used_mib=0,
                utilization_pct=0.0,
                processes=(),
            )
            for n in range(devices)
        ),
        simulated=True,
    )


@dataclass
class FakeAttempt:
    """One attempt as a process that a fake launcher plays."""

    name: str
    shim: ProcessIdentity
    phase: str = "waiting"
    exit_code: int | None = None
    leader: ProcessIdentity | None = None
    report: Any = None
    go_told: bool = False
    """Whether its release was ordered, by any broker."""


@dataclass
class FakeLauncher:
    """Plays processes. `attempts` is what runs on the host; `in_hand` what this launcher knows."""

    attempts: dict[str, FakeAttempt] = field(default_factory=dict)
    in_hand: set[str] = field(default_factory=set)
    runs: dict[str, int] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    next_pid: int = 1000

    def _pid(self) -> ProcessIdentity:
        self.next_pid += 1
        return identity(self.next_pid)

    def obey(self, order: Any) -> list[Any]:
        """Reports that follow from one order."""
        name = getattr(order, "attempt", None)
        attempt = self.attempts.get(name) if name else None
        match order:
            case orders.SpawnAttempt():
                if attempt is None:
                    attempt = FakeAttempt(order.attempt, self._pid())
                    self.attempts[order.attempt] = attempt
                    attempt.report = reports.AttemptReady(attempt=order.attempt, shim=attempt.shim)
                self.in_hand.add(order.attempt)
                return [attempt.report]
            case orders.ReleaseAttempt():
                if attempt is not None and attempt.phase == "waiting":
                    return [self._go(attempt)]
                return [attempt.report] if attempt is not None else []
            case orders.AbandonAttempt() | orders.StopAttempt():
                attempt = attempt or self._unknown(order.attempt)
                if attempt.phase == "waiting":
                    return [self.end(attempt, "never_ran")]
                # As the real one: what already runs is not abandoned, only stopped.
                if attempt.phase != "ended" and isinstance(order, orders.StopAttempt):
                    return [self.end(attempt, "exited", signal=15, signalled=True)]
                return [attempt.report]
            case orders.AdoptAttempt():
                self.in_hand.add(order.attempt)
                attempt = attempt or self._unknown(order.attempt)
                return [attempt.report]
            case orders.ForgetAttempt():
                self.in_hand.discard(order.attempt)
                if attempt is not None and attempt.phase == "ended":
                    del self.attempts[order.attempt]
                return []
        return []

    def _go(self, attempt: FakeAttempt) -> Any:
        self.runs[attempt.name] = self.runs.get(attempt.name, 0) + 1
        attempt.phase = "running"
        attempt.leader = self._pid()
        attempt.report = reports.AttemptStarted(
            attempt=attempt.name, leader=attempt.leader, at_ms=1
        )
        return attempt.report

    def _unknown(self, name: str) -> FakeAttempt:
        """No trace of it: it never ran. Said until it is forgotten, like everything else."""
        attempt = self.attempts[name] = FakeAttempt(name, self._pid())
        self.in_hand.add(name)
        self.end(attempt, "never_ran")
        return attempt

    def _ended(self, name: str, outcome: str, **facts: Any) -> Any:
        return reports.AttemptEnded(attempt=name, outcome=outcome, **facts)  # type: ignore[arg-type]

    def end(self, attempt: FakeAttempt, outcome: str, **facts: Any) -> Any:
        """The process ends and its whole tree is gone."""
        attempt.phase = "ended"
        attempt.report = self._ended(attempt.name, outcome, **facts)
        return attempt.report

    def die(self) -> None:
        """SIGKILL of the launcher: waiting shims see their channel close; the rest goes on."""
        self.in_hand.clear()
        for name in [n for n, a in self.attempts.items() if a.phase == "waiting"]:
            del self.attempts[name]


class World:
    """One run and its surroundings."""

    def __init__(
        self,
        devices: int = 2,
        limit: int = 2,
        *,
        contract: SchedulerPolicy | None = None,
        name: str = "run",
        registry: ClaimMachine | None = None,
        first_pid: int = 1_000,
    ) -> None:
        self.name = name
        self.run_key = RUN_KEY if name == "run" else hashlib.sha256(name.encode()).hexdigest()
        self.disk: list[bytes] = []
        self.memory: dict[str, Any] | None = None
        """Credential values that outlive the broker, by hash; None: none do."""
        self.snapshot: bytes | None = None
        self.devices = devices
        self.policy = policy(limit) if contract is None else contract
        self.launcher = FakeLauncher(next_pid=first_pid)
        self.now_ms = 1_000
        self.wall_step_ms = 0
        """How far the wall clock was set forward."""
        if registry is None:
            registry = ClaimMachine()
            registry.decide(RegistryStarted(BOOT), self.stamp())
        self.registry = registry
        self.to_launcher: deque[Any] = deque()
        self.to_registry: deque[tuple[str, Any]] = deque()
        self.senders: dict[str, int] = {}
        """Request to the process that sent it: one that is on its way outlives its broker."""
        self.to_broker: deque[Any] = deque()
        self.replies: dict[str, list[Any]] = {}
        self.published: list[Any] = []
        self.requests = 0
        self.broker_pid = first_pid - 100
        self.closing: set[int] = set()
        """Generations whose CLOSING_SIGNAL is there."""
        self.sampling = True
        self.to_supply: deque[Any] = deque()
        self.told: list[tuple[bytes, Any]] = []
        """(topic, body) of what was published about leases."""
        self.launcher_address = "launcher"
        self.restarts: list[Any] = []
        """What the supervisor was asked to start again."""
        self.orders_arrived = 0
        self.reports_sent = 0
        """Since the launcher introduced itself, as both ends count them."""
        self.remnants: tuple[Remnant, ...] = ()
        """What the next start finds on disk that its ledger does not know."""
        self.broker = Broker()
        self.start_broker()

    def stamp(self) -> Stamp:
        """Time moves by a millisecond with every look."""
        self.now_ms += 1
        at_ms = 1_700_000_000_000 + self.now_ms + self.wall_step_ms
        return Stamp(at_ms=at_ms, mono_ms=self.now_ms)

    def phase(self, generation: int) -> str:
        """Where a generation is in its life."""
        return self.broker.state.generations[generation].phase

    def sample(self) -> reports.HostSampled:
        """What the sampler tells now."""
        return host_sample(self.devices, sampled_at_mono_ms=self.now_ms)

    def pass_time(self, milliseconds: int) -> None:
        """Nothing happens for so long; then the broker looks around."""
        self.now_ms += milliseconds
        self.turn(*([self.sample()] if self.sampling else []))

    # -- the broker's life ----------------------------------------------------------------

    def start_broker(self, *, reopen: bool = True) -> None:
        """Replay the disk into a new broker and connect everything. `reopen`: as after `up`."""
        state = broker_snapshot.load(self.snapshot) if self.snapshot else BrokerState()
        self.broker_pid += 1
        soft = SoftState(
            run_dir="/run/dir" if self.name == "run" else f"/{self.name}/dir",
            run_key=self.run_key,
            user="tester",
            broker=identity(self.broker_pid),
            credentials_key=b"key",
            remnants=self.remnants,
        )
        self.broker = Broker(state, soft)
        for sequence, body in enumerate(self.disk, 1):
            if sequence > state.last_sequence:
                self.broker.apply(decode_event(body), sequence)
        decision = self.broker.begin(
            self.stamp(),
            run_id=self.name,
            boot_id=BOOT,
            version="test",
            policy=self.policy,
            generation=self.broker.state.generation,
            reopen=reopen,
            remembered=dict(self.memory or {}),
        )
        self._commit(decision)
        self.turn(RegistryConnected(), self.sample())
        self.connect_launcher()

    def crash_broker(self) -> None:
        """SIGKILL: what was sent but not handled by others stays, what was in memory is gone."""
        self.to_broker.clear()
        self.start_broker(reopen=False)

    def lose_run_directory(self) -> None:
        """It is deleted and made again, while what the run started goes on."""
        self.disk.clear()
        self.snapshot = None
        for queue in (self.to_broker, self.to_launcher, self.to_registry):
            queue.clear()
        self.launcher = FakeLauncher(next_pid=5_000)
        self.start_broker()

    def crash_launcher(self) -> None:
        """SIGKILL of the launcher and its replacement."""
        self.to_launcher.clear()
        self.to_broker = deque(c for c in self.to_broker if not isinstance(c, LauncherSaid))
        self.launcher.die()
        self.connect_launcher()

    def connect_launcher(self) -> None:
        """The launcher introduces itself and repeats what it has in hand."""
        names = tuple(sorted(self.launcher.in_hand))
        connected = reports.LauncherConnected(launcher=identity(901), attempts=names)
        self.to_broker.append(LauncherSaid(self.launcher_address, connected))
        self.reports_sent = 0
        for name in names:
            attempt = self.launcher.attempts.get(name)
            if attempt is not None:
                self.report(attempt.report)

    def report(self, report: Any) -> None:
        """The launcher says something."""
        self.reports_sent += 1
        self.to_broker.append(LauncherSaid(self.launcher_address, report))

    def take_snapshot(self) -> None:
        """What the compactor does: replay the disk, keep the state."""
        state = broker_snapshot.load(self.snapshot) if self.snapshot else BrokerState()
        reader = Broker(state)
        for sequence, body in enumerate(self.disk, 1):
            if sequence > state.last_sequence:
                reader.apply(decode_event(body), sequence)
        self.snapshot = broker_snapshot.dump(reader.state)

    # -- turns ----------------------------------------------------------------------------

    def turn(self, *commands: Any) -> None:
        """One turn of the broker: decide all, commit, send; then what follows by itself."""
        stamp = self.stamp()
        whole = Decision()
        for command in commands:
            decision = self.broker.decide(command, stamp)
            whole.events += decision.events
            whole.outbox += decision.outbox
        self._commit(whole)
        self._commit(self.broker.settle(stamp))

    def _commit(self, decision: Decision) -> None:
        if self.memory is not None:
            vault = self.broker.soft.vault
            self.memory |= vault.take_fresh()
            for hashed in vault.take_gone():
                self.memory.pop(hashed, None)
        self.disk.extend(encode(event) for event in decision.events)
        for send in decision.outbox:
            if send.to == "client":
                self.replies.setdefault(send.request_id or "", []).append(send.message)
            elif send.to == "launcher":
                if send.address == self.launcher_address:
                    self.to_launcher.append(send.message)
            elif send.to == "registry":
                self.senders[send.request_id or ""] = self.broker_pid
                self.to_registry.append((send.request_id or "", send.message))
            elif send.to == "sampler" and self.sampling:
                self.now_ms += 1
                self.to_broker.append(self.sample())
            elif send.to == "files":
                if send.message.present:
                    self.closing.add(send.message.generation)
                else:
                    self.closing.discard(send.message.generation)
            elif send.to == "events":
                self.published.append(send.message)
            elif send.to == "supervisor":
                self.restarts.append(send.message)
            elif send.to == "supply":
                self.to_supply.append(send.message)
            elif send.to == "leases":
                self.told.append((send.address, send.message))

    def deliver(self) -> bool:
        """Handle one waiting message; False when none waits."""
        if self.to_broker:
            self.turn(self.to_broker.popleft())
        elif self.to_registry:
            self.registry_step()
        elif self.to_launcher:
            self.launcher_step()
        else:
            return False
        return True

    def registry_step(self) -> None:
        """The registry answers one request."""
        if not self.to_registry:
            return
        request_id, request = self.to_registry.popleft()
        sender = self.senders.get(request_id, self.broker_pid)
        self.registry_turn(ClaimCommand(self.name, request_id, request, 0, sender))

    def registry_turn(self, command: Any) -> None:
        """One turn of the registry: a request or a fact."""
        stamp = self.stamp()
        outbox = self.registry.decide(command, stamp).outbox + self.registry.settle(stamp).outbox
        self.to_broker.extend(RegistrySaid(send.request_id, send.message) for send in outbox)

    def launcher_step(self) -> None:
        """The launcher obeys one order."""
        if self.to_launcher and isinstance(self.to_launcher[0], orders.Announce):
            self.to_launcher.popleft()
            self.connect_launcher()
        elif self.to_launcher and isinstance(self.to_launcher[0], orders.Welcome):
            self.to_launcher.popleft()
            self.orders_arrived = 0
        elif self.to_launcher and isinstance(self.to_launcher[0], orders.CompareCounts):
            if self.to_launcher.popleft().orders != self.orders_arrived:
                self.connect_launcher()
            answer = reports.CountsCompared(reports=self.reports_sent)
            self.to_broker.append(LauncherSaid(self.launcher_address, answer))
        elif self.to_launcher:
            self.orders_arrived += 1
            called_back = self._called_back(self.to_launcher[0])
            order = self.to_launcher.popleft()
            for report in () if called_back else self.launcher.obey(order):
                self.report(report)

    def _called_back(self, order: Any) -> bool:
        """As the real one, it looks through all that has come before it acts on a GO."""
        ends = (orders.AbandonAttempt, orders.StopAttempt)
        return isinstance(order, orders.ReleaseAttempt) and any(
            isinstance(other, ends) and other.attempt == order.attempt for other in self.to_launcher
        )

    def settle(self) -> None:
        """Deliver until nothing waits."""
        for _ in range(10_000):
            if self.sampling and (self.broker.soft.sample_age_ms() or 0) > SAMPLE_MS:
                self.turn(self.sample())
            if self.deliver():
                continue
            if not (self.sampling and self.broker.soft.sample_wanted):
                return
            self.now_ms += SAMPLE_PAUSE_MS
            self.turn()
            if not self.to_broker:
                return
        raise AssertionError("the world does not come to rest")

    def finish_one(self, exit_code: int = 0) -> bool:
        """One running process exits."""
        for attempt in self.launcher.attempts.values():
            if attempt.phase == "running":
                report = self.launcher.end(attempt, "exited", exit_code=exit_code, signalled=False)
                if attempt.name in self.launcher.in_hand:
                    self.report(report)
                return True
        return False

    def finish(self, name: str, exit_code: int = 0) -> None:
        """This running process exits."""
        attempt = self.launcher.attempts[name]
        report = self.launcher.end(attempt, "exited", exit_code=exit_code, signalled=False)
        if name in self.launcher.in_hand:
            self.report(report)

    # -- clients --------------------------------------------------------------------------

    def ask(self, request: Any, request_id: str | None = None, digest: str | None = None) -> Any:
        """Send one request and return the first reply, if it came in the same turn."""
        self.requests += 1
        request_id = request_id or f"request-{self.requests}"
        command = ClientRequest(
            address="client",
            request_id=request_id,
            digest=digest or f"{hash(encode(request)) & (2**256 - 1):064x}",
            request=request,
            uid=0,
            pid=1,
        )
        before = len(self.replies.get(request_id, []))
        self.turn(command)
        answers = self.replies.get(request_id, [])[before:]
        for answer in answers:
            # Some are made of known values without a look at them.
            assert type(answer).model_validate(answer.model_dump()) == answer
        return answers[0] if answers else None
