"""What goes wrong at a time of its own: drawn once for a seed, then it comes when it comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .faults import CALAMITIES

if TYPE_CHECKING:
    from .world import SimWorld


def plan(world: SimWorld, until_ms: int) -> None:
    """Draw them."""
    rng = world.rng
    count = round(rng.choice((1, 4, 8)) * min(world.faults.level, 1.5))
    for _ in range(count):
        kind = rng.choice(CALAMITIES)
        at_ms = rng.randint(200, until_ms - 1_500)
        world.time.after(at_ms, lambda kind=kind: strike(world, kind))


def strike(world: SimWorld, kind: str) -> None:
    """One of them."""
    if not world.faults.on:
        return
    world.note("fate", kind)
    world.faults.met[kind] = world.faults.met.get(kind, 0) + 1
    verb, _, whom = kind.partition(" ")
    run = world.rng.choice(world.runs)
    if verb == "kill":
        _kill(world, whom, run)
    elif verb == "stall":
        process = world.registry if whom == "registry" else run.broker
        process.stalled_until_ms = world.time.now_ms + world.rng.choice((200, 3_000, 7_000))
    elif verb in ("cut", "part"):
        process = {
            "launcher": run.launcher, "gateway": run.gateway, "supply": run.supply,
        }.get(whom, run.broker)  # fmt: skip
        if verb == "part":
            process.parted_until_ms = world.time.now_ms + world.rng.choice((1_000, 5_000))
        for wire in list(process.wires):
            if whom != "registry" or world.registry in wire.ends:
                wire.cut()
    else:
        _OTHERS[kind](world)


def _kill(world: SimWorld, whom: str, run: object) -> None:
    if whom == "registry":
        world.registry.kill()
    elif whom == "pair":
        for process in world.rng.sample(world.everybody(), 2):
            process.kill()
    else:
        getattr(run, whom).kill()


def _wall_clock(world: SimWorld) -> None:
    world.time.wall_step_ms += world.rng.choice((-86_400_000, -4_000, 4_000, 86_400_000))


def _foreign_load(world: SimWorld) -> None:
    device = world.rng.choice(world.devices)
    device.foreign_mib = world.rng.choice((500, 40_000, 79_000))
    device.foreign_pct = world.rng.choice((0.0, 30.0, 90.0))

    def leave() -> None:
        device.foreign_mib, device.foreign_pct = 0, 0.0

    world.time.after(world.rng.choice((1_000, 6_000)), leave)


def _blind_sampler(world: SimWorld) -> None:
    device = world.rng.choice(world.devices)
    name = world.rng.choice(("tells_memory", "tells_utilization", "tells_processes"))
    setattr(device, name, False)
    world.time.after(world.rng.choice((1_500, 6_000)), lambda: setattr(device, name, True))


def _silent_sampler(world: SimWorld) -> None:
    sampler = world.rng.choice(world.runs).sampler
    sampler.silent_until_ms = world.time.now_ms + world.rng.choice((3_000, 8_000))


def _device_lost(world: SimWorld) -> None:
    device = world.rng.choice(world.devices)
    device.state = "lost"

    def back() -> None:
        device.state = "available"

    world.time.after(world.rng.choice((2_000, 6_000)), back)


def _pressure(world: SimWorld) -> None:
    world.pressure = 97.0

    def ease() -> None:
        world.pressure = 1.0

    world.time.after(world.rng.choice((2_000, 5_000)), ease)


def _power_cut(world: SimWorld) -> None:
    world.boot_id = f"boot-{int(world.boot_id[5:]) + 1}"
    for run in world.runs:
        for shim in run.shims.values():
            shim.vanish()
    for process in world.everybody():
        process.kill()


def _snapshot(world: SimWorld) -> None:
    for run in world.runs:
        run.broker.take_snapshot()
    world.registry.take_snapshot()


def _close_file(world: SimWorld) -> None:
    world.rng.choice(world.runs).somebody_writes(world.rng.randrange(2))


_OTHERS: dict[str, Callable[[SimWorld], None]] = {
    "wall clock": _wall_clock,
    "foreign load": _foreign_load,
    "blind sampler": _blind_sampler,
    "silent sampler": _silent_sampler,
    "device lost": _device_lost,
    "pressure": _pressure,
    "power cut": _power_cut,
    "snapshot": _snapshot,
    "close file": _close_file,
}


def heal(world: SimWorld) -> None:
    """Nothing goes wrong any more; what was wrong is mended."""
    world.faults.on = False
    world.healing = True
    world.pressure = 1.0
    for device in world.devices:
        device.state, device.foreign_mib, device.foreign_pct = "available", 0, 0.0
        device.tells_memory = device.tells_utilization = device.tells_processes = True
    for process in world.everybody():
        process.stalled_until_ms = process.parted_until_ms = 0
    for run in world.runs:
        run.sampler.silent_until_ms = 0
