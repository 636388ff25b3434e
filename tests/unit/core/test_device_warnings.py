"""What `status` says of devices that were lost or carry more than they may."""

from praxist_zmq.core.devices import device_warnings
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from praxist_zmq.protocol.reports import HostSampled
from praxist_zmq.protocol.requests import ExplainJob, FreezeGeneration, SubmitJob
from tests.support.broker_world import World, host_sample


class SharedWorld(World):
    """One profile that shares devices; what the driver says of the first device can be set."""

    def __init__(self) -> None:
        self.of_first: dict[str, object] = {}
        super().__init__(devices=2, limit=4)
        self.policy = SchedulerPolicy(
            max_concurrent_experiments=4,
            min_concurrent_experiments=4,
            initial_concurrent_experiments=4,
            default_profile="half",
            profiles={
                "half": Profile(
                    accelerator="gpu",
                    gpu_count=1,
                    gpu_memory_gb=40.0,
                    gpu_utilization_pct=45.0,
                    pressure_domains=(),
                )
            },
        )
        self.start_broker()
        self.settle()

    def sample(self) -> HostSampled:
        found = host_sample(self.devices, sampled_at_mono_ms=self.now_ms)
        first = found.devices[0].model_copy(update=self.of_first)
        return found.model_copy(update={"devices": (first, *found.devices[1:])})

    def submit(self, tag: str) -> None:
        """One job of the profile."""
        self.ask(SubmitJob(tag=tag, peer="p", command=("true",), cwd="/", environment={}))
        self.settle()

    def warnings(self) -> list[str]:
        """After a fresh look."""
        self.pass_time(1_000)
        return device_warnings(self.broker.state, self.broker.soft)


def test_a_lost_device_is_told() -> None:
    world = SharedWorld()
    assert world.warnings() == []
    world.of_first = {"state": "lost", "reason": "it fell off the bus"}
    assert world.warnings() == ["GPU 0 is lost: it fell off the bus; nothing is placed on it"]


def test_a_device_whose_real_use_passes_its_bounds_is_told() -> None:
    world = SharedWorld()
    world.submit("a")
    assert world.warnings() == []
    world.of_first = {"memory_used_mib": 60_000, "utilization_pct": 80.0}
    (told,) = world.warnings()
    assert told.startswith("GPU 0 is over its bounds: memory by ")
    assert told.endswith(", compute by 25 points")


def test_foreign_load_alone_is_no_trouble() -> None:
    world = SharedWorld()
    world.of_first = {"memory_used_mib": 81_000, "utilization_pct": 100.0}
    assert world.warnings() == []


def test_no_retry_is_offered_in_a_generation_that_takes_none() -> None:
    world = SharedWorld()
    for tag in "abcde":
        world.submit(tag)
    world.ask(FreezeGeneration(generation=0, reason="enough"))
    options = world.ask(ExplainJob(subject="tag:e")).options
    assert options == ("a retry would be refused now: generation 0 is frozen: enough",)
