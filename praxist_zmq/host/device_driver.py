"""The port to an accelerator driver: what any driver answers, and which driver a host has.

Three drivers stand behind it: NVML, none at all, and the simulated one. A value that a driver
cannot give is None, and None never means zero: the broker places such work exclusively.
A driver may hang in `sample`; its caller keeps it in a thread of its own.
Source: the contract's accelerator probe states; the nullable-field port of public device plugins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from ..protocol.reports import DeviceSample

DriverState = Literal["available", "unavailable", "unsupported", "unknown"]

MIB = 1024 * 1024
REASON_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class DriverReading:
    """One answer of a driver.

    `state` is of the driver as a whole: `available` (it answers), `unavailable` (no driver, or no
    device), `unsupported` (devices we cannot place on), `unknown` (it fails or hangs for now).
    `reason` says why it is not available, or what to know although it is. `devices` holds every
    device that was ever seen, lost ones too.
    """

    state: DriverState
    reason: str | None
    devices: tuple[DeviceSample, ...] = ()
    exhausted: bool = False
    """Whether the driver has failed so long that only a fresh process may still help."""


class DeviceDriver(Protocol):
    """A source of device samples, used by one thread only."""

    @property
    def name(self) -> str:
        """The driver's name, for people."""
        ...

    @property
    def simulated(self) -> bool:
        """Whether its devices exist only in our imagination."""
        ...

    def sample(self) -> DriverReading:
        """Look at all devices once. May block for as long as the driver does. Never raises for a
        fault of the driver: that is a reading too."""
        ...

    def close(self) -> None:
        """Let go of the driver. Safe from another thread while `sample` blocks."""
        ...


def bounded_reason(text: str) -> str:
    """`text` in one line, no longer than a sample may carry."""
    return " ".join(text.split())[:REASON_CHARACTERS_MAX]


def silent_device(
    known: DeviceSample, state: Literal["lost", "unknown"], reason: str
) -> DeviceSample:
    """A device seen before that tells nothing now: what cannot change stays, the rest is None."""
    return known.model_copy(
        update={
            "state": state,
            "memory_used_mib": None,
            "utilization_pct": None,
            "utilization_read_us": None,
            "processes": None,
            "reason": bounded_reason(reason),
        }
    )
