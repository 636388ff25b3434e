"""Foreign load and faults of simulated devices: the host scope's `simulation.json`.

The command line's `sim` verbs write it, the simulated driver reads it. Runs that share a host
scope share it. A change is made under a file lock and put in place by rename, so that a reader
sees the old or the new text and two writers lose nothing. It is checked whole when read: anyone
with access to the directory may have edited it.

Standard library only: the command line imports this module.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import PraxistError

FORMAT_VERSION = "1.0"
FILE_BYTES_MAX = 256 * 1024
DEVICES_MAX = 1024
MEMORY_GB_MAX = 1_000_000.0
FAULTS = (
    "lost",
    "memory_unsupported",
    "utilization_unsupported",
    "processes_unsupported",
    "mig",
    "hang",
    "init",
)
"""What `sim fail` can do: `lost` the device is gone; `*_unsupported` one field is not told; `mig`
the device is cut into instances; `hang` the driver's call does not return; `init` the whole driver
fails."""


@dataclass(frozen=True, slots=True)
class SimulatedLoad:
    """What strangers do to one simulated device, and how it fails."""

    utilization_pct: float = 0.0
    memory_gb: float = 0.0
    """GiB in use by strangers."""
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Simulation:
    """The whole file: load by device index. A device that is not named is idle and healthy."""

    devices: dict[int, SimulatedLoad] = field(default_factory=dict)

    def of(self, gpu: int) -> SimulatedLoad:
        """The load of one device."""
        return self.devices.get(gpu, SimulatedLoad())


def load(path: Path) -> Simulation:
    """The file's content; an idle simulation when there is no file.

    Raises PraxistError `path_unusable` when it is not a readable regular file or is malformed.
    """
    body = _read(path)
    if body is None:
        return Simulation()
    try:
        document = json.loads(body, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
        return _validated(document)
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"malformed: {str(error)[:200]}") from None


def set_load(
    path: Path, gpu: int, utilization_pct: float | None = None, memory_gb: float | None = None
) -> None:
    """Set the foreign load of one device; None leaves a value as it is.

    Raises PraxistError `usage` for a value out of range, `path_unusable` for the file.
    """
    _check_index(gpu)
    changes: dict[str, Any] = {}
    try:
        if utilization_pct is not None:
            changes["utilization_pct"] = _number("utilization", utilization_pct, 100.0)
        if memory_gb is not None:
            changes["memory_gb"] = _number("memory", memory_gb, MEMORY_GB_MAX)
    except ValueError as error:
        raise PraxistError("usage", str(error)) from None
    _change(path, gpu, changes)


def set_fault(path: Path, gpu: int, kind: str) -> None:
    """Make one device fail as `kind`, one of `FAULTS`.

    Raises PraxistError `usage` for an unknown kind, `path_unusable` for the file.
    """
    _check_index(gpu)
    if kind not in FAULTS:
        raise PraxistError("usage", f"no fault is called {kind[:40]!r}", [_kinds()])
    _change(path, gpu, {"fault": kind})


def clear(path: Path) -> None:
    """Take all load and all faults away, also from a malformed file."""
    with _locked(path):
        _write(path, Simulation())


# -- writing ------------------------------------------------------------------------------------


def _change(path: Path, gpu: int, changes: dict[str, Any]) -> None:
    with _locked(path):
        simulation = load(path)
        devices = {**simulation.devices, gpu: replace(simulation.of(gpu), **changes)}
        if len(devices) > DEVICES_MAX:
            raise PraxistError("usage", f"the limit is {DEVICES_MAX} simulated devices")
        _write(path, Simulation(devices))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone with the file. The lock file stays: removing it would let two in."""
    lock = path.with_name(path.name + ".lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(lock, flags, 0o600)
    except OSError as error:
        raise _unusable(lock, error.strerror or str(error)) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, simulation: Simulation) -> None:
    """Put a new file in place. It need not survive the machine, so it is not synced."""
    document = {
        "format_version": FORMAT_VERSION,
        "devices": {
            str(gpu): {
                "utilization_pct": load.utilization_pct,
                "memory_gb": load.memory_gb,
                "fault": load.fault,
            }
            for gpu, load in sorted(simulation.devices.items())
        },
    }
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(fresh, flags, 0o600), "w", encoding="utf-8") as stream:
            json.dump(document, stream)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise _unusable(path, error.strerror or str(error)) from None


# -- reading ------------------------------------------------------------------------------------


def _read(path: Path) -> bytes | None:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        text = "a symbolic link" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise _unusable(path, text) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _unusable(path, "not a regular file")
        with open(descriptor, "rb", closefd=False) as stream:
            body = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    finally:
        os.close(descriptor)
    if len(body) > FILE_BYTES_MAX:
        raise _unusable(path, f"over {FILE_BYTES_MAX} bytes")
    return body


def _validated(document: Any) -> Simulation:
    top = _object("the document", document, {"format_version", "devices"})
    if top.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"format_version is not {FORMAT_VERSION!r}")
    devices = _object("devices", top.get("devices", {}), None)
    if len(devices) > DEVICES_MAX:
        raise ValueError(f"over {DEVICES_MAX} devices")
    return Simulation({_index(name): _device(name, value) for name, value in devices.items()})


def _device(name: str, value: Any) -> SimulatedLoad:
    row = _object(f"device {name}", value, {"utilization_pct", "memory_gb", "fault"})
    fault = row.get("fault")
    if fault is not None and fault not in FAULTS:
        raise ValueError(f"device {name}: fault is unknown; {_kinds()}")
    return SimulatedLoad(
        utilization_pct=_number("utilization_pct", row.get("utilization_pct", 0), 100.0),
        memory_gb=_number("memory_gb", row.get("memory_gb", 0), MEMORY_GB_MAX),
        fault=fault,
    )


def _object(what: str, value: Any, keys: set[str] | None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    unknown = sorted(set(value) - keys) if keys is not None else []
    if unknown:
        raise ValueError(f"{what} has the unknown key {unknown[0][:40]!r}")
    return value


def _index(name: str) -> int:
    if not name.isascii() or not name.isdigit() or len(name) > 4 or name != str(int(name)):
        raise ValueError(f"{name[:40]!r} is not a device index")
    return int(name)


def _number(what: str, value: Any, highest: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} is not a number")
    if not (0 <= value <= highest) or not math.isfinite(value):
        raise ValueError(f"{what} is not within 0 and {highest:g}")
    return float(value)


def _check_index(gpu: int) -> None:
    if isinstance(gpu, bool) or not 0 <= gpu <= 9999:
        raise PraxistError("usage", f"{gpu} is not a device index")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key occurs twice")
    return document


def _no_constant(name: str) -> Callable[[], None]:
    raise ValueError(f"{name} is not a number")


def _kinds() -> str:
    return "one of " + ", ".join(FAULTS)


def _unusable(path: Path, why: str) -> PraxistError:
    return PraxistError(
        "path_unusable", f"{path}: {why}", ["`praxist-zmq sim clear` writes a fresh file"]
    )
