"""What a run of units starts with: checked names, places, a directory; and when it gives up.

Places are taken device by device before any takes a second unit, so that every assigned device
works. Pure but for the directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .unit import UnitsError

UNITS_MAX = 100_000
KEY_CHARACTERS_MAX = 200
PLACES_MAX = 4_096
DIRECTORIES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class UnitPlace:
    """Where one unit at a time runs; `order` is by slot, then by device."""

    order: int
    device: str | None
    slot: int


def places(uuids: tuple[str, ...], per_device: int, cpu_slots: int) -> list[UnitPlace]:
    """All places, in the order they are to be taken. Raises UnitsError."""
    for name, number in (("per_device", per_device), ("cpu_slots", cpu_slots)):
        if not 1 <= number <= PLACES_MAX:
            raise UnitsError(f"{number} places", name, f"give 1 to {PLACES_MAX}")
    devices: tuple[str | None, ...] = uuids or (None,)
    slots = per_device if uuids else cpu_slots
    pairs = [(device, slot) for slot in range(slots) for device in devices]
    return [UnitPlace(order, device, slot) for order, (device, slot) in enumerate(pairs)]


def checked_keys(units: Iterable[str]) -> tuple[str, ...]:
    """The names of the units. Raises UnitsError when one is empty, repeated, or no plain text."""
    if isinstance(units, str):
        raise UnitsError("one text", "units", "give a list of names")
    keys = tuple(units)
    if not 1 <= len(keys) <= UNITS_MAX:
        raise UnitsError(f"{len(keys)} units", "units", f"give 1 to {UNITS_MAX}")
    for key in keys:
        if not isinstance(key, str) or not key or not key.isprintable():
            raise UnitsError(f"{str(key)[:80]!r} is no name", "units", "give printable text")
        if len(key) > KEY_CHARACTERS_MAX:
            raise UnitsError(
                f"{key[:40]!r}... is too long", "units", f"give {KEY_CHARACTERS_MAX} characters"
            )
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise UnitsError(f"{twice!r} occurs twice", "units", "give each unit a name of its own")
    return keys


def own_directory(named: str | os.PathLike[str] | None) -> Path:
    """The directory for logs, results and the summary: the one named, or a fresh one.

    Raises UnitsError when it cannot be made.
    """
    if named is not None:
        path = Path(named).absolute()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UnitsError(error.strerror or str(error), str(path), "name another") from None
        return path
    attempt = os.environ.get("PRAXIST_EXPERIMENT_ATTEMPT_ID") or f"pid{os.getpid()}"
    stem = f"units-{''.join(c if c.isalnum() or c in '-.' else '_' for c in attempt)[:80]}"
    for number in range(1, DIRECTORIES_MAX):
        path = Path.cwd() / (stem if number == 1 else f"{stem}.{number}")
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            mend = "give a `directory` that can be written"
            raise UnitsError(error.strerror or str(error), str(path), mend) from None
        return path
    raise UnitsError("too many of its kind", str(Path.cwd() / stem), "give a `directory`")


class Streak:
    """Errors in a row with one signature, of different units."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._signature: str | None = None
        self._units: set[str] = set()

    def note(self, unit: str, signature: str | None) -> None:
        """A unit has ended: with an error's signature, or (None) in a way that proves nothing."""
        if signature != self._signature or signature is None:
            self._signature, self._units = signature, set()
        if signature is not None:
            self._units.add(unit)

    @property
    def proved(self) -> str | None:
        """The signature by which the rest is proved non-runnable; None: it may run."""
        enough = self._most is not None and len(self._units) >= self._most
        return self._signature if enough else None
