"""`binding check` on the real devices of this host, one after the other and all at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run import ROOT, Command

INVENTORY = Path("/proc/driver/nvidia/gpus")
UUIDS = [
    found[1]
    for page in sorted(INVENTORY.glob("*/information"))
    if (found := re.search(r"GPU UUID:\s*(GPU-[0-9a-f-]{36})", page.read_text("utf-8")))
]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not UUIDS, reason=f"no NVIDIA device here ({INVENTORY} lists none)"),
]


@pytest.mark.parametrize("uuids", [*([uuid] for uuid in UUIDS), UUIDS], ids=len)
def test_children_land_on_the_devices_they_are_given(uuids: list[str]) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PRAXIST_", "CUDA_"))}
    named = [word for uuid in uuids for word in ("--uuid", uuid)]
    done = subprocess.run(
        [sys.executable, "-m", "praxist_zmq", "binding", "check", "--json", *named],
        env={**environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    document = Command(done.returncode, done.stdout, done.stderr).document
    assert [device["cuda_uuid"] for device in document["devices"]] == uuids, document
    # In a container the driver may show the pids of the host's namespace: then none is ours.
    assert document["verdict"] in ("verified", "unobserved"), document
