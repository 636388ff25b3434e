"""The driver of a host without NVIDIA's library: an honest, empty inventory.

It never guesses devices from other evidence; it only tells an AMD host (unsupported) from a host
without accelerators (unavailable).
"""

from __future__ import annotations

import os

from .device_driver import DriverReading, bounded_reason

AMD_DEVICE_NODE = "/dev/kfd"


def absent_reading(reason: str, amd_device_node: str = AMD_DEVICE_NODE) -> DriverReading:
    """What a host without NVML answers."""
    if os.path.exists(amd_device_node):
        text = f"{reason}; AMD devices are not supported"
        return DriverReading("unsupported", bounded_reason(text))
    return DriverReading("unavailable", bounded_reason(reason))


class AbsentDriver:
    """Answers the same empty inventory for ever."""

    name = "none"
    simulated = False

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def sample(self) -> DriverReading:
        """No devices, and why."""
        return absent_reading(self._reason)

    def close(self) -> None:
        """Nothing is held."""
