"""No job of a lower place takes the last slot while a higher one waits only for a look at the host.

The oracle knows no rule of the broker's: exclusive jobs and free ones on devices that nobody else
uses. A queued exclusive job of a higher place and a device that nobody holds mean that only a look
is missing, and for the time that a look may take the job's slot is not another's.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from praxist_zmq.core.placement import SAMPLE_AGE_MAX_MS
from praxist_zmq.core.queue import CLASS_RANK
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from tests.support.host_world import Device, Host, HostRun

OPERATIONS = st.one_of(
    st.tuples(
        st.just("submit"),
        st.sampled_from(["cpu", "alone", "pair"]),
        st.sampled_from(["scout", "ordinary", "mature"]),
    ),
    st.tuples(st.just("finish"), st.integers(0, 7)),
    st.tuples(st.just("deliver"), st.sampled_from([2, 8, 60])),
    st.tuples(st.just("round")),
    st.tuples(st.just("look")),
    st.tuples(st.just("wait"), st.sampled_from([50, 400, 3_000])),
)


def contract(limit: int) -> SchedulerPolicy:
    """A fixed limit, and order by class alone."""
    return SchedulerPolicy(
        max_concurrent_experiments=limit,
        min_concurrent_experiments=limit,
        initial_concurrent_experiments=limit,
        exploration_reserve=0,
        default_profile="cpu",
        profiles={
            "cpu": Profile(pressure_domains=()),
            "alone": Profile(accelerator="gpu", gpu_count=1, pressure_domains=()),
            "pair": Profile(accelerator="gpu", gpu_count=2, pressure_domains=()),
        },
    )


class Witness:
    """Judges every plan of a run in the turn that made it."""

    def __init__(self, run: HostRun) -> None:
        self.run = run
        self.freed_ms = dict.fromkeys((device.uuid for device in run.host.devices), 0)
        self.held: set[str] = set()
        self.planned: set[str] = set()

    def judge(self) -> None:
        """After a turn: who was planned in it, and for whom a slot should have been kept."""
        broker, now_ms = self.run.broker, self.run.host.now_ms
        plans = {name: plan.job for name, plan in broker.soft.plans.items()}
        fresh = [job for name, job in plans.items() if name not in self.planned]
        self.planned |= set(plans)
        busy = {
            uuid for attempt in broker.state.attempts.values() for uuid in attempt.device_uuids
        } | {uuid for plan in broker.soft.plans.values() for uuid in plan.envelope.device_uuids}
        for uuid in self.held - busy:
            self.freed_ms[uuid] = now_ms
        self.held = busy
        used = len(broker.state.attempts) + len(plans)
        jobs = broker.state.jobs
        if used < self.run.most_allowed or not fresh:
            return
        soon = [
            uuid
            for uuid, freed_ms in self.freed_ms.items()
            if uuid not in busy and now_ms - freed_ms < SAMPLE_AGE_MAX_MS - 500
        ]
        for lower in (jobs[job] for job in fresh if jobs[job].profile == "cpu"):
            for higher in broker.state.jobs.values():
                need = broker.state.policy.profiles[higher.profile].gpu_count
                waits = higher.state == "queued" and higher.job in broker.soft.queue.waiting
                if waits and 0 < need <= len(soon) and place(higher) < place(lower):
                    raise AssertionError(f"{lower.job} took the slot of {higher.job}")


def place(job: Any) -> tuple[int, int]:
    """The lowest goes first."""
    return CLASS_RANK[job.work_class], job.queue_sequence


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(
    devices=st.integers(1, 3),
    limit=st.integers(1, 5),
    operations=st.lists(OPERATIONS, min_size=10, max_size=60),
)
def test_the_last_slot_is_of_who_goes_first_and_waits_only_for_a_look(
    devices: int, limit: int, operations: list[tuple[Any, ...]]
) -> None:
    host = Host([Device(number, 49_140) for number in range(devices)])
    run = host.add("run", contract(limit))
    run.sampling = False
    host.round()
    witness = Witness(run)
    turn = run.turn

    def judged(*commands: Any) -> None:
        turn(*commands)
        witness.judge()

    run.turn = judged  # type: ignore[method-assign]
    for number, (what, *more) in enumerate(operations):
        if what == "submit":
            run.submit(f"t-{number}", more[0], work_class=more[1])
        elif what == "finish":
            run.finish(more[0])
        elif what == "deliver":
            for _ in range(more[0]):
                run.deliver()
        elif what == "round":
            host.round()
        elif what == "look":
            run.turn(run.sample())
        else:
            host.now_ms += more[0]
            run.turn()
    for _ in range(20):
        host.round()
        run.finish()
    assert host.faults == []
