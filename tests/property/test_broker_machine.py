"""The broker under every order of submissions, ends, crashes and cancellations that is found."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from praxist_zmq.core import broker_snapshot
from praxist_zmq.core.broker import Broker
from praxist_zmq.core.commands import SignalSeen
from praxist_zmq.core.invariants import check_at_rest, check_history
from praxist_zmq.core.plan import DENIED_PAUSE_MS
from praxist_zmq.protocol.codec import decode_event
from praxist_zmq.protocol.ids import job_of
from praxist_zmq.protocol.job_states import TERMINAL_STATES
from praxist_zmq.protocol.orders import ReleaseAttempt
from praxist_zmq.protocol.replies import GenerationReply, Refusal, Submitted
from praxist_zmq.protocol.requests import (
    AssessGeneration,
    CancelJobs,
    FreezeGeneration,
    OpenGeneration,
    PublishResult,
    StopRun,
    SubmitJob,
)
from tests.support.broker_world import World

TAGS = [f"tag-{n}" for n in range(6)]


class BrokerMachine(RuleBasedStateMachine):
    """Whatever happens: accepted once, run at most once an attempt, never two on a device."""

    @initialize(devices=st.integers(0, 3), limit=st.integers(1, 4))
    def begin(self, devices: int, limit: int) -> None:
        self.world = World(devices, limit)
        self.accepted: dict[str, str] = {}
        self.stopped = False
        self.fenced: dict[int, set[str]] = {}
        """Generation -> attempts that had begun, or had GO on its way, at its freeze."""

    @rule(
        tag=st.sampled_from(TAGS),
        peer=st.sampled_from(["p1", "p2"]),
        profile=st.sampled_from([None, "cpu", "gpu", "pair"]),
        work_class=st.sampled_from(["scout", "ordinary", "mature"]),
        retry=st.booleans(),
        secret=st.sampled_from([{}, {"API_TOKEN": "s3cr3t-value"}]),
        eta=st.sampled_from([None, 1.0, 3.0]),
    )
    def submit(
        self,
        tag: str,
        peer: str,
        profile: Any,
        work_class: Any,
        retry: bool,
        secret: Any,
        eta: float | None,
    ) -> None:
        request = SubmitJob(
            peer=peer,
            tag=tag,
            command=("run", "s3cr3t-value") if secret else ("run",),
            cwd="/",
            environment={"A": "b", **secret},
            profile=profile,
            work_class=work_class,
            eta_seconds=eta,
            retry_terminal=retry,
        )
        reply = self.world.ask(request)
        assert isinstance(reply, Submitted | Refusal)
        if isinstance(reply, Submitted):
            self.accepted[reply.job.job] = tag

    @rule(tag=st.sampled_from(TAGS))
    def submit_twice_with_one_id(self, tag: str) -> None:
        request = SubmitJob(peer="p1", tag=tag, command=("run",), cwd="/", environment={})
        request_id = f"fixed-{tag}"
        first = self.world.ask(request, request_id)
        second = self.world.ask(request, request_id)
        assert type(first) is type(second)
        if isinstance(first, Submitted) and isinstance(second, Submitted):
            assert first.job.job == second.job.job
            assert first.new == second.new
            self.accepted[first.job.job] = tag

    @rule(steps=st.integers(1, 5))
    def deliver(self, steps: int) -> None:
        for _ in range(steps):
            self.world.deliver()

    @rule()
    def registry_first(self) -> None:
        self.world.registry_step()

    @rule()
    def launcher_first(self) -> None:
        self.world.launcher_step()

    @rule(exit_code=st.sampled_from([0, 0, 1, 75]))
    def finish(self, exit_code: int) -> None:
        self.world.finish_one(exit_code)

    @rule(number=st.integers(1, 8), running=st.booleans(), timeout=st.booleans())
    def cancel(self, number: int, running: bool, timeout: bool) -> None:
        self.world.ask(
            CancelJobs(jobs=(f"j-{number}",), running=running, admission_timeout=timeout)
        )

    @rule()
    def crash_broker(self) -> None:
        self.world.crash_broker()

    @rule()
    def crash_launcher(self) -> None:
        self.world.crash_launcher()

    @rule()
    def snapshot_then_crash(self) -> None:
        self.world.take_snapshot()
        self.world.crash_broker()

    @rule(
        generation=st.integers(0, 1),
        deadline=st.sampled_from([None, 5.0]),
        quorum=st.sampled_from([None, 1]),
        rerun=st.booleans(),
    )
    def open_generation(
        self, generation: int, deadline: float | None, quorum: int | None, rerun: bool
    ) -> None:
        request = OpenGeneration(
            generation=generation, cohort_size=4, deadline_seconds=deadline,
            mature_quorum=quorum, publish_completed=rerun, rerun=rerun,
        )  # fmt: skip
        if isinstance(self.world.ask(request), GenerationReply):
            self.fenced.pop(generation, None)

    @rule(generation=st.integers(0, 1))
    def assess(self, generation: int) -> None:
        self.world.ask(AssessGeneration(generation=generation))

    @rule(generation=st.sampled_from([0, 1, None]), signal=st.booleans(), steps=st.integers(0, 8))
    def freeze(self, generation: int | None, signal: bool, steps: int) -> None:
        """Anywhere on the way of a new job; then the rest of its way is gone."""
        world = self.world
        tag = f"late-{len(world.disk)}"
        request = SubmitJob(peer="p3", tag=tag, command=("run",), cwd="/", environment={})
        reply = world.ask(request)
        if isinstance(reply, Submitted):
            self.accepted[reply.job.job] = tag
        for _ in range(steps):
            world.deliver()
        world.ask(FreezeGeneration(generation=generation, signal=signal))
        self.nothing_starts_after_a_freeze()
        for _ in range(8):
            world.deliver()

    @rule(generation=st.integers(0, 1))
    def see_a_close_file(self, generation: int) -> None:
        self.world.turn(SignalSeen(generation, "CLOSING_SIGNAL"))

    @rule(tag=st.sampled_from(TAGS), mature=st.booleans(), store=st.booleans())
    def publish(self, tag: str, mature: bool, store: bool) -> None:
        source: Any = "store" if store else "peer"
        self.world.ask(PublishResult(tag=tag, mature=mature, source=source))

    @rule(seconds=st.sampled_from([1, 6]), step_ms=st.sampled_from([0, 0, 86_400_000, -3_600_000]))
    def pass_time(self, seconds: int, step_ms: int) -> None:
        self.world.wall_step_ms += step_ms
        self.world.pass_time(seconds * 1000)

    @rule()
    def stop(self) -> None:
        if not self.stopped and len(self.accepted) > 4:
            self.stopped = True
            self.world.ask(StopRun(grace_seconds=0))

    @invariant()
    def sound(self) -> None:
        if not hasattr(self, "world"):
            return
        state = self.world.broker.state
        assert check_at_rest(state) == []
        assert check_history(decode_event(body) for body in self.world.disk) == []
        assert all(count == 1 for count in self.world.launcher.runs.values())
        assert set(self.accepted) <= set(state.jobs)
        assert all(one.counts["queued"] >= 0 for one in state.generations.values())
        assert b"s3cr3t-value" not in b"".join(self.world.disk)

    @invariant()
    def nothing_starts_after_a_freeze(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        state = world.broker.state
        for number, found in state.generations.items():
            if found.phase not in ("frozen", "closed"):
                continue
            assert not found.counts["queued"]
            assert (number in world.closing) == found.signal
            told = {
                name
                for name, job in self._attempts()
                if job.generation == number
                and (name in world.launcher.runs or name in self._ordered())
            }
            # What had GO on its way at the freeze may still begin; nothing else may.
            assert told <= self.fenced.setdefault(number, told)

    def _attempts(self) -> list[tuple[str, Any]]:
        jobs = self.world.broker.state.jobs
        known = {*self.world.launcher.runs, *self._ordered()}
        return [(name, jobs[job_of(name)]) for name in known]

    def _ordered(self) -> set[str]:
        orders = self.world.to_launcher
        return {order.attempt for order in orders if isinstance(order, ReleaseAttempt)}

    @invariant()
    def replay_equals_state(self) -> None:
        if not hasattr(self, "world"):
            return
        reader = Broker()
        for sequence, body in enumerate(self.world.disk, 1):
            reader.apply(decode_event(body), sequence)
        assert broker_snapshot.differences(reader.state, self.world.broker.state) == []

    def teardown(self) -> None:
        """With no more faults, every job ends (those without their secrets wait for them)."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.connect_launcher()
        for _ in range(200):
            world.settle()
            if world.broker.soft.held_back:
                world.pass_time(DENIED_PAUSE_MS)
                world.settle()
            if not world.finish_one(0):
                break
        world.settle()
        waiting = world.broker.soft.lacking_credentials
        for job in world.broker.state.jobs.values():
            impossible = job.profile == "pair" and world.devices < 2
            impossible |= job.profile == "gpu" and world.devices < 1
            assert job.state in TERMINAL_STATES or job.job in waiting or impossible, job
        assert not world.broker.state.attempts
        assert not world.broker.soft.plans
        assert not world.registry.state.rows


TestBrokerMachine = BrokerMachine.TestCase
TestBrokerMachine.settings = settings(
    settings.default, stateful_step_count=40, max_examples=settings.default.max_examples
)
