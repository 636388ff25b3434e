"""A driver in a thread of its own, so that a call that hangs stops nothing else.

The thread asks the driver once a request. While an answer is late the devices are told as unknown
with the reason; a thread that hangs is left alone, because killing a client inside the driver has
frozen cards. It decides nothing about placement.
Source: public faults of GPU exporters (hanging driver calls, killed clients).
"""

from __future__ import annotations

import logging
import threading

from ..host.clock import Clock
from ..host.device_driver import DeviceDriver, DriverReading, bounded_reason, silent_device

LATE_MS = 3_000


class DeviceProbe:
    """Owns `driver` and the one thread that talks to it."""

    def __init__(self, driver: DeviceDriver, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock
        self._state = threading.Condition()
        self._asked_at: int | None = None
        self._reading = DriverReading("unknown", "the driver has not answered yet")
        self._closing = False
        # A daemon, so that the process can end while the driver hangs.
        self._thread = threading.Thread(target=self._work, name="driver", daemon=True)
        self._thread.start()

    @property
    def simulated(self) -> bool:
        """Whether the devices are simulated."""
        return self._driver.simulated

    def refresh(self, patience_s: float) -> None:
        """Ask for a fresh answer and give it a moment. Does nothing while an older question is
        open: a driver that hangs is waited for once."""
        with self._state:
            if self._asked_at is not None:
                return
            self._asked_at = self._clock.mono_ms()
            self._state.notify_all()
            self._state.wait_for(lambda: self._asked_at is None, patience_s)

    def reading(self) -> DriverReading:
        """The last answer; unknown devices when the open question is older than LATE_MS."""
        with self._state:
            if self._asked_at is None:
                return self._reading
            late_ms = self._clock.mono_ms() - self._asked_at
            if late_ms < LATE_MS:
                return self._reading
            last = self._reading
        return _all_silent(last, f"the driver has not answered for {late_ms // 1000} s")

    def close(self, timeout_s: float = 0.5) -> bool:
        """Let go of the driver; False when the thread hangs and is abandoned."""
        with self._state:
            self._closing = True
            hangs = self._asked_at is not None
            self._state.notify_all()
        if hangs and self._driver.simulated:
            self._driver.close()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # -- the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._closing or self._asked_at is not None)
                if self._closing:
                    break
            reading = self._ask_driver()
            with self._state:
                self._reading = reading
                self._asked_at = None
                self._state.notify_all()
        self._driver.close()

    def _ask_driver(self) -> DriverReading:
        try:
            return self._driver.sample()
        except Exception as error:
            # A binding may fail in ways it does not declare; host pressure must go on.
            logging.getLogger(__name__).exception("the %s driver failed", self._driver.name)
            text = f"the {self._driver.name} driver failed: {type(error).__name__}: {error}"
            return _all_silent(self._reading, bounded_reason(text))


def _all_silent(last: DriverReading, reason: str) -> DriverReading:
    """The devices of the last answer, unknown now for `reason`."""
    devices = tuple(
        silent_device(device, "lost" if device.state == "lost" else "unknown", reason)
        for device in last.devices
    )
    return DriverReading("unknown", reason, devices)
