"""Leases under every order of idle peers, submissions, declines, crashes and room taken back."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from praxist_zmq.core import broker_snapshot
from praxist_zmq.core.broker import Broker
from praxist_zmq.core.invariants import check_at_rest, check_history
from praxist_zmq.protocol import events as ev
from praxist_zmq.protocol.codec import decode_event
from praxist_zmq.protocol.replies import Refusal, Submitted
from praxist_zmq.protocol.requests import (
    AssessGeneration,
    CancelJobs,
    DeclineLease,
    OpenGeneration,
    PublishResult,
    RegisterIdle,
    SubmitJob,
    UnregisterIdle,
)
from tests.support.lease_world import LeaseWorld

PEERS = ["p1", "p2", "p3", "p4"]


class LeaseMachine(RuleBasedStateMachine):
    """N slots wake at most N peers; a lease is consumed exactly with its job, and once."""

    @initialize(devices=st.integers(0, 2), slots=st.integers(1, 3))
    def begin(self, devices: int, slots: int) -> None:
        self.world = LeaseWorld(devices, slots)
        self.given: list[str] = ["no-such-lease"]
        self.tags = 0

    @rule(peer=st.sampled_from(PEERS))
    def idle(self, peer: str) -> None:
        self.world.ask(RegisterIdle(peer=peer))

    @rule(peer=st.sampled_from(PEERS))
    def leave(self, peer: str) -> None:
        self.world.ask(UnregisterIdle(peer=peer))

    @rule(samples=st.integers(1, 3))
    def look(self, samples: int) -> None:
        self.world.look(samples)
        self.given += self.world.broker.state.leases.live

    @rule(
        peer=st.sampled_from(PEERS),
        own=st.booleans(),
        pick=st.integers(0, 30),
        work_class=st.sampled_from(["ordinary", "mature"]),
        profile=st.sampled_from(["cpu", "half"]),
    )
    def submit(self, peer: str, own: bool, pick: int, work_class: Any, profile: str) -> None:
        live = self.world.broker.state.leases.of_peer(peer)
        locator = live.lease_id if own and live is not None else self.given[pick % len(self.given)]
        self.tags += 1
        reply = self.world.ask(
            SubmitJob(
                peer=peer,
                tag=f"t{self.tags}",
                command=("run",),
                cwd="/",
                environment={},
                lease_id=locator,
                work_class=work_class,
                profile=profile,
            )
        )
        # A locator, whatever it is worth, never costs a submission anything.
        assert isinstance(reply, Submitted) or (
            isinstance(reply, Refusal)
            and reply.code
            in ("generation_assessment", "generation_closing", "profile_unsatisfiable")
        )

    @rule(peer=st.sampled_from(PEERS))
    def decline(self, peer: str) -> None:
        self.world.ask(DeclineLease(peer=peer))

    @rule(pick=st.integers(0, 9))
    def take_back(self, pick: int) -> None:
        rows = list(self.world.rows)
        if rows:
            self.world.take_back(rows[pick % len(rows)])

    @rule()
    def finish(self) -> None:
        self.world.finish_one(0)

    @rule(number=st.integers(1, 9))
    def cancel(self, number: int) -> None:
        self.world.ask(CancelJobs(jobs=(f"j-{number}",)))

    @rule(steps=st.integers(1, 4))
    def deliver(self, steps: int) -> None:
        for _ in range(steps):
            self.world.deliver()

    @rule(seconds=st.sampled_from([1, 30, 200]))
    def time_passes(self, seconds: int) -> None:
        self.world.pass_time(seconds * 1_000)

    @rule(what=st.sampled_from(["assess", "open", "publish"]))
    def generation(self, what: str) -> None:
        requests: dict[str, Any] = {
            "assess": AssessGeneration(generation=0),
            "open": OpenGeneration(generation=0, cohort_size=4),
            "publish": PublishResult(tag=f"t{self.tags}", mature=True, generation=0),
        }
        self.world.ask(requests[what])

    @rule(snapshot=st.booleans())
    def crash(self, snapshot: bool) -> None:
        if snapshot:
            self.world.take_snapshot()
        self.world.crash_broker()
        self.world.turn_supply()

    @rule(silent=st.booleans())
    def desk(self, silent: bool) -> None:
        self.world.silent = silent
        if not silent:
            self.world.to_registry.extend(self.world.unanswered)
            self.world.unanswered.clear()

    @invariant()
    def sound(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        state, memory = world.broker.state, world.broker.soft.leases
        assert check_at_rest(state) == []
        history = [decode_event(body) for body in world.disk]
        assert check_history(history) == []
        assert len(state.leases.live) + len(memory.offers) <= state.limit
        assert set(state.leases.live) <= set(memory.holds)
        assert set(memory.due_ms) == set(state.leases.live)
        assert not set(memory.idle) & {lease.peer for lease in state.leases.live.values()}
        _check_batches(history)

    @invariant()
    def replay_equals_state(self) -> None:
        if not hasattr(self, "world"):
            return
        reader = Broker()
        for sequence, body in enumerate(self.world.disk, 1):
            reader.apply(decode_event(body), sequence)
        assert broker_snapshot.differences(reader.state, self.world.broker.state) == []

    def teardown(self) -> None:
        """Once nothing is wrong any more, no room is held for nobody."""
        if not hasattr(self, "world"):
            return
        self.desk(False)
        self.world.settle()
        self.world.push_view()
        state, memory = self.world.broker.state, self.world.broker.soft.leases
        assert not memory.releasing
        assert set(self.world.rows) == set(memory.holds)
        assert set(memory.holds) == set(state.leases.live) | set(memory.answered.values())


def _check_batches(history: list[Any]) -> None:
    """Consumption follows its job's own event at once; every lease ends once, after its grant."""
    out: set[str] = set()
    used: set[str] = set()
    for before, event in zip([None, *history], history, strict=False):
        if isinstance(event, ev.LeaseGranted):
            assert event.lease_id not in out | used
            out.add(event.lease_id)
        elif isinstance(event, ev.LeaseEnded):
            out.remove(event.lease_id)
            used.add(event.lease_id)
            if event.outcome == "consumed":
                assert isinstance(before, ev.JobQueued | ev.JobRetried)
                assert before.job == event.job
                assert before.lease_id == event.lease_id


TestLeaseMachine = LeaseMachine.TestCase
TestLeaseMachine.settings = settings(
    settings.default, stateful_step_count=40, max_examples=settings.default.max_examples
)
