"""The sampler: looks at the host and its devices, and publishes what it saw.

One sample at once, a few quick ones for brokers that connect just then, and one a second after
that. Every sample says when it was taken; a reader judges by age. NVML is spoken to here and
nowhere else, in a thread of its own, so that host pressure is told while a driver hangs.
It decides nothing and keeps no state.
Source: seed 000 (live host observations); the reference of the original system, "Pressure".
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable
from pathlib import Path

from ..host.clock import Clock, SystemClock
from ..host.device_driver import DeviceDriver
from ..host.nvml import open_nvml
from ..host.nvml_simulated import SimulatedDriver
from ..host.pressure import PressureReader
from ..host.signal_pipe import SignalPipe
from ..host.visible_devices import VisibleDevices
from ..protocol.codec import encode
from ..protocol.reports import HostSampled
from ..transport.publication import Publisher
from .child_config import ChildConfig, report_ready, serve_child, supervisor_gone
from .device_probe import DeviceProbe

TOPIC = b"host"
INTERVAL_MS = 1_000
QUICK_INTERVAL_MS = 50
QUICK_SAMPLES = 8
FIRST_ANSWER_S = 0.5


class Sampler:
    """Puts one sample together. `sample` never waits for the driver."""

    def __init__(
        self, pressure: PressureReader, probe: DeviceProbe, visible: VisibleDevices, clock: Clock
    ) -> None:
        self._pressure = pressure
        self._probe = probe
        self._visible = visible
        self._clock = clock
        self._told: tuple[str, str | None] | None = None

    def first(self) -> HostSampled:
        """The sample at start: gives the driver a moment, so that it usually holds devices."""
        self._probe.ask()
        self._probe.wait_answer(FIRST_ANSWER_S)
        return self.sample()

    def sample(self) -> HostSampled:
        """What is known now; asks the driver for the next one."""
        host = self._pressure.sample()
        simulated = self._probe.simulated
        reading = self._visible.restrict(self._probe.reading(), simulated)
        self._probe.ask()
        if (reading.state, reading.reason) != self._told:
            self._told = (reading.state, reading.reason)
            text = "devices: %s%s"
            why = f" ({reading.reason})" if reading.reason else ""
            logging.getLogger(__name__).info(text, reading.state, why)
        return HostSampled(
            sampled_at_mono_ms=self._clock.mono_ms(),
            cpu_pct=host.cpu_pct,
            memory_pct=host.memory_pct,
            io_pct=host.io_pct,
            probe_state=reading.state,
            probe_reason=reading.reason,
            devices=reading.devices,
            simulated=simulated,
        )


def serve(
    sampler: Sampler, publish: Callable[[HostSampled], None], wait: Callable[[int], bool]
) -> None:
    """Publish samples until `wait(milliseconds)` says that it is time to end."""
    taken = 1
    while not wait(QUICK_INTERVAL_MS if taken <= QUICK_SAMPLES else INTERVAL_MS):
        publish(sampler.sample())
        taken += 1


def open_driver(config: ChildConfig) -> DeviceDriver:
    """The driver that the configuration names: simulated devices, or NVML."""
    if config.sim is not None:
        return SimulatedDriver(config.sim.gpus, config.sim.memory_gib, config.host.simulation)
    return open_nvml()


class _EndWait:
    """Waits for time to pass, or for the end: a signal, or a supervisor that is gone."""

    def __init__(self, signals: SignalPipe) -> None:
        self._signals = signals
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._poll.register(signals.fileno(), select.POLLIN)

    def __call__(self, milliseconds: int) -> bool:
        for descriptor, _events in self._poll.poll(milliseconds):
            if descriptor == 0 and supervisor_gone():
                return True
            if descriptor == self._signals.fileno() and "end" in self._signals.drain():
                return True
        return False


def _body(config: ChildConfig) -> int:
    clock = SystemClock()
    signals = SignalPipe()
    publisher = Publisher(Path(config.samples))
    probe = DeviceProbe(open_driver(config), clock)
    pressure = PressureReader()
    visible = VisibleDevices.from_environment(os.environ)
    sampler = Sampler(pressure, probe, visible, clock)

    def publish(sample: HostSampled) -> None:
        publisher.publish(TOPIC, encode(sample))

    try:
        publish(sampler.first())
        report_ready(config)
        serve(sampler, publish, _EndWait(signals))
    finally:
        publisher.close()
        pressure.close()
        if not probe.close():
            logging.getLogger(__name__).warning("the driver hangs; its thread is abandoned")
        signals.close()
    return 0


def main() -> None:
    """Run as `python -m praxist_zmq.service.sampler`, started by the supervisor."""
    serve_child("sampler", _body)


if __name__ == "__main__":
    main()
