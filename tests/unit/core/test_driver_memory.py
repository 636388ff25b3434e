"""Two halves of a device: of what may be promised they fit, of the whole they wait and are told
why; and what a driver keeps beyond the 5 % is not promised to two runs at once."""

from __future__ import annotations

from praxist_zmq.core.admission import BlockerTable
from praxist_zmq.protocol.claims import Reserve
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from praxist_zmq.protocol.reports import HostSampled
from praxist_zmq.protocol.requests import SubmitJob
from tests.support.broker_world import World


class Halves(World):
    """One device, of which the driver keeps something."""

    def __init__(self, gib: float, total_mib: int, reserved_mib: int) -> None:
        self.withheld: set[int | None] = set()
        """As what is not to be promised, with plans that the registry was asked for."""
        self.card = {"memory_total_mib": total_mib, "memory_reserved_mib": reserved_mib}
        half = Profile(
            accelerator="gpu",
            gpu_count=1,
            gpu_memory_gb=gib,
            gpu_utilization_pct=50,
            pressure_domains=(),
        )
        super().__init__(
            1,
            contract=SchedulerPolicy(
                max_concurrent_experiments=2,
                min_concurrent_experiments=2,
                initial_concurrent_experiments=2,
                default_profile="half",
                profiles={"half": half},
            ),
        )
        for number in (1, 2):
            self.ask(
                SubmitJob(peer="p", tag=f"t-{number}", command=("true",), cwd="/", environment={})
            )
            self.settle()

    def sample(self) -> HostSampled:
        sample = super().sample()
        first = sample.devices[0].model_copy(update=self.card)
        return sample.model_copy(update={"devices": (first,)})

    def registry_step(self) -> None:
        for _, request in list(self.to_registry)[:1]:
            if isinstance(request, Reserve):
                self.withheld |= {fact.foreign_memory_mib for fact in request.facts}
        super().registry_step()

    def why(self) -> str:
        table = BlockerTable(self.broker.state, self.broker.soft)
        return "; ".join(found.detail for found in table.of(self.broker.state.jobs["j-2"]))


def test_halves_of_what_may_be_promised_run_side_by_side() -> None:
    world = Halves(10.5, 23_028, 517)
    assert len(world.broker.state.attempts) == 2


def test_halves_of_the_whole_wait_and_the_reason_says_what_may_be_promised() -> None:
    world = Halves(40, 81_920, 600)
    assert len(world.broker.state.attempts) == 1
    assert world.why() == (
        "memory: needs 40.0 GiB, at best 36.0 GiB free on GPU 0; 76.0 GiB of its 80.0 GiB may be "
        "promised: at most 95 % of a device and its driver keeps 0.6 GiB"
    )


def test_what_the_driver_keeps_beyond_the_rest_is_kept_from_all_runs() -> None:
    world = Halves(3.5, 8_192, 1_024)
    assert len(world.broker.state.attempts) == 2
    world = Halves(3.75, 8_192, 1_024)
    assert len(world.broker.state.attempts) == 1
    assert world.withheld == {8_192 * 95 // 100 - 7_168}
