"""A driver that hangs or fails is told as unknown, and stops nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from praxist_zmq.host.device_driver import DriverReading
from praxist_zmq.protocol.reports import DeviceSample
from praxist_zmq.service.device_probe import LATE_MS, DeviceProbe
from tests.support.wait import wait_until

DEVICE = DeviceSample(
    index=0, uuid="GPU-0", state="available", memory_total_mib=10, memory_used_mib=5
)


class HandClock:
    """A fake clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0

    def wall_ms(self) -> int:
        return self.now

    def mono_ms(self) -> int:
        return self.now


class FakeDriver:
    """A fake driver: answers when its gate is open, fails when told to."""

    name = "fake"
    simulated = True

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.fault: Exception | None = None
        self.asked = self.closed = 0

    def sample(self) -> DriverReading:
        self.asked += 1
        self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return DriverReading("available", None, (DEVICE,))

    def close(self) -> None:
        self.closed += 1
        self.gate.set()


@contextmanager
def probing() -> Iterator[tuple[FakeDriver, HandClock, DeviceProbe]]:
    driver, clock = FakeDriver(), HandClock()
    probe = DeviceProbe(driver, clock)
    try:
        yield driver, clock, probe
    finally:
        driver.gate.set()
        assert probe.close(5)


def test_nothing_is_known_before_the_first_answer() -> None:
    with probing() as (driver, _clock, probe):
        assert probe.reading().state == "unknown"
        probe.refresh(5)
        assert probe.reading().state == "available"
        assert driver.asked == 1


def test_a_hanging_driver_is_unknown_with_the_reason_and_asked_no_more() -> None:
    with probing() as (driver, clock, probe):
        probe.refresh(5)
        driver.gate.clear()
        probe.refresh(0.05)
        assert probe.reading().state == "available"  # not late yet
        clock.now = LATE_MS + 2_000
        for _ in range(3):
            probe.refresh(60)  # does not wait: the open question is not asked again
        reading = probe.reading()
        assert reading.state == "unknown"
        assert reading.reason == "the driver has not answered for 5 s"
        (device,) = reading.devices
        assert (device.state, device.memory_used_mib) == ("unknown", None)
        assert device.memory_total_mib == 10
        assert driver.asked == 2
        driver.gate.set()
        wait_until(lambda: probe.reading().state == "available", "the late answer")


def test_an_undeclared_failure_is_a_reading() -> None:
    with probing() as (driver, _clock, probe):
        probe.refresh(5)
        driver.fault = AttributeError("nvmlFoo")
        probe.refresh(5)
        assert probe.reading().state == "unknown"
        assert "AttributeError" in (probe.reading().reason or "")
        assert [device.state for device in probe.reading().devices] == ["unknown"]
        driver.fault = None
        probe.refresh(5)
        assert probe.reading().state == "available"


def test_closing_abandons_a_real_driver_that_hangs() -> None:
    driver, clock = FakeDriver(), HandClock()
    driver.simulated = False
    driver.gate.clear()
    probe = DeviceProbe(driver, clock)
    try:
        probe.refresh(0)
        wait_until(lambda: driver.asked, "the question")
        assert not probe.close(0.05)
        assert driver.closed == 0
    finally:
        driver.gate.set()
    wait_until(lambda: driver.closed, "the driver's end")
