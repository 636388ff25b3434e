"""A run with devices, foreign load and a mixed queue, built again and again in the same way."""

from __future__ import annotations

from dataclasses import dataclass

from praxist_zmq.core.commands import LauncherSaid
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from praxist_zmq.protocol.reports import DeviceProcess, DeviceSample, HostSampled
from praxist_zmq.protocol.requests import SubmitJob
from tests.support.broker_world import World

TOTAL_MIB = 81_920
PROFILES = {
    "cpu": Profile(pressure_domains=()),
    "small": Profile(
        accelerator="gpu", gpu_count=1, gpu_memory_gb=20.0, gpu_utilization_pct=45.0,
        pressure_domains=(),
    ),
    "big": Profile(
        accelerator="gpu", gpu_count=1, gpu_memory_gb=50.0, gpu_utilization_pct=70.0,
        pressure_domains=("cpu",),
    ),
    "pair": Profile(
        accelerator="gpu", gpu_count=2, gpu_memory_gb=30.0, gpu_utilization_pct=50.0,
        pressure_domains=(),
    ),
    "alone": Profile(accelerator="gpu", gpu_count=1, pressure_domains=()),
}  # fmt: skip


@dataclass(frozen=True)
class Wish:
    """One job of the queue."""

    peer: str
    profile: str
    work_class: str = "ordinary"
    eta_s: float | None = None


class LoadedWorld(World):
    """A world whose devices are also used by others."""

    def __init__(
        self,
        external: list[tuple[int, float]],
        *,
        limit: int = 8,
        most: int | None = None,
        cap: int | None = None,
        cpu_pct: float = 1.0,
    ) -> None:
        self.external = dict(enumerate(external))
        self.cpu_pct = cpu_pct
        super().__init__(devices=len(external))
        self.policy = SchedulerPolicy(
            max_concurrent_experiments=most or limit,
            min_concurrent_experiments=limit,
            initial_concurrent_experiments=limit,
            max_parallel_runs_per_peer=cap,
            cpu_low_pct=0.5,
            default_profile="cpu",
            profiles=PROFILES,
        )
        self.start_broker()
        self.settle()

    def sample(self) -> HostSampled:
        """What the sampler tells now: idle but for the others."""
        return (
            super()
            .sample()
            .model_copy(
                update={
                    "cpu_pct": self.cpu_pct,
                    "devices": tuple(_device(n, *used) for n, used in self.external.items()),
                }
            )
        )

    def submit(self, wish: Wish) -> str:
        """One more job; its name."""
        number = self.broker.state.last_job_number + 1
        answer = self.ask(
            SubmitJob(
                peer=wish.peer,
                tag=f"tag-{number}",
                command=("true",),
                cwd="/",
                environment={},
                profile=wish.profile,
                work_class=wish.work_class,  # type: ignore[arg-type]
                eta_seconds=wish.eta_s,
            )
        )
        self.settle()
        name: str = answer.job.job
        return name

    def finish(self, job: str) -> None:
        """The process of a running job exits, and the host is looked at again."""
        name = self.broker.state.jobs[job].attempt
        assert name is not None
        attempt = self.launcher.attempts[name]
        report = self.launcher.end(attempt, "exited", exit_code=0)
        self.to_broker.append(LauncherSaid("launcher", report))
        self.settle()
        self.look()

    def look(self) -> None:
        """Samples until one changes nothing."""
        for _ in range(4):
            self.pass_time(1_001)
            self.settle()

    def queued(self) -> list[str]:
        """Jobs that wait."""
        return [name for name, job in self.broker.state.jobs.items() if job.state == "queued"]

    def running(self) -> list[str]:
        """Jobs that run."""
        return [attempt.job for attempt in self.broker.state.attempts.values()]


def _device(number: int, memory_mib: int, utilization_pct: float) -> DeviceSample:
    processes = ()
    if memory_mib or utilization_pct:
        stranger = DeviceProcess(
            pid=88_000 + number, memory_mib=memory_mib, utilization_pct=utilization_pct,
            name="python", user="dana",
        )  # fmt: skip
        processes = (stranger,)  # type: ignore[assignment]
    return DeviceSample(
        index=number,
        uuid=f"GPU-{number}",
        state="available",
        memory_total_mib=TOTAL_MIB,
        memory_used_mib=memory_mib,
        utilization_pct=utilization_pct,
        processes=processes,
    )
