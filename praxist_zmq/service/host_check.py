"""Whether the profiles of a contract can ever run on this host, from one reading of its devices.

The devices are read as the sampler reads them, in a process of its own with a time limit, because
a driver may hang; then every profile is unknown. It admits nothing and changes nothing.
Source: seed 000 (live host observations); the preflight in the reference of the original system.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from ..core.placement import never_fits
from ..errors import PraxistError
from ..host.clock import SystemClock
from ..host.default_scope import host_scope
from ..host.device_driver import DeviceDriver
from ..host.nvml import open_nvml
from ..host.nvml_simulated import SimulatedDriver
from ..host.paths import HostPaths
from ..host.pressure import PressureReader
from ..host.spawn import READY_FD, ask_to_end, kill_now, spawn_child, wait_ended, wait_for, watch
from ..host.visible_devices import VisibleDevices
from ..protocol.codec import encode
from ..protocol.policy import Profile
from ..protocol.reports import HostSampled
from .child_config import SimulatedDevices
from .device_probe import DeviceProbe
from .sampler import Sampler

DRIVER_LIMIT_S = 5.0
"""How long the driver may take; its silence is then told as the reason."""
START_LIMIT_S = 20.0
"""How much longer the process may take, on a host that is busy."""
_REAP_S = 1.0
_SAMPLE_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProfileVerdict:
    """Whether one profile can ever run on a host."""

    profile: str
    can_run: bool | None
    """None when that is not known."""
    reason: str | None


def read_host(
    sim: SimulatedDevices | None,
    driver_s: float = DRIVER_LIMIT_S,
    start_s: float = START_LIMIT_S,
) -> HostSampled:
    """One reading of the host by a process of its own.

    A driver that is silent for `driver_s` seconds leaves the devices unknown. Raises
    `start_failed` when the process gives no reading in `driver_s` + `start_s` seconds.
    """
    asked = {"sim": None if sim is None else sim.model_dump(), "driver_s": driver_s}
    line = json.dumps(asked).encode() + b"\n"
    argv = [sys.executable, "-m", "praxist_zmq.service.host_check"]
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        pid, stdin_write, messages = spawn_child(argv, line, null)
    finally:
        os.close(null)
    try:
        answer = _read(messages, driver_s + start_s)
    finally:
        os.close(messages)
        os.close(stdin_write)
        _end(pid)
    if not answer.endswith(b"\n"):
        raise PraxistError("start_failed", "the host's devices gave no reading in time")
    return HostSampled.model_validate_json(answer)


def _read(descriptor: int, limit_s: float) -> bytes:
    """What the process says until its line ends, or its end, or the limit."""
    clock = SystemClock()
    until = clock.mono_ms() + round(limit_s * 1000)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    answer = bytearray()
    while not answer.endswith(b"\n") and len(answer) < _SAMPLE_BYTES_MAX:
        if not poll.poll(max(0, until - clock.mono_ms())):
            break
        piece = os.read(descriptor, 65_536)
        if not piece:
            break
        answer += piece
    return bytes(answer)


def _end(pid: int) -> None:
    """Let the process go. One that hangs in the driver is killed, and left when even that hangs."""
    pidfd = watch(pid)
    if pidfd is None:
        return
    try:
        if not wait_ended(pidfd, _REAP_S):
            ask_to_end(pid)
        if not wait_ended(pidfd, _REAP_S):
            kill_now(pid)
        if wait_ended(pidfd, _REAP_S):
            wait_for(pid)
        else:
            logging.getLogger(__name__).warning("process %d hangs in the driver", pid)
    finally:
        os.close(pidfd)


def judge(profiles: Mapping[str, Profile], sample: HostSampled) -> list[ProfileVerdict]:
    """A verdict for each profile, in their order."""
    return [_judge(name, profile, sample) for name, profile in profiles.items()]


def _judge(name: str, profile: Profile, sample: HostSampled) -> ProfileVerdict:
    reason = never_fits(profile, sample)
    if reason is not None:
        return ProfileVerdict(name, False, reason)
    if profile.accelerator == "gpu" and sample.probe_state == "unknown":
        return ProfileVerdict(name, None, sample.probe_reason or "the devices are not known")
    # A device whose memory is not known may fit; that it does, is only a hope.
    measured = tuple(each for each in sample.devices if each.memory_total_mib is not None)
    hidden = len(sample.devices) - len(measured)
    if hidden and profile.gpu_memory_gb is not None:
        reason = never_fits(profile, sample.model_copy(update={"devices": measured}))
    if reason is not None:
        which = "a device" if hidden == 1 else f"{hidden} devices"
        return ProfileVerdict(name, None, f"the memory of {which} is not known")
    return ProfileVerdict(name, True, None)


def _driver(sim: SimulatedDevices | None) -> DeviceDriver:
    if sim is None:
        return open_nvml()
    return SimulatedDriver(sim.gpus, sim.memory_gib, HostPaths(host_scope()).simulation)


def main() -> None:
    """Run as `python -m praxist_zmq.service.host_check`: one sample on the messages' descriptor."""
    asked = json.loads(sys.stdin.buffer.readline())
    sim = None if asked["sim"] is None else SimulatedDevices.model_validate(asked["sim"])
    clock = SystemClock()
    probe = DeviceProbe(_driver(sim), clock)
    pressure = PressureReader()
    visible = VisibleDevices.from_environment(os.environ)
    sample = Sampler(pressure, probe, visible, clock).sample(asked["driver_s"])
    with open(READY_FD, "wb") as messages:
        messages.write(encode(sample) + b"\n")
    pressure.close()
    probe.close()


if __name__ == "__main__":
    main()
