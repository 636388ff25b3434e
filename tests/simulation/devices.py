"""The fake host's devices: what is on them, and what a sampler of the host tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from praxist_zmq.protocol import reports

from .shell import SimProcess

if TYPE_CHECKING:
    from .world import SimRun, SimWorld

TOTAL_MIB = 81_920
SAMPLE_MS = 1_000
ASKED_PAUSE_MS = 100
FOREIGN_PID = 7


@dataclass
class SimDevice:
    """One device as it is, and what its driver tells."""

    index: int
    state: str = "available"
    foreign_mib: int = 0
    foreign_pct: float = 0.0
    tells_memory: bool = True
    tells_utilization: bool = True
    tells_processes: bool = True

    @property
    def uuid(self) -> str:
        """Its name."""
        return f"GPU-{self.index}"


def sample_of(world: SimWorld) -> reports.HostSampled:
    """A look at everything."""
    pressure = world.pressure
    return reports.HostSampled(
        sampled_at_mono_ms=world.time.now_ms,
        cpu_pct=pressure,
        memory_pct=5.0,
        io_pct=0.0,
        cpus=64.0,
        probe_state="available",
        probe_reason=None,
        devices=tuple(_device(world, device) for device in world.devices),
        simulated=True,
    )


def _device(world: SimWorld, device: SimDevice) -> reports.DeviceSample:
    if device.state != "available":
        return reports.DeviceSample(
            index=device.index, uuid=device.uuid, state="lost", reason="it fell off the bus"
        )
    found = []
    memory, busy = 0, 0.0
    if device.foreign_mib or device.foreign_pct:
        found.append(_process(FOREIGN_PID, FOREIGN_PID, device.foreign_mib, device.foreign_pct, ()))
        memory, busy = device.foreign_mib, device.foreign_pct
    for shim in world.on_device(device.uuid):
        if shim.leader is None or not world.alive(shim.leader):
            continue
        mib, pct = shim.uses_mib, shim.uses_pct
        line = (shim.leader, shim.identity)
        found.append(_process(shim.leader.pid, shim.leader.start_ticks, mib, pct, line))
        memory, busy = memory + mib, busy + pct
    return reports.DeviceSample(
        index=device.index,
        uuid=device.uuid,
        state="available",
        memory_total_mib=TOTAL_MIB,
        memory_used_mib=min(memory, TOTAL_MIB) if device.tells_memory else None,
        utilization_pct=min(busy, 100.0) if device.tells_utilization else None,
        processes=tuple(found) if device.tells_processes else None,
        read_at_mono_ms=world.time.now_ms,
    )


def _process(pid: int, ticks: int, mib: int, pct: float, line: Any) -> reports.DeviceProcess:
    stamps = tuple(reports.ProcessStamp(pid=p.pid, start_ticks=p.start_ticks) for p in line)
    if not stamps:
        stamps = (reports.ProcessStamp(pid=pid, start_ticks=ticks),)
    return reports.DeviceProcess(pid=pid, memory_mib=mib, utilization_pct=pct, lineage=stamps)


class SimSampler(SimProcess):
    """Publishes a sample each second, and soon when asked; publications may be lost."""

    def __init__(self, world: SimWorld, run: SimRun) -> None:
        super().__init__(world, f"{run.name}'s sampler")
        self.run = run
        self.silent_until_ms = 0
        self._asked = False
        self._last_ms = 0

    def start(self) -> None:
        """One at once, then each second."""
        self.begin()
        self._asked = False
        self._beat()

    def _beat(self) -> None:
        self._publish()
        self.after(self.world.sample_ms + self.world.rng.randint(-20, 20), self._beat)

    def ask(self) -> None:
        """Somebody wants a look soon."""
        if self.up and not self._asked:
            self._asked = True
            pause = max(1, self._last_ms + ASKED_PAUSE_MS - self.world.time.now_ms)
            self.after(pause, self._answer)

    def _answer(self) -> None:
        self._asked = False
        self._publish()

    def _publish(self) -> None:
        now = self.world.time.now_ms
        if now < self.silent_until_ms or self.world.faults.hits("sample lost"):
            return
        self._last_ms = now
        sample = self.world.sample()
        broker = self.run.broker
        life = broker.life

        def arrive() -> None:
            if broker.up and broker.life == life:
                broker.take(sample)

        self.world.time.after(self.world.rng.randint(1, 4), arrive)
