"""The scripted library and a driver that has loaded it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nvml.driver_process import DriverProcess
from tests.support.nvml_stub import Stub, nvml_library, nvml_stub

__all__ = ["nvml_library", "nvml_stub"]


@pytest.fixture
def driver(nvml_stub: Stub) -> Iterator[DriverProcess]:
    process = DriverProcess(nvml_stub.environment)
    yield process
    process.close()
