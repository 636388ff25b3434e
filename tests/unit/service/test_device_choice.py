"""Devices of a start: as asked, else as at the last start; a file that lies refuses the start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.service.child_config import SimulatedDevices
from praxist_zmq.service.device_choice import REAL, DeviceChoice, choose, remember

TWO = SimulatedDevices(gpus=2, memory_gib=16.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "devices.json"


def test_a_first_start_that_asks_for_nothing_has_real_devices(path: Path) -> None:
    assert choose(path, None) == DeviceChoice(None, remembered=False)


def test_simulated_devices_are_used_again_until_real_ones_are_asked_for(path: Path) -> None:
    remember(path, choose(path, TWO))
    assert choose(path, None) == DeviceChoice(TWO, remembered=True)
    other = SimulatedDevices(gpus=0, memory_gib=80)
    assert choose(path, other) == DeviceChoice(other, remembered=False)
    remember(path, choose(path, None))
    assert choose(path, None).sim == TWO
    remember(path, choose(path, REAL))
    assert choose(path, None) == DeviceChoice(None, remembered=False)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "null", "[]", "{}", "[" * 4000, "x" * 5000),
        '{"format_version": "1.0"}',
        '{"format_version": "2.0", "simulated": null}',
        '{"format_version": "1.0", "simulated": {"gpus": -1, "memory_gib": 1}}',
        '{"format_version": "1.0", "simulated": {"gpus": "2", "memory_gib": 1}}',
        '{"format_version": "1.0", "simulated": {"gpus": 2, "memory_gib": 1, "more": 1}}',
        '{"format_version": "1.0", "simulated": {"gpus": 2, "memory_gib": NaN}}',
    ],
)
def test_what_cannot_be_understood_is_not_guessed(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(PraxistError) as caught:
        choose(path, None)
    assert caught.value.code == "path_unusable"
    assert str(path) in caught.value.detail
    assert "--sim none" in caught.value.help[0]
    remember(path, choose(path, TWO))
    assert choose(path, None).sim == TWO


@pytest.mark.parametrize("what", ["link", "fifo", "directory"])
def test_another_thing_in_its_place_is_refused(path: Path, what: str) -> None:
    if what == "link":
        path.symlink_to("elsewhere")
    elif what == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    for attempt in (lambda: choose(path, None), lambda: remember(path, choose(path, TWO))):
        with pytest.raises(PraxistError) as caught:
            attempt()
        assert caught.value.code == "unsafe_path"
