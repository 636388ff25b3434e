"""Which of the host's devices this scheduler may use, after its own `CUDA_VISIBLE_DEVICES`.

NVML shows every device whatever the mask, so the mask is applied here, once, and everything above
deals in full UUIDs only. The rules, on the careful side:

- unset: all devices; empty, or beginning with an invalid entry such as `-1`: none;
- UUIDs, or unique beginnings of them as CUDA takes them: those; as in CUDA, the first entry that
  names no device hides all that follow it;
- numbers: CUDA's order is not NVML's order unless `CUDA_DEVICE_ORDER=PCI_BUS_ID`, so numbers count
  only then, or when they name all devices there are. Otherwise no device is used and the reason
  says what to set: a wrong card is worse than none;
- `MIG-...`: no device, since work is not placed on MIG devices;
- simulated devices: the mask counts only when its first entry names one of them.

Source: CUDA C programming guide, environment variables; a public fault in which a scheduler under
the mask 4,5,6 handed out 0,1,2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..protocol.reports import DeviceSample
from .device_driver import DriverReading, bounded_reason

ENTRIES_MAX = 1024


@dataclass(frozen=True, slots=True)
class VisibleDevices:
    """The scheduler's own mask; `entries` is None when there is none."""

    entries: tuple[str, ...] | None
    pci_order: bool

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> VisibleDevices:
        """Read `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`."""
        value = environment.get("CUDA_VISIBLE_DEVICES")
        pci_order = environment.get("CUDA_DEVICE_ORDER", "").strip() == "PCI_BUS_ID"
        if value is None:
            return cls(None, pci_order)
        entries = tuple(part.strip() for part in value.split(",")[:ENTRIES_MAX])
        return cls(entries, pci_order)

    def restrict(self, reading: DriverReading, simulated: bool) -> DriverReading:
        """`reading` with only the devices the mask allows, and a reason when it hides any."""
        if self.entries is None or not reading.devices:
            return reading
        first = self.entries[0]
        if simulated and _named(first, reading.devices) is None:
            return reading
        if first.isdigit():
            return self._by_number(reading)
        chosen: list[DeviceSample] = []
        for entry in self.entries:
            device = _named(entry, reading.devices)
            if device is None or device in chosen:
                break
            chosen.append(device)
        if not chosen:
            what = "is empty" if not first else f"names no device of this host ({first[:60]})"
            return DriverReading("unavailable", bounded_reason(f"CUDA_VISIBLE_DEVICES {what}"))
        return _only(reading, chosen, "")

    def _by_number(self, reading: DriverReading) -> DriverReading:
        assert self.entries is not None
        by_index = {device.index: device for device in reading.devices if device.state != "lost"}
        numbers: list[int] = []
        for entry in self.entries:
            if not entry.isdigit() or len(entry) > 6 or int(entry) in numbers:
                break
            if int(entry) not in by_index:
                break
            numbers.append(int(entry))
        if numbers and (self.pci_order or len(numbers) == len(reading.devices)):
            note = "CUDA_VISIBLE_DEVICES holds numbers, taken in PCI order; UUIDs are safer"
            return _only(reading, [by_index[number] for number in numbers], note)
        return DriverReading(
            "unavailable",
            "CUDA_VISIBLE_DEVICES holds device numbers, whose order is not certain: name UUIDs, "
            "or set CUDA_DEVICE_ORDER=PCI_BUS_ID",
        )


def _named(entry: str, devices: tuple[DeviceSample, ...]) -> DeviceSample | None:
    """The one device whose UUID is `entry` or begins with it."""
    if not entry.startswith("GPU-"):
        return None
    found = [device for device in devices if device.uuid.startswith(entry)]
    exact = [device for device in found if device.uuid == entry]
    candidates = exact or found
    return candidates[0] if len(candidates) == 1 else None


def _only(reading: DriverReading, chosen: list[DeviceSample], note: str) -> DriverReading:
    hidden = len(reading.devices) - len(chosen)
    notes = [part for part in (reading.reason, note) if part]
    if hidden:
        notes.append(f"CUDA_VISIBLE_DEVICES hides {hidden} of {len(reading.devices)} devices")
    devices = tuple(sorted(chosen, key=lambda device: (device.index, device.uuid)))
    return DriverReading(reading.state, bounded_reason("; ".join(notes)) or None, devices)
