"""What a driver keeps of a card for itself is nobody's use, and is not promised to anybody either.

Read through the real binding on the scripted library, judged by the rules of admission and of the
preflight.
"""

from __future__ import annotations

import pytest

from praxist_zmq.core.demand import Demand
from praxist_zmq.core.device_load import Holding, load_of
from praxist_zmq.core.placement import never_fits
from praxist_zmq.core.room import room
from praxist_zmq.protocol.policy import Profile
from praxist_zmq.protocol.reports import DeviceSample, HostSampled, ProcessStamp
from tests.nvml.driver_process import DriverProcess
from tests.support.nvml_stub import MIB, Stub, StubDevice, StubProcess

A10_MIB = 23_028
ALONE = Demand(1, None, None)
UNTOLD = [(A10_MIB, 517), (49_140, 1_000), (143_771, 617), (15_360, 453)]
"""(MiB of a card, MiB that its driver keeps)."""


def device(stub: Stub, driver: DriverProcess, found: StubDevice) -> DeviceSample:
    stub.write(found)
    driver.look()
    return driver.look().devices[0]


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(("total", "kept"), UNTOLD)
def test_an_idle_card_takes_exclusive_work(
    nvml_stub: Stub, driver: DriverProcess, total: int, kept: int, told: bool
) -> None:
    card = StubDevice("GPU-a", memory_total=total * MIB)
    if told:
        card.reserved = kept * MIB
    else:
        card.memory_used = kept * MIB  # the first form of the question has it there
    sample = device(nvml_stub, driver, card)
    load = load_of(sample, ())
    assert load.external_memory_mib == 0
    assert load.driver_memory_mib == kept
    assert room(load, ALONE).fits


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(("total", "kept"), UNTOLD)
def test_two_halves_of_what_may_be_promised_fit_beside_it(
    nvml_stub: Stub, driver: DriverProcess, total: int, kept: int, told: bool
) -> None:
    half = total * 95 // 200
    worker = StubProcess(4_000_000, half * MIB, busy=0)
    card = StubDevice("GPU-a", memory_total=total * MIB, processes=[worker])
    card.memory_used = half * MIB
    if told:
        card.reserved = kept * MIB
    else:
        card.memory_used += kept * MIB
    sample = device(nvml_stub, driver, card)
    (seen,) = sample.processes or ()
    line = (ProcessStamp(pid=seen.pid, start_ticks=1),)
    mapped = sample.model_copy(update={"processes": (seen.model_copy(update={"lineage": line}),)})
    first = Holding("run", "j-1.1", half, 50.0, False, ((seen.pid, 1),))
    load = load_of(mapped, (first,))
    assert room(load, Demand(1, half, 50.0)).fits
    assert not room(load, Demand(1, half + 2, 50.0)).fits


def test_what_a_driver_keeps_of_a_small_card_is_not_promised(
    nvml_stub: Stub, driver: DriverProcess
) -> None:
    card = StubDevice("GPU-a", memory_total=8_192 * MIB, reserved=1_024 * MIB)
    sample = device(nvml_stub, driver, card)
    load = load_of(sample, ())
    assert load.memory_limit_mib == 7_168
    host = HostSampled(
        sampled_at_mono_ms=1, cpu_pct=None, memory_pct=None, io_pct=None,
        probe_state="available", probe_reason=None, devices=(sample,), simulated=False,
    )  # fmt: skip
    assert never_fits(Profile(accelerator="gpu", gpu_count=1, gpu_memory_gb=7.0), host) is None
    words = never_fits(Profile(accelerator="gpu", gpu_count=1, gpu_memory_gb=7.1), host)
    assert words is not None


@pytest.mark.parametrize(
    "card",
    [
        StubDevice("GPU-a", memory_total=A10_MIB * MIB, memory_used=1_200 * MIB),
        StubDevice("GPU-a", memory_total=A10_MIB * MIB, memory_used=517 * MIB, utilization=30),
        StubDevice("GPU-a", memory_total=A10_MIB * MIB, memory_used=300 * MIB, reserved=MIB),
        StubDevice(
            "GPU-a",
            memory_total=A10_MIB * MIB,
            memory_used=517 * MIB,
            processes=[StubProcess(4_000_000, 100 * MIB)],
        ),
    ],
    ids=["more than a driver keeps", "busy", "told apart", "a process"],
)
def test_what_somebody_may_use_is_not_taken_for_the_drivers(
    nvml_stub: Stub, driver: DriverProcess, card: StubDevice
) -> None:
    assert not room(load_of(device(nvml_stub, driver, card), ()), ALONE).fits
