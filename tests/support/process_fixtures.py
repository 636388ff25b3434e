"""Fixtures of single processes: `bench` is a launcher, `registry` serves the host scope `host`.

Apart from what they give, because the processes themselves import that.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.host.paths import HostPaths

from .launcher_harness import Bench
from .registry_process import RegistryProcess


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A launcher in a run of its own, ended with everything that it started."""
    made = Bench()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def host(host_directory: Path) -> HostPaths:
    """The paths of a fresh host scope."""
    return HostPaths(host_directory)


@pytest.fixture
def registry(host: HostPaths) -> Iterator[RegistryProcess]:
    """A registry that serves."""
    process = RegistryProcess(host)
    assert "ready" in process.start()
    yield process
    process.kill()
