"""The scheduler's own CUDA_VISIBLE_DEVICES limits what it may hand out."""

from __future__ import annotations

import pytest

from praxist_zmq.host.device_driver import DriverReading
from praxist_zmq.host.visible_devices import VisibleDevices
from praxist_zmq.protocol.reports import DeviceSample

UUIDS = [f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "abcd"]
READING = DriverReading(
    "available",
    None,
    tuple(DeviceSample(index=i, uuid=u, state="available") for i, u in enumerate(UUIDS)),
)


def visible(simulated: bool = False, **environment: str) -> tuple[str, list[int], str | None]:
    mask = VisibleDevices.from_environment(environment)
    reading = mask.restrict(READING, simulated)
    return reading.state, [device.index for device in reading.devices], reading.reason


def test_without_a_mask_all_are_used() -> None:
    assert visible() == ("available", [0, 1, 2, 3], None)


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        (UUIDS[2], [2]),
        (f"{UUIDS[3]}, {UUIDS[1]}", [1, 3]),
        ("GPU-bbbb", [1]),
        (f"{UUIDS[0]},GPU-none,{UUIDS[1]}", [0]),
        (f"{UUIDS[0]},{UUIDS[0]},{UUIDS[1]}", [0]),
    ],
)
def test_uuids(value: str, indices: list[int]) -> None:
    state, found, reason = visible(CUDA_VISIBLE_DEVICES=value)
    assert (state, found) == ("available", indices)
    assert reason is not None
    assert "hides" in reason


@pytest.mark.parametrize("value", ["", "-1", "GPU-", "MIG-GPU-aaaa/1/0", "none", "GPU-ffff", ",,"])
def test_a_mask_that_names_none_leaves_none(value: str) -> None:
    state, found, reason = visible(CUDA_VISIBLE_DEVICES=value)
    assert (state, found) == ("unavailable", [])
    assert reason is not None
    assert reason.startswith("CUDA_VISIBLE_DEVICES")


def test_numbers_count_only_when_their_order_is_certain() -> None:
    state, found, reason = visible(CUDA_VISIBLE_DEVICES="2,3")
    assert (state, found) == ("unavailable", [])
    assert reason is not None
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in reason
    state, found, reason = visible(CUDA_VISIBLE_DEVICES="2,3", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert (state, found) == ("available", [2, 3])
    assert reason is not None
    assert "UUIDs are safer" in reason
    assert visible(CUDA_VISIBLE_DEVICES="3,2,1,0")[:2] == ("available", [0, 1, 2, 3])
    assert visible(CUDA_VISIBLE_DEVICES="9", CUDA_DEVICE_ORDER="PCI_BUS_ID")[1] == []


def test_simulated_devices_are_masked_only_by_their_own_names() -> None:
    assert visible(True, CUDA_VISIBLE_DEVICES="0")[1] == [0, 1, 2, 3]
    assert visible(True, CUDA_VISIBLE_DEVICES="")[1] == [0, 1, 2, 3]
    assert visible(True, CUDA_VISIBLE_DEVICES=UUIDS[1])[1] == [1]
