"""The processes that NVML sees on a device, with the memory and the busy share of each.

A list that is not complete is unknown as a whole: half of it would make the rest look idle. A
process without an entry among the busy ones reads 0 only when it was listed and that question was
answered; the driver names just the busy ones, and says "not found" when there are none. The first
answer after the start tells of a time before it and only sets the mark for the next.
It never uses a pid for anything but naming it.
Source: NVIDIA's NVML API reference (nvmlDeviceGetProcessUtilization, nvmlProcessInfo_t).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..protocol.reports import DeviceProcess
from .device_driver import MIB
from .nvml_faults import DeviceCalls, NotTold

PROCESSES_MAX = 1024
ASK_AGAIN_MS = 900
"""Two looks closer than this share an answer: the driver has no new one, and its silence would
read as idleness."""
QUIET_MS = 10_000
"""After so long without a busy process the mark is checked: the driver stamps by the wall clock,
and a clock that was set back would hide every reading behind the mark."""
_LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")


@dataclass(slots=True)
class _Busy:
    """What the driver last said about who is busy on one device."""

    mark_us: int = 0
    asked_at_ms: int | None = None
    heard_at_ms: int = 0
    listed: frozenset[int] = frozenset()
    shares: dict[int, float | None] | None = None
    """Busy share by pid; None is unknown for all."""
    why: str = ""


class ProcessReader:
    """Keeps, by device, what it must know of the last look."""

    def __init__(self) -> None:
        self._busy: dict[str, _Busy] = {}

    def read(
        self, calls: DeviceCalls, uuid: str, total_mib: int | None, now_ms: int
    ) -> tuple[DeviceProcess, ...] | None:
        """Every process on the device by pid, without lineage; None when the list is unknown.

        Raises as `DeviceCalls.ask`.
        """
        memory = _listed(calls, total_mib)
        if memory is None:
            return None
        shares = self._shares(calls, uuid, frozenset(memory), now_ms)
        return tuple(
            DeviceProcess(pid=pid, memory_mib=memory[pid], utilization_pct=shares.get(pid))
            for pid in sorted(memory)
        )

    def _shares(
        self, calls: DeviceCalls, uuid: str, listed: frozenset[int], now_ms: int
    ) -> dict[int, float | None]:
        busy = self._busy.setdefault(uuid, _Busy())
        if busy.asked_at_ms is None or now_ms - busy.asked_at_ms >= ASK_AGAIN_MS:
            _ask_busy(calls, busy, now_ms)
            busy.asked_at_ms, busy.listed = now_ms, listed
        if busy.shares is None:
            if busy.why and listed:
                calls.unknown("use by process", busy.why)
            return {}
        known = listed & busy.listed
        return {pid: busy.shares.get(pid, 0.0) for pid in known}


def _ask_busy(calls: DeviceCalls, busy: _Busy, now_ms: int) -> None:
    """Who was busy since the mark; moves the mark."""
    first = busy.asked_at_ms is None
    quiet = not first and now_ms - busy.heard_at_ms >= QUIET_MS
    answer = calls.ask("nvmlDeviceGetProcessUtilization", 0 if quiet else busy.mark_us)
    samples = _samples(calls.nvml, answer)
    if samples is None:
        busy.shares, busy.why = None, answer.text
        return
    if quiet or first:
        busy.heard_at_ms = now_ms
    newest = max((int(sample.timeStamp) for sample in samples), default=busy.mark_us)
    set_back = quiet and newest < busy.mark_us
    fresh = [sample for sample in samples if set_back or int(sample.timeStamp) > busy.mark_us]
    if not fresh:
        busy.shares = {}
        return
    busy.mark_us, busy.heard_at_ms = newest, now_ms
    # What was collected before the first question, or under another clock, is not of now.
    busy.shares, busy.why = (None, "") if first or set_back else (_newest_shares(fresh), "")


def _samples(nvml: Any, answer: Any) -> list[Any] | None:
    """The entries of an answer; none when nobody was busy; None when it is a refusal."""
    if not isinstance(answer, NotTold):
        return list(answer)
    nobody = (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_NO_DATA)
    return [] if answer.code in nobody else None


def _newest_shares(samples: list[Any]) -> dict[int, float | None]:
    shares: dict[int, float | None] = {}
    for sample in sorted(samples, key=lambda sample: int(sample.timeStamp)):
        share = float(sample.smUtil)
        shares[int(sample.pid)] = share if 0.0 <= share <= 100.0 else None
    return shares


def _listed(calls: DeviceCalls, total_mib: int | None) -> dict[int, int | None] | None:
    """Memory in MiB by pid, of compute and graphics together; None when that is unknown."""
    nvml = calls.nvml
    absent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    merged: dict[int, int | None] = {}
    for number, function in enumerate(_LISTS):
        answer = _ask_list(calls, function)
        if isinstance(answer, NotTold):
            if number and answer.code in absent:
                continue  # a device that draws nothing
            calls.unknown("processes", answer.text)
            return None
        for entry in answer:
            pid, memory = int(entry.pid), _memory(entry.usedGpuMemory, total_mib)
            # One that computes and draws is in both lists, with all of its memory in each.
            known = [value for value in (memory, merged.get(pid)) if value is not None]
            merged[pid] = max(known, default=None)
    if len(merged) > PROCESSES_MAX:
        calls.unknown("processes", f"{len(merged)} of them")
        return None
    return merged


def _ask_list(calls: DeviceCalls, function: str) -> Any:
    """The list in the newest form that the library has."""
    answer = calls.ask(f"{function}_v3")
    missing = calls.nvml.NVML_ERROR_FUNCTION_NOT_FOUND
    if isinstance(answer, NotTold) and answer.code == missing:
        return calls.ask(f"{function}_v2")
    return answer


def _memory(used: int | None, total_mib: int | None) -> int | None:
    """Bytes in MiB, rounded up; None when the driver does not tell, or tells nonsense."""
    if used is None:
        return None
    mib = -(-int(used) // MIB)
    return None if total_mib is not None and mib > total_mib else mib
