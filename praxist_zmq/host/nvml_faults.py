"""Questions to one device through NVML, and whose fault it is when one fails.

An error is of the driver as a whole, of the device, or of one field. The first is raised as it
came, the second as `DeviceFailed`, the third is an answer: the field is unknown.
Source: NVIDIA's NVML API reference (return codes); public faults of exporters and device plugins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .device_driver import bounded_reason

DeviceState = Literal["available", "unavailable", "unsupported", "unknown", "lost"]


class DeviceFailed(Exception):
    """One device cannot be used; the others can."""

    def __init__(self, state: DeviceState, reason: str) -> None:
        super().__init__(reason)
        self.state: DeviceState = state
        self.reason = reason


@dataclass(frozen=True, slots=True)
class NotTold:
    """A question that one device does not answer; `code` is NVML's, -1 for unreadable text."""

    code: int
    text: str


class DeviceCalls:
    """Asks one device. `notes` collects in words what is unknown of it, and why."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self.notes: list[str] = []
        self._handle = handle

    def ask(self, function: str, *arguments: Any) -> Any:
        """The answer, or `NotTold`. Raises `DeviceFailed`, or the NVMLError of a driver that
        failed as a whole."""
        nvml = self.nvml
        try:
            return getattr(nvml, function)(self._handle, *arguments)
        except nvml.NVMLError as error:
            if is_of_driver(nvml, error):
                raise
            if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                raise DeviceFailed("lost", "the device fell off the bus") from None
            if error.value == nvml.NVML_ERROR_RESET_REQUIRED:
                raise DeviceFailed("unavailable", "the device needs a reset") from None
            if error.value == nvml.NVML_ERROR_UNKNOWN:
                raise DeviceFailed("unknown", "the driver reports an unknown error") from None
            return NotTold(int(error.value), say("", error))
        except UnicodeDecodeError:
            return NotTold(-1, "not readable as text")

    def unknown(self, what: str, why: str) -> None:
        """Note that something of the device is unknown."""
        self.notes.append(f"{what} unknown: {why}")


def is_of_driver(nvml: Any, error: Any) -> bool:
    """Whether an error is of the driver as a whole and not of one device."""
    return error.value in (
        nvml.NVML_ERROR_UNINITIALIZED,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    )


def say(what: str, error: Exception) -> str:
    """An error in words, after `what`."""
    return bounded_reason(f"{what}: {error}" if what else str(error))
