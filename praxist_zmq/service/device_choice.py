"""Which devices a start of a run uses: those asked for, else those of its last start.

A run that began on simulated devices must not find itself on real ones because a flag was
forgotten, nor the other way round. So the choice is kept in `devices.json`, and a file that cannot
be understood refuses the start instead of guessing. Never looks at a device.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from ..errors import PraxistError
from ..ledger.files import read_limited, write_atomically
from ..protocol.codec import explain
from .child_config import SimulatedDevices

REAL: Literal["none"] = "none"
"""The request for real devices, whatever the last start had."""
FORMAT_VERSION = "1.0"
_BYTES_MAX = 4096

DeviceRequest = SimulatedDevices | Literal["none"] | None
"""What `up` was asked for; None is nothing: as at the last start."""


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The devices of one start."""

    sim: SimulatedDevices | None
    """None for real devices."""
    remembered: bool
    """Whether it is simulated because the last start was."""


def choose(path: Path, asked: DeviceRequest) -> DeviceChoice:
    """The devices to use; `path` is the run's `devices.json`.

    Raises `path_unusable` or `unsafe_path` when nothing was asked for and the file is there but
    cannot be understood.
    """
    if asked == REAL:
        return DeviceChoice(None, remembered=False)
    if asked is not None:
        return DeviceChoice(asked, remembered=False)
    try:
        content = read_limited(path, _BYTES_MAX)
    except FileNotFoundError:
        return DeviceChoice(None, remembered=False)
    except PraxistError as error:
        if error.code != "too_large":
            raise
        raise _not_understood(path, error.detail) from None
    sim = _understand(path, content)
    return DeviceChoice(sim, remembered=sim is not None)


def _understand(path: Path, content: bytes) -> SimulatedDevices | None:
    try:
        document: Any = json.loads(content)
        found = document["simulated"]
        if document["format_version"] != FORMAT_VERSION:
            raise _not_understood(path, "another format version")
        return None if found is None else SimulatedDevices.model_validate_json(json.dumps(found))
    except ValidationError as error:
        raise _not_understood(path, explain(error)) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _not_understood(path, "not what `up` writes") from None


def _not_understood(path: Path, why: str) -> PraxistError:
    return PraxistError(
        "path_unusable",
        f"{path} does not tell which devices this run uses: {why}",
        ["say which: --sim gpus=N,memory=GIB for simulated devices, --sim none for real ones"],
    )


def remember(path: Path, choice: DeviceChoice) -> None:
    """Keep the choice for the next start, durably. Raises `no_space`, `path_unusable`."""
    simulated = None if choice.sim is None else choice.sim.model_dump()
    document = {"format_version": FORMAT_VERSION, "simulated": simulated}
    write_atomically(path, json.dumps(document).encode() + b"\n")
