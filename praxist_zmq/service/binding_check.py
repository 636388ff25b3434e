"""`binding check`: does a child that is given one device's UUID land on that device?

One child for each device opens a CUDA context under exactly that UUID, and NVML says on which
device its pid is. Everything is bounded by one deadline; NVML is asked in a thread, because it may
hang. No child outlives the check. It decides nothing about jobs and talks to no scheduler.
Source: the contract's managed descendant binding (bounded parent/child check).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from .. import binding
from ..errors import PraxistError
from ..host.clock import Clock, pause_ms
from ..host.cuda_context import CudaAnswer, CudaContext, end_all, wait_answers
from ..host.device_driver import DeviceDriver
from ..host.nvml import open_nvml

DEVICES_MAX = 64
OBSERVE_MS = 2_000
"""How long the driver may take to show a process that holds a context."""
OBSERVE_EVERY_MS = 50

Verdict = Literal["conflict", "failed", "timeout", "unobserved", "verified"]
"""The worst first; the worst of all devices decides."""
EXIT_CODES: dict[str, int] = dict(zip(get_args(Verdict), (1, 1, 124, 79, 0), strict=True))
"""The command's exit status for each."""


@dataclass(frozen=True, slots=True)
class CheckedDevice:
    """What was found for one device.

    `index` is NVML's number, for people; `cuda_uuid` the device that the child's driver named;
    `seen_on` the devices on which NVML shows the child's `pid`.
    """

    uuid: str
    verdict: Verdict
    detail: str = ""
    index: int | None = None
    pid: int | None = None
    cuda_uuid: str | None = None
    seen_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The whole check; no device at all is `verified`: there was nothing to check."""

    source: str
    devices: tuple[CheckedDevice, ...]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst of the devices'."""
        found = {device.verdict for device in self.devices}
        return next((word for word in EXIT_CODES if word in found), "verified")

    @property
    def exit_code(self) -> int:
        """The command's exit status."""
        return EXIT_CODES[self.verdict]


@dataclass(frozen=True, slots=True)
class DeviceOwners:
    """One device and the pids on it; `pids` is None when the driver does not tell, see `reason`."""

    index: int
    uuid: str
    pids: frozenset[int] | None
    reason: str = ""


Sight = dict[str, DeviceOwners]


def _owners(driver: DeviceDriver) -> Sight:
    """Every device that the driver has now. Raises `no_driver`, also when it fails as a whole."""
    reading = driver.sample()
    if reading.state in ("unavailable", "unknown"):
        raise PraxistError("no_driver", reading.reason or f"the driver is {reading.state}")
    return {
        device.uuid: DeviceOwners(
            device.index,
            device.uuid,
            None if device.processes is None else frozenset(p.pid for p in device.processes),
            (device.reason or "") if device.processes is None else "",
        )
        for device in reading.devices
        if device.state != "lost"
    }


class _Watch:
    """NVML behind a deadline: a look that hangs is left to its thread."""

    def __init__(self) -> None:
        self._driver = open_nvml()
        self._result: Sight | PraxistError | None = None

    def look(self, timeout_ms: int) -> Sight | None:
        """All devices; None when NVML does not answer in time. Raises `no_driver`."""
        self._result = None
        thread = threading.Thread(target=self._work, name="driver", daemon=True)
        thread.start()
        thread.join(max(timeout_ms, 0) / 1000)
        if isinstance(self._result, PraxistError):
            raise self._result
        return self._result

    def _work(self) -> None:
        try:
            self._result = _owners(self._driver)
        except PraxistError as error:
            self._result = error


def check(
    named: Sequence[str], environ: Mapping[str, str], timeout_ms: int, clock: Clock
) -> CheckReport:
    """Check the assigned devices of `environ`, or of these only the `named` ones.

    Without an assignment the named ones are checked as they are. Raises PraxistError: `usage`
    when there is nothing to check, `not_yours` for a device that is not assigned,
    `binding_conflict` when the environment contradicts itself, `no_driver` without NVIDIA's
    libraries.
    """
    source, environments = _targets(named, environ)
    if not environments:
        return CheckReport(source, (), ("no device is assigned: nothing to check",))
    deadline = clock.mono_ms() + timeout_ms
    watch = _Watch()
    before = watch.look(timeout_ms)
    if before is None:
        late = "NVML does not answer"
        return CheckReport(source, tuple(CheckedDevice(u, "timeout", late) for u in environments))
    children: dict[str, CudaContext] = {}
    try:
        for uuid, environment in environments.items():
            if uuid in before or not uuid.startswith("GPU-"):
                children[uuid] = CudaContext(environment)
        wait_answers(list(children.values()), deadline - clock.mono_ms())
        sight = _observe(watch, list(children.values()), before, deadline, clock)
        devices = tuple(_judge(uuid, children.get(uuid), before, sight) for uuid in environments)
    finally:
        end_all(list(children.values()))
    return CheckReport(source, devices, _notes(devices, before))


