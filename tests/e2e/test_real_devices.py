"""A whole scheduler on the scripted library: real binding, no simulation."""

from __future__ import annotations

from typing import Any

from tests.support import nvml_stub as nvml
from tests.support.nvml_stub import GIB, MIB, Stub, StubDevice, nvml_library
from tests.support.nvml_stub import nvml_stub as stub
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until

__all__ = ["nvml_library", "stub"]


def devices(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.cli("gpus", "--json").ok().document["devices"]
    return found


def test_an_idle_card_takes_exclusive_work_beside_what_its_driver_keeps(
    make_run: MakeRun, stub: Stub
) -> None:
    a10 = StubDevice("GPU-aaaa", name="NVIDIA A10", memory_total=23_028 * MIB, reserved=517 * MIB)
    stub.write(a10)
    run = make_run()
    run.environment.update(stub.environment)
    run.up()
    alone = ("launch", "--peer", "p1", "--profile", "gpu", "--tag")
    assert run.cli(*alone, "told", "--", "true").status == 0
    a10.memory_used, a10.reserved = 517 * MIB, None  # as an older library has it
    stub.write()
    wait_until(lambda: devices(run)[0]["memory_used_mib"] == 517, "the older form")
    assert run.cli(*alone, "untold", "--", "true").status == 0
    run.down()


def test_devices_of_the_driver_are_seen_used_and_lost(make_run: MakeRun, stub: Stub) -> None:
    stub.write(
        StubDevice("GPU-aaaa", utilization=31, memory_used=18 * GIB, memory_total=48 * GIB),
        StubDevice("GPU-bbbb"),
    )
    run = make_run()
    run.environment.update(stub.environment)
    run.up()
    wait_until(lambda: len(devices(run)) == 2, "both devices")
    wait_until(lambda: devices(run)[0]["utilization_pct"] == 31, "a reading of the first")
    document = run.cli("gpus", "--json").document
    first, second = document["devices"]
    assert (first["uuid"], first["name"], first["state"]) == (
        "GPU-aaaa",
        "NVIDIA H200",
        "available",
    )
    assert (first["memory_total_mib"], first["memory_used_mib"]) == (49152, 18432)
    assert (second["index"], second["uuid"], second["utilization_pct"]) == (1, "GPU-bbbb", 0)
    assert "SIMULATED" not in run.cli("gpus").out
    assert run.cli("status", "--json").document["accelerator_probe"]["state"] == "available"

    stub.devices[0].errors["all"] = nvml.GPU_IS_LOST
    stub.write()
    wait_until(lambda: devices(run)[0]["state"] == "lost", "the lost device")
    assert devices(run)[1]["state"] == "available"
    launched = run.cli(
        "launch", "--peer", "p1", "--tag", "t1", "--profile", "gpu", "--",
        "/bin/sh", "-c", 'test "$CUDA_VISIBLE_DEVICES" = GPU-bbbb',
    )  # fmt: skip
    assert launched.status == 0, launched
    run.down()
    assert stub.calls("init") == stub.calls("shutdown") == 1
