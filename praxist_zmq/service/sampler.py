"""The sampler: looks at the host and its devices, and publishes what it saw.

One sample at once, a few quick ones for brokers that connect just then, and one a second after
that; one more when the broker asks for it or the kernel tells of pressure, but no two within
NEAREST_MS. Every sample says when it was taken; a reader judges by age. NVML is spoken to here and
nowhere else, in a thread of its own, so that host pressure is told while a driver hangs. A driver
that hangs is left alone; one that fails for long gets a fresh process (`host.nvml`).
It decides nothing and keeps no state.
Source: seed 000 (live host observations); the reference of the original system, "Pressure".
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from ..host.clock import Clock, SystemClock
from ..host.device_driver import DeviceDriver
from ..host.nvml import open_nvml
from ..host.nvml_simulated import SimulatedDriver
from ..host.pressure import PressureReader
from ..host.pressure_triggers import PressureTriggers
from ..host.signal_pipe import SignalPipe
from ..host.visible_devices import VisibleDevices
from ..protocol.codec import encode
from ..protocol.reports import HostSampled
from ..transport.poller import Poller
from .child_config import ChildConfig, report_ready, serve_child, supervisor_gone
from .device_probe import DeviceProbe
from .sample_link import SampleServer

INTERVAL_MS = 1_000
QUICK_INTERVAL_MS = 50
QUICK_SAMPLES = 8
NEAREST_MS = 100
FIRST_ANSWER_S = 0.5
ANSWER_S = 0.15
STDIN = 0
FRESH_PROCESS = 69
"""The exit status of a sampler whose driver only a fresh process may still reach."""


class Sampler:
    """Puts one sample together. Waits for the driver for a moment at most."""

    def __init__(
        self, pressure: PressureReader, probe: DeviceProbe, visible: VisibleDevices, clock: Clock
    ) -> None:
        self._pressure = pressure
        self._probe = probe
        self._visible = visible
        self._clock = clock
        self._told: tuple[str, str | None] | None = None
        self.exhausted = False
        """Whether only a fresh process may still reach the driver."""

    def sample(self, patience_s: float = ANSWER_S) -> HostSampled:
        """The host now, and the devices now where the driver answers within `patience_s`; else
        as it last told them."""
        self._probe.refresh(patience_s)
        host = self._pressure.sample()
        simulated = self._probe.simulated
        answer = self._probe.reading()
        self.exhausted = answer.exhausted
        reading = self._visible.restrict(answer, simulated)
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
            cpus=host.cpus,
            probe_state=reading.state,
            probe_reason=reading.reason,
            devices=reading.devices,
            simulated=simulated,
        )


def serve(
    sampler: Sampler, publish: Callable[[HostSampled], None], wait: Callable[[int], bool]
) -> None:
    """Publish samples until `wait(milliseconds)` says that it is time to end, or the sampler that
    it needs a fresh process."""
    taken = 1
    while not sampler.exhausted and not wait(
        QUICK_INTERVAL_MS if taken <= QUICK_SAMPLES else INTERVAL_MS
    ):
        publish(sampler.sample())
        taken += 1


def open_driver(config: ChildConfig) -> DeviceDriver:
    """The driver that the configuration names: simulated devices, or NVML."""
    if config.sim is not None:
        return SimulatedDriver(config.sim.gpus, config.sim.memory_gib, config.host.simulation)
    return open_nvml()


class SampleWait:
    """Waits until a sample is due: by time, because one was asked for, because of pressure."""

    def __init__(
        self,
        signals: SignalPipe,
        requests: SampleServer,
        triggers: PressureTriggers,
        clock: Clock,
    ) -> None:
        self._signals = signals
        self._requests = requests
        self._triggers = triggers
        self._clock = clock
        self._last_ms = clock.mono_ms()
        self._poller = Poller()
        for item in (STDIN, signals, requests, triggers):
            self._poller.register(item)

    def __call__(self, milliseconds: int) -> bool:
        """Wait until `milliseconds` after the last sample, or less. True: it is time to end, by a
        signal or because the supervisor is gone."""
        due_ms = self._last_ms + milliseconds
        while (left_ms := due_ms - self._clock.mono_ms()) > 0:
            ready = self._poller.wait(left_ms)
            if STDIN in ready and supervisor_gone(STDIN):
                return True
            if self._signals in ready and "end" in self._signals.drain():
                return True
            wanted = self._requests in ready and self._requests.wanted()
            if self._triggers in ready:
                self._triggers.clear()
                wanted = True
            if wanted:
                due_ms = min(due_ms, self._last_ms + NEAREST_MS)
        self._last_ms = self._clock.mono_ms()
        return False


def _body(config: ChildConfig) -> int:
    clock = SystemClock()
    signals = SignalPipe()
    requests = SampleServer(config.samples, config.secret_bytes)
    triggers = PressureTriggers()
    probe = DeviceProbe(open_driver(config), clock)
    pressure = PressureReader()
    visible = VisibleDevices.from_environment(os.environ)
    sampler = Sampler(pressure, probe, visible, clock)

    def publish(sample: HostSampled) -> None:
        requests.publish(encode(sample))

    try:
        publish(sampler.sample(FIRST_ANSWER_S))
        report_ready(config)
        serve(sampler, publish, SampleWait(signals, requests, triggers, clock))
    finally:
        requests.close()
        triggers.close()
        pressure.close()
        if not probe.close():
            logging.getLogger(__name__).warning("the driver hangs; its thread is abandoned")
        signals.close()
    if sampler.exhausted:
        logging.getLogger(__name__).warning("the driver keeps failing; a fresh process is needed")
        return FRESH_PROCESS
    return 0


def main() -> None:
    """Run as `python -m praxist_zmq.service.sampler`, started by the supervisor."""
    serve_child("sampler", _body)


if __name__ == "__main__":
    main()
