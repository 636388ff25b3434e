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
from ..host.device_driver import DeviceDriver, DriverReading, bounded_reason

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

    def ask(self) -> None:
        """Ask for a fresh answer; does nothing while one is under way."""
        with self._state:
            if self._asked_at is None:
                self._asked_at = self._clock.mono_ms()
                self._state.notify_all()

    def wait_answer(self, timeout_s: float) -> bool:
        """Wait until no question is open; whether that is so. Only for the start."""
        with self._state:
            return self._state.wait_for(lambda: self._asked_at is None, timeout_s)

    def reading(self) -> DriverReading:
        """The last answer; unknown devices when the open question is older than LATE_MS."""
        with self._state:
            if self._asked_at is None:
                return self._reading
            late_ms = self._clock.mono_ms() - self._asked_at
            if late_ms < LATE_MS:
                return self._reading
            last = self._reading
        reason = f"the driver has not answered for {late_ms // 1000} s"
        devices = tuple(
            device.model_copy(
                update={
                    "state": "lost" if device.state == "lost" else "unknown",
                    "memory_used_mib": None,
                    "utilization_pct": None,
                    "reason": reason,
                }
            )
            for device in last.devices
        )
        return DriverReading("unknown", reason, devices)

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
            return DriverReading("unknown", bounded_reason(text))
