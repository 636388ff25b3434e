"""A short private directory for sockets, and closing of what a test opened."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def sockets() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="pz"))
    yield directory
    shutil.rmtree(directory)
