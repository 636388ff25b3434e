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
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from praxist_zmq.core.claim import ORPHAN_GRACE_MS, ClaimMachine
from praxist_zmq.core.claim_commands import (
    BrokersGone,
    ClaimCommand,
    ProcessesProvedAbsent,
    RegistryStarted,
)
from praxist_zmq.core.claim_invariants import history_violations, state_violations
from praxist_zmq.core.claim_state import Watch
from praxist_zmq.core.demand import is_exclusive
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

RUNS = ("a", "b")
DEVICES = ("gpu0", "gpu1")

runs = st.sampled_from(RUNS)
attempts = st.sampled_from(["j-1.1", "j-2.1"])
envelopes = st.builds(
    Envelope,
    device_uuids=st.lists(st.sampled_from(DEVICES), max_size=2).map(tuple),
    exclusive=st.booleans(),
    memory_mib=st.sampled_from([None, 512]),
    utilization_pct=st.sampled_from([None, 10.0]),
)


@dataclass
class Broker:
    """One broker process and what it believes."""

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
        self.shims: dict[tuple[str, str], list[ProcessIdentity]] = {}
        self.history: list[Any] = []
        self.sent: list[ClaimCommand] = []
        self.machine = ClaimMachine()
        self.give(RegistryStarted(self.boot_id))
        for name in RUNS:
            self.broker_takes_over(name)

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
        reply = self.give(asked)
        if isinstance(reply, Granted | Registered):
            self.sent.append(asked)
        return reply

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
        reply = self.ask(RegisterRun(registration=1, run=row, attempts=tuple(broker.believed)))
        assert isinstance(reply, Registered)
        self.brokers[name] = broker

    @rule(data=st.data())
    def run_directory_is_made_anew(self, data: st.DataObject) -> None:
        """A broker that knows nothing registers while the last one's evaluators still run."""
        name = data.draw(runs)
        if any(owner == name for owner, _ in self.running):
            self.broker_takes_over(name)
            broker = self.brokers[name]
            row = run_row(name, broker.epoch, broker.identity)
            self.ask(RegisterRun(registration=1, run=row, attempts=()))
            broker.believed.clear()
            broker.bound.clear()

    @precondition(lambda self: self.brokers)
    @rule(data=st.data(), attempt=attempts, envelope=envelopes, launch=st.booleans())
    def reserves(self, data: st.DataObject, attempt: str, envelope: Envelope, launch: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.brokers)))
        broker = self.brokers[name]
        if attempt in broker.believed:
            return
        reply = self.ask(
            Reserve(
                registration=1,
                run_key=run_key(name),
                epoch=broker.epoch,
                attempt=attempt,
                envelope=envelope,
            )
        )
        if isinstance(reply, Granted):
            broker.believed[attempt] = envelope
            if launch:
                self.bind(name, attempt)

    def candidates(self, bound: bool) -> list[tuple[str, str]]:
        """What the brokers hold, in order."""
        return [
            (name, attempt)
            for name, broker in sorted(self.brokers.items())
            for attempt in sorted(broker.believed)
            if (attempt in broker.bound) == bound
        ]

    def bind(self, name: str, attempt: str) -> None:
        """Bind, and let go when it is granted."""
        broker = self.brokers[name]
        shim = self.new_process()
        reply = self.ask(
            Bind(
                registration=1,
                run_key=run_key(name),
                epoch=broker.epoch,
                attempt=attempt,
                shim=shim,
            )
        )
        if isinstance(reply, Granted):
            broker.bound[attempt] = shim
            self.running[name, attempt] = (shim, broker.believed[attempt])
            self.shims[name, attempt] = [*self.shims.get((name, attempt), []), shim]

    @precondition(lambda self: self.candidates(bound=False))
    @rule(data=st.data())
    def binds_and_lets_go(self, data: st.DataObject) -> None:
        self.bind(*data.draw(st.sampled_from(self.candidates(bound=False))))

    @precondition(lambda self: self.candidates(bound=False))
    @rule(data=st.data())
    def releases_unstarted(self, data: st.DataObject) -> None:
        self.release(*data.draw(st.sampled_from(self.candidates(bound=False))))

    @precondition(lambda self: set(self.candidates(bound=True)) - set(self.running))
    @rule(data=st.data())
    def releases_ended(self, data: st.DataObject) -> None:
        """What the launcher saw end."""
        ended = sorted(set(self.candidates(bound=True)) - set(self.running))
        self.release(*data.draw(st.sampled_from(ended)))

    def release(self, name: str, attempt: str) -> None:
        """Give up a hold; it is never refused to the run's broker."""
        broker = self.brokers[name]
        reply = self.ask(
            Release(registration=1, run_key=run_key(name), epoch=broker.epoch, attempt=attempt)
        )
        assert isinstance(reply, Granted)
        assert (run_key(name), attempt) not in self.machine.state.rows
        broker.believed.pop(attempt)
        broker.bound.pop(attempt, None)

    @precondition(lambda self: self.brokers)
    @rule(data=st.data(), told=st.booleans())
    def broker_dies(self, data: st.DataObject, told: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.brokers)))
        broker = self.brokers.pop(name)
        self.zombies.append((name, broker))
        if told:
            self.broker_seen_gone(name, broker)

    def broker_seen_gone(self, name: str, broker: Broker) -> None:
        """The kernel's word on one broker; it says nothing of the run's next broker."""
        self.give(BrokersGone((Watch(run_key(name), None, broker.identity),)))
        if name in self.brokers:
            assert run_key(name) in self.machine.state.runs

    @precondition(lambda self: self.brokers)
    @rule(data=st.data())
    def broker_ends_in_order(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.brokers)))
        broker = self.brokers.pop(name)
        self.ask(DeregisterRun(registration=1, run_key=run_key(name), epoch=broker.epoch))

    # -- faults ----------------------------------------------------------------------------

    @precondition(lambda self: self.zombies)
    @rule(data=st.data(), attempt=attempts, envelope=envelopes)
    def zombie_acts(self, data: st.DataObject, attempt: str, envelope: Envelope) -> None:
        """A broker that lost its run wakes up; the run's new broker must not notice."""
        name, zombie = data.draw(st.sampled_from(self.zombies))
        key, epoch = run_key(name), zombie.epoch
        request = data.draw(
            st.sampled_from(
                [
                    Reserve(
                        registration=1, run_key=key, epoch=epoch, attempt=attempt, envelope=envelope
                    ),
                    Bind(
                        registration=1,
                        run_key=key,
                        epoch=epoch,
                        attempt=attempt,
                        shim=self.new_process(),
                    ),
                    Release(registration=1, run_key=key, epoch=epoch, attempt=attempt),
                    DeregisterRun(registration=1, run_key=key, epoch=epoch),
                ]
            )
        )
        if name in self.brokers or not isinstance(request, Release):
            before = self.machine.snapshot()
            self.ask(request)
            assert name not in self.brokers or self.machine.snapshot() == before

    @precondition(lambda self: self.zombies)
    @rule(data=st.data())
    def zombie_seen_gone(self, data: st.DataObject) -> None:
        self.broker_seen_gone(*data.draw(st.sampled_from(self.zombies)))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), told=st.booleans())
    def evaluator_ends(self, data: st.DataObject, told: bool) -> None:
        name, attempt = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[name, attempt]
        if told:
            self.shims_seen_gone(name, attempt)

    @precondition(lambda self: self.shims)
    @rule(data=st.data())
    def old_shims_seen_gone(self, data: st.DataObject) -> None:
        """The kernel's word comes late: the row is gone or was taken anew."""
        self.shims_seen_gone(*data.draw(st.sampled_from(sorted(self.shims))))

    def shims_seen_gone(self, name: str, attempt: str) -> None:
        """All shims this attempt ever had, less one that still runs."""
        lives = self.running.get((name, attempt), (None, None))[0]
        gone = [shim for shim in self.shims[name, attempt] if shim != lives]
        self.give(
            ProcessesProvedAbsent(tuple(Watch(run_key(name), attempt, shim) for shim in gone))
        )

    @precondition(lambda self: self.sent)
    @rule()
    def late_copies(self) -> None:
        """A broken connection delivers granted messages again: nothing changes."""
        before = self.machine.snapshot()
        for copy in self.sent[-12:]:
            self.give(copy)
        assert self.machine.snapshot() == before

    @rule(gone=st.sampled_from([0, 1, ORPHAN_GRACE_MS]))
    def time_passes(self, gone: int) -> None:
        self.now += gone
        self.history += self.machine.settle(stamp(self.now)).events

    @rule(from_snapshot=st.booleans())
    def registry_crashes(self, from_snapshot: bool) -> None:
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
        self.give(RegistryStarted(self.boot_id))

    @rule(chance=st.integers(0, 4))
    def host_reboots(self, chance: int) -> None:
        if chance:
            return
        self.boot += 1
        for gone in (self.brokers, self.zombies, self.running, self.shims):
            gone.clear()
        self.registry_crashes(from_snapshot=True)
        assert self.machine.idle

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
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestClaimRegistry = Registry.TestCase
