"""An environment as an attempt's: two devices, no inherited masks, a directory of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from praxist_zmq.binding import ASSIGNED, MASKS, NARROWED
from praxist_zmq.units.unit import MARK_VARIABLE, UNIT_VARIABLE


@pytest.fixture(autouse=True)
def two_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (NARROWED, *MASKS, UNIT_VARIABLE, MARK_VARIABLE, "PRAXIST_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(ASSIGNED, "GPU-b,GPU-a")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    monkeypatch.chdir(tmp_path)
    assert os.getcwd() == str(tmp_path)
