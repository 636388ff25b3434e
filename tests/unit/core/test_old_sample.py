"""A sampler that is gone: its last reading of the host neither refuses nor lets a burst through."""

from __future__ import annotations

from praxist_zmq.core.placement import SAMPLE_AGE_MAX_MS
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from tests.support.broker_world import World
from tests.support.explained import LoadedWorld, Wish


class BusyWorld(LoadedWorld):
    """A LoadedWorld whose one CPU profile minds the CPU."""

    def start_broker(self, *, reopen: bool = True) -> None:
        self.policy = SchedulerPolicy(
            max_concurrent_experiments=8,
            min_concurrent_experiments=8,
            initial_concurrent_experiments=8,
            default_profile="cpu",
            profiles={"cpu": Profile(pressure_domains=("cpu",))},
        )
        World.start_broker(self, reopen=reopen)


def test_an_old_reading_at_the_high_mark_does_not_refuse_for_ever() -> None:
    world = BusyWorld([], cpu_pct=99.0)
    world.look()
    jobs = [world.submit(Wish("p", "cpu")) for _ in range(3)]
    states = world.broker.state.jobs
    assert [states[job].state for job in jobs] == ["queued"] * 3
    world.sampling = False
    due_ms = world.broker.wake_at_ms()
    assert due_ms is not None
    assert due_ms <= world.now_ms + SAMPLE_AGE_MAX_MS + 1
    world.pass_time(SAMPLE_AGE_MAX_MS + 1)
    world.settle()
    # Of what is not known one begins at a time.
    assert [states[job].state for job in jobs] == ["running", "queued", "queued"]
    world.finish(jobs[0])
    assert [states[job].state for job in jobs] == ["completed", "running", "queued"]
