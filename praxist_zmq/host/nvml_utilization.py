"""How busy a device is, with the driver's own time stamp, so that one reading counts once.

The driver keeps readings with stamps; those since the last look are averaged, and a look that
finds no new one gives the same reading again with the same stamp. A device without such readings
is asked for its present rate, which has no stamp. Nonsense is unknown, never zero.
Source: NVIDIA's NVML API reference (nvmlDeviceGetSamples, nvmlUtilization_t).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .nvml_faults import DeviceCalls, NotTold

WINDOW_US = 2_000_000
"""Older readings say what the device did, not what it does."""
SAME_READING_MS = 5_000
"""A reading that nothing follows for so long is no longer believed."""


@dataclass(slots=True)
class _Last:
    mark_us: int = 0
    asked: bool = False
    busy_pct: float | None = None
    heard_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Utilization:
    """A busy share, and the driver's stamp in microseconds where it has one."""

    busy_pct: float | None
    read_us: int | None = None


class UtilizationReader:
    """Keeps, by device, the last stamp that it saw."""

    def __init__(self) -> None:
        self._last: dict[str, _Last] = {}

    def read(self, calls: DeviceCalls, uuid: str, now_ms: int) -> Utilization:
        """The device's busy share. Raises as `DeviceCalls.ask`."""
        last = self._last.setdefault(uuid, _Last())
        stamped = self._stamped(calls, last, now_ms)
        if stamped is not None:
            return stamped
        answer = calls.ask("nvmlDeviceGetUtilizationRates")
        if isinstance(answer, NotTold):
            calls.unknown("utilisation", answer.text)
            return Utilization(None)
        busy = float(answer.gpu)
        if not 0.0 <= busy <= 100.0:
            calls.unknown("utilisation", f"the driver says {busy:g} %")
            return Utilization(None)
        return Utilization(busy)

    def _stamped(self, calls: DeviceCalls, last: _Last, now_ms: int) -> Utilization | None:
        """The mean of the readings since the mark, or the last reading once more; else None."""
        nvml = calls.nvml
        stale = last.asked and now_ms - last.heard_at_ms >= SAME_READING_MS
        # From the beginning now and then: a clock that was set back hides what is after the mark.
        mark_us = 0 if stale else last.mark_us
        kind = nvml.NVML_GPU_UTILIZATION_SAMPLES
        readings = _readings(nvml, calls.ask("nvmlDeviceGetSamples", kind, mark_us))
        if readings is None:
            last.asked, last.busy_pct = False, None
            return None
        newest = max((stamp for stamp, _ in readings), default=last.mark_us)
        first, last.asked = not last.asked, True
        if first or newest < last.mark_us:
            # What the driver kept from before our first question is not of now.
            last.mark_us, last.heard_at_ms, last.busy_pct = newest, now_ms, None
            return None
        shares = [busy for stamp, busy in readings if stamp > max(last.mark_us, newest - WINDOW_US)]
        if shares:
            last.busy_pct = round(sum(shares) / len(shares), 1)
            last.mark_us, last.heard_at_ms = newest, now_ms
        elif stale:
            last.busy_pct = None
        if last.busy_pct is None:
            return None
        return Utilization(last.busy_pct, last.mark_us)


def _readings(nvml: Any, answer: Any) -> list[tuple[int, float]] | None:
    """(stamp, busy share) of an answer without nonsense; None when the device has no readings."""
    if isinstance(answer, NotTold):
        none_new = (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_NO_DATA)
        return [] if answer.code in none_new else None
    kind, samples = answer
    member = {
        nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    }.get(kind)
    if member is None:
        return None
    pairs = [(int(s.timeStamp), float(getattr(s.sampleValue, member))) for s in samples]
    sound = [(stamp, busy) for stamp, busy in pairs if 0.0 <= busy <= 100.0]
    return sound if sound or not pairs else None
