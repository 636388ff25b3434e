"""The values of a contract as they are used, and where each comes from.

Source: what `policy_file` read; it decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..protocol.policy import SchedulerPolicy
from .policy_file import PolicyCheck
from .policy_findings import Place, short_key
from .policy_keys import ANY_PROFILE, contract_keys

_CHANGED = frozenset({"PZ120", "PZ121", "PZ124", "PZ125"})
"""Findings after which a value is not what was written."""
Source = Literal["file", "default", "contract"]


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """One value and its origin."""

    key: str
    """The path inside the contract."""
    value: Any
    source: Source
    """`contract` is a run's contract, whose file is not known any more."""
    line: int | None
    written: str | None
    """What was written, where the value became another."""
    note: str | None
    """How a default comes about that depends on other values."""


def effective_values(
    policy: SchedulerPolicy, check: PolicyCheck | None, *, of_run: bool = False
) -> list[EffectiveValue]:
    """Every value of a contract: of a file that was checked, of a run, or the documented ones.

    A run knows what is in force and not which of it a file named.
    """
    places = {} if check is None else check.places
    findings = [] if check is None else check.warnings
    changed = {short_key(each.key) for each in findings if each.code in _CHANGED}
    found: list[EffectiveValue] = []
    for path, key in contract_keys().items():
        if path == "profiles" or path.startswith(f"{ANY_PROFILE}."):
            continue
        value = getattr(policy, path)
        note = None if key.default_words == str(key.default) else key.default_words
        same = value == key.default
        found.append(_value(path, value, places, changed, None if same else note, same, of_run))
    for name, profile in policy.profiles.items():
        for field, info in type(profile).model_fields.items():
            value = getattr(profile, field)
            same = value == info.default
            note = contract_keys()[f"{ANY_PROFILE}.{field}"].default_words
            own = f"profiles.{name}.{field}"
            found.append(_value(own, value, places, changed, None if same else note, same, of_run))
    return found


def _value(
    path: str,
    value: Any,
    places: dict[str, Place],
    changed: set[str],
    note: str | None,
    same: bool,
    of_run: bool,
) -> EffectiveValue:
    place = places.get(path)
    if place is not None:
        written = place.raw if path in changed else None
        return EffectiveValue(path, value, "file", place.line, written, None)
    if of_run:
        return EffectiveValue(
            path, value, "contract", None, None, "as the default" if same else None
        )
    return EffectiveValue(path, value, "default", None, None, note)
