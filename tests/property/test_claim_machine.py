"""Several runs, brokers that die at any time, a registry that dies at any time.

The model keeps what the registry cannot see: which evaluators really run. A broker sends GO only
after a granted `Bind`; then the evaluator runs until the model ends it. Checked after every step:
no two evaluators that run share a device which one of them wanted alone, the state's invariants,
and the invariants of the whole history; a registry that restarts has the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from praxist_zmq.core.claim import (
    ORPHAN_GRACE_MS,
    BrokersGone,
    ClaimCommand,
    ClaimMachine,
    ProcessesProvedAbsent,
    RegistryStarted,
)
from praxist_zmq.core.claim_invariants import history_violations, state_violations
from praxist_zmq.core.claim_state import Watch, is_exclusive
from praxist_zmq.protocol.claims import (
    Bind,
    ClaimReleased,
    DeregisterRun,
    Envelope,
    Granted,
    Registered,
    RegisterRun,
    Release,
    Reserve,
)
from praxist_zmq.protocol.process import ProcessIdentity
from tests.support.claims import command, process, run_key, run_row, stamp

RUNS = ("a", "b", "c")
DEVICES = ("gpu0", "gpu1", "gpu2")

runs = st.sampled_from(RUNS)
attempts = st.sampled_from(["j-1.1", "j-2.1", "j-3.1"])
envelopes = st.builds(
    Envelope,
    device_uuids=st.lists(st.sampled_from(DEVICES), max_size=2).map(tuple),
    exclusive=st.booleans(),
    memory_mib=st.sampled_from([None, 512]),
    utilization_pct=st.sampled_from([None, 10.0]),
)


@dataclass
class Broker:
    """One broker process and what it believes; `go` are attempts it let start."""

    epoch: int
    identity: ProcessIdentity
    believed: dict[str, Envelope] = field(default_factory=dict)
    bound: dict[str, ProcessIdentity] = field(default_factory=dict)


class Registry(RuleBasedStateMachine):
    """The world around one registry."""

    @initialize()
    def start(self) -> None:
        self.now = 0
        self.boot = 1
        self.next_pid = 100
        self.epochs: dict[str, int] = dict.fromkeys(RUNS, 0)
        self.brokers: dict[str, Broker] = {}
        self.zombies: list[tuple[str, Broker]] = []
        self.running: dict[tuple[str, str], tuple[ProcessIdentity, Envelope]] = {}
        self.shims: dict[tuple[str, str], ProcessIdentity] = {}
        self.history: list[Any] = []
        self.sent: list[ClaimCommand] = []
        self.released: dict[int, int] = {}
        self.machine = ClaimMachine()
        self.give(RegistryStarted(self.boot_id))

    @property
    def boot_id(self) -> str:
        return f"boot-{self.boot}"

    def new_process(self) -> ProcessIdentity:
        self.next_pid += 1
        return process(self.next_pid, boot=self.boot_id)

    def give(self, fact: Any) -> Any:
        decision = self.machine.decide(fact, stamp(self.now))
        self.history += decision.events
        return decision.outbox[0].message if decision.outbox else None

    def ask(self, request: Any) -> Any:
        asked = command(request)
        self.sent.append(asked)
        return self.give(asked)

    # -- brokers ---------------------------------------------------------------------------

    @rule(name=runs)
    def broker_takes_over(self, name: str) -> None:
        """A new broker; it carries over what the last one's ledger knew to be running."""
        old = self.brokers.pop(name, None)
        if old is not None:
            self.zombies.append((name, old))
        self.epochs[name] += 1
        broker = Broker(self.epochs[name], self.new_process())
        for (owner, attempt), (shim, envelope) in self.running.items():
            if owner == name:
                broker.believed[attempt] = envelope
                broker.bound[attempt] = shim
        row = run_row(name, broker.epoch, broker.identity)
        reply = self.ask(RegisterRun(run=row, attempts=tuple(broker.believed)))
        assert isinstance(reply, Registered)
        self.brokers[name] = broker

    @rule(name=runs, attempt=attempts, envelope=envelopes)
    def reserves(self, name: str, attempt: str, envelope: Envelope) -> None:
        broker = self.brokers.get(name)
        if broker is None or attempt in broker.bound or (name, attempt) in self.running:
            return
        reply = self.ask(
            Reserve(run_key=run_key(name), epoch=broker.epoch, attempt=attempt, envelope=envelope)
        )
        if isinstance(reply, Granted):
            broker.believed[attempt] = envelope

    @rule(name=runs, attempt=attempts)
    def binds_and_lets_go(self, name: str, attempt: str) -> None:
        broker = self.brokers.get(name)
        if broker is None or attempt not in broker.believed or attempt in broker.bound:
            return
        shim = self.new_process()
        reply = self.ask(
            Bind(run_key=run_key(name), epoch=broker.epoch, attempt=attempt, shim=shim)
        )
        if isinstance(reply, Granted):
            broker.bound[attempt] = shim
            self.running[name, attempt] = (shim, broker.believed[attempt])
            self.shims[name, attempt] = shim

    @rule(name=runs, attempt=attempts)
    def releases(self, name: str, attempt: str) -> None:
        """Only what never started, or what the launcher saw end."""
        broker = self.brokers.get(name)
        if broker is None or attempt not in broker.believed or (name, attempt) in self.running:
            return
        reply = self.ask(Release(run_key=run_key(name), epoch=broker.epoch, attempt=attempt))
        assert isinstance(reply, Granted)
        broker.believed.pop(attempt)
        broker.bound.pop(attempt, None)

    @rule(name=runs, told=st.booleans())
    def broker_dies(self, name: str, told: bool) -> None:
        broker = self.brokers.pop(name, None)
        if broker is None:
            return
        if told:
            self.give(BrokersGone((Watch(run_key(name), None, broker.identity),)))
        else:
            self.zombies.append((name, broker))

    @rule(name=runs)
    def broker_ends_in_order(self, name: str) -> None:
        broker = self.brokers.pop(name, None)
        if broker is not None:
            self.ask(DeregisterRun(run_key=run_key(name), epoch=broker.epoch))

    # -- faults ----------------------------------------------------------------------------

    @rule(data=st.data())
    def zombie_acts(self, data: st.DataObject) -> None:
        """A broker that lost its run wakes up; what it lets start must still be safe."""
        if not self.zombies:
            return
        name, zombie = data.draw(st.sampled_from(self.zombies))
        attempt = data.draw(attempts)
        self.ask(
            Reserve(
                run_key=run_key(name),
                epoch=zombie.epoch,
                attempt=attempt,
                envelope=data.draw(envelopes),
            )
        )

    @rule(name=runs, attempt=attempts, told=st.booleans())
    def evaluator_ends(self, name: str, attempt: str, told: bool) -> None:
        if self.running.pop((name, attempt), None) is not None and told:
            self.shim_seen_gone(name, attempt)

    @rule(name=runs, attempt=attempts)
    def shim_seen_gone(self, name: str, attempt: str) -> None:
        """The kernel's word arrives, maybe late, maybe after the row is gone or taken anew."""
        shim = self.shims.get((name, attempt))
        if shim is not None and (name, attempt) not in self.running:
            self.give(ProcessesProvedAbsent((Watch(run_key(name), attempt, shim),)))

    @rule(data=st.data())
    def late_copy(self, data: st.DataObject) -> None:
        """A broken connection delivers an old message again."""
        if self.sent:
            copy = data.draw(st.sampled_from(self.sent[-12:]))
            before = dict(self.machine.state.rows)
            reply = self.give(copy)
            if isinstance(reply, Granted) and isinstance(copy.request, Release):
                assert dict(self.machine.state.rows) == before

    @rule(gone=st.integers(0, 2 * ORPHAN_GRACE_MS))
    def time_passes(self, gone: int) -> None:
        self.now += gone
        self.history += self.machine.settle(stamp(self.now)).events

    @rule(from_snapshot=st.booleans(), reboot=st.booleans())
    def registry_crashes(self, from_snapshot: bool, reboot: bool) -> None:
        """A new registry has the state of the old one, from a snapshot or from the events."""
        before = self.machine.snapshot()
        if from_snapshot:
            again = ClaimMachine(before)
        else:
            again = ClaimMachine()
            for sequence, event in enumerate(self.history, start=1):
                again.apply(event, sequence)
        assert again.snapshot() == before
        assert set(again.state.watches) == set(self.machine.state.watches)
        self.machine = again
        self.sent.clear()
        if reboot:
            self.boot += 1
            self.brokers.clear()
            self.zombies.clear()
            self.running.clear()
            self.shims.clear()
        self.give(RegistryStarted(self.boot_id))
        assert not reboot or self.machine.idle

    # -- what must hold --------------------------------------------------------------------

    @invariant()
    def no_two_evaluators_on_an_exclusive_device(self) -> None:
        for device in DEVICES:
            on_it = [e for _, e in self.running.values() if device in e.device_uuids]
            assert len(on_it) < 2 or not any(is_exclusive(e) for e in on_it)

    @invariant()
    def whatever_runs_is_held(self) -> None:
        for (name, attempt), (shim, envelope) in self.running.items():
            row = self.machine.state.rows[run_key(name), attempt]
            assert (row.bound, row.envelope) == (shim, envelope)

    @invariant()
    def state_and_history_are_right(self) -> None:
        assert state_violations(self.machine.state) == []
        assert history_violations(self.history) == []

    def teardown(self) -> None:
        """Liveness: when all processes are gone and time passed, nothing is held."""
        if not hasattr(self, "machine"):
            return
        self.running.clear()
        self.give(RegistryStarted(self.boot_id))
        watches = list(self.machine.state.watches)
        self.give(BrokersGone(tuple(w for w in watches if w.attempt is None)))
        self.give(ProcessesProvedAbsent(tuple(w for w in watches if w.attempt is not None)))
        self.time_passes(0)
        self.time_passes(ORPHAN_GRACE_MS)
        assert self.machine.idle
        ends = [e for e in self.history if isinstance(e, ClaimReleased)]
        starts = [e for e in self.history if e.kind == "claim_reserved"]
        assert len(ends) == len(starts)
        assert history_violations(self.history) == []


Registry.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestClaimRegistry = Registry.TestCase