def _targets(
    named: Sequence[str], environ: Mapping[str, str]
) -> tuple[str, dict[str, dict[str, str]]]:
    """Where the devices come from, and the child's environment of each."""
    try:
        given = binding.assignment(environ)
        uuids = tuple(dict.fromkeys(named)) or given.uuids
        if len(uuids) > DEVICES_MAX:
            raise PraxistError("usage", f"{len(uuids)} devices; the most is {DEVICES_MAX}")
        if given.standalone:
            if not uuids:
                advice = "name devices with --uuid (`nvidia-smi -L` lists them)"
                raise PraxistError("usage", f"nothing is assigned here: {advice}")
            return "named", {uuid: _alone(uuid, environ) for uuid in uuids}
        foreign = [uuid for uuid in uuids if uuid not in given.uuids]
        if foreign:
            raise PraxistError("not_yours", f"{foreign[0][:96]} is not assigned to this attempt")
        source = given.source or binding.ASSIGNED
        return source, {uuid: binding.child_environment([uuid], environ) for uuid in uuids}
    except binding.BindingError as error:
        raise PraxistError("binding_conflict", str(error)) from error


def _alone(uuid: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child without a scheduler: its masks are this device."""
    if not uuid or "," in uuid:
        raise PraxistError("usage", f"--uuid {uuid[:96]!r}: give one device's full UUID")
    try:
        bare = {name: value for name, value in environ.items() if name not in binding.MASKS}
        return binding.child_environment(environ={**bare, binding.ASSIGNED: uuid})
    except binding.BindingInvalid as error:
        raise PraxistError("usage", f"--uuid {uuid[:96]!r}: give one device's full UUID") from error


def _observe(
    watch: _Watch, children: list[CudaContext], before: Sight, deadline: int, clock: Clock
) -> Sight | None:
    """Look until NVML shows every child that holds a context, or has had the time to.

    What it showed before the children were there is left out: a pid of another namespace may look
    like one of ours. None when NVML stopped to answer.
    """
    holding = {child.pid for child in children if child.answer and child.answer.state == "held"}
    until = min(deadline, clock.mono_ms() + OBSERVE_MS)
    while True:
        now = watch.look(max(deadline - clock.mono_ms(), OBSERVE_EVERY_MS))
        if now is None:
            return None
        seen = {uuid: _new(device, before.get(uuid)) for uuid, device in now.items()}
        shown = {pid for device in seen.values() for pid in device.pids or ()}
        if holding <= shown or clock.mono_ms() >= until:
            return seen
        pause_ms(OBSERVE_EVERY_MS)


def _new(device: DeviceOwners, before: DeviceOwners | None) -> DeviceOwners:
    if device.pids is None or before is None or before.pids is None:
        return device
    return DeviceOwners(device.index, device.uuid, device.pids - before.pids, device.reason)


def _judge(
    uuid: str, child: CudaContext | None, before: Sight, sight: Sight | None
) -> CheckedDevice:
    """The verdict for one device."""
    index = before[uuid].index if uuid in before else None
    if child is None:
        return CheckedDevice(uuid, "failed", "NVML lists no such device")
    answer = child.answer
    if answer is None:
        detail = "the driver did not give the child a context in time"
        return CheckedDevice(uuid, "timeout", detail, index, child.pid)
    if answer.state == "absent":
        raise PraxistError("no_driver", answer.detail)
    if answer.state != "held":
        return CheckedDevice(uuid, "failed", answer.detail, index, child.pid)
    seen_on = tuple(u for u, device in (sight or {}).items() if child.pid in (device.pids or ()))
    verdict, detail = _compare(uuid, answer, seen_on, sight)
    if verdict == "unobserved" and not child.is_alive:
        verdict, detail = "failed", "the child was ended while it held its context"
    return CheckedDevice(uuid, verdict, detail, index, child.pid, answer.uuid, seen_on)


def _compare(
    uuid: str, answer: CudaAnswer, seen_on: tuple[str, ...], sight: Sight | None
) -> tuple[Verdict, str]:
    """Assigned against what CUDA gave the child and where NVML shows it."""
    if answer.devices != 1:
        return "conflict", f"the child sees {answer.devices} devices under a mask of one"
    if not uuid.startswith("GPU-"):
        return "unobserved", "an opaque name: CUDA takes it; it is not compared with NVML"
    if answer.uuid != uuid:
        return "conflict", f"CUDA gave the child {answer.uuid}"
    foreign = [other for other in seen_on if other != uuid]
    if foreign:
        return "conflict", f"NVML shows the child on {', '.join(foreign)}"
    if seen_on:
        return "verified", ""
    if sight is None:
        return "timeout", "NVML stopped to answer"
    told = sight[uuid].reason if uuid in sight else "NVML no longer lists the device"
    return "unobserved", told or "NVML shows no such pid: perhaps another pid namespace"


def _notes(devices: tuple[CheckedDevice, ...], before: Sight) -> tuple[str, ...]:
    verified = {device.index for device in devices if device.verdict == "verified"}
    if len(before) > 1 and verified == {0}:
        return ("no device but GPU 0 was verified, where a lost mask leads too",)
    return ()
